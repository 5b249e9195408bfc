//! The questions that a message asks policies, by its method (toolhive-auth §4.4, toolhive-0.63 §5.2).

use std::collections::BTreeSet;

use mcp_wire::{Kind, Members, Message};
use serde_json::value::RawValue;

use crate::uri;
use crate::{Feature, Question};

/// The most resources that one `subscriptions/listen` may name.
const SUBSCRIPTIONS: usize = 50;

/// The members of `notifications` in `subscriptions/listen`; the last one names resources.
const NOTIFICATIONS: [&str; 4] =
    ["toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions"];

/// The need of a message for decisions.
#[derive(Clone, Debug)]
pub enum Asks<'a> {
    /// Nothing that policies decide on: it passes. The entries of a list are questions when it is answered ([`Question::of`]).
    Nothing,
    /// Each of these has to be allowed.
    Questions(Vec<Question<'a>>),
    /// Something that no policy can allow, for this reason.
    Refused(&'static str),
    /// It answers a request of the MCP server, which no policy knows of.
    Answer,
}

enum Rule {
    Nothing,
    /// The message's target, a call of which has arguments.
    Target(Feature),
    Completion,
    Listen,
}

/// The methods of MCP that policies let pass or decide on. Every other one is refused.
const RULES: [(&str, Rule); 29] = [
    ("initialize", Rule::Nothing),
    ("ping", Rule::Nothing),
    ("server/discover", Rule::Nothing),
    ("features/list", Rule::Nothing),
    ("roots/list", Rule::Nothing),
    ("logging/setLevel", Rule::Nothing),
    ("notifications/message", Rule::Nothing),
    ("notifications/initialized", Rule::Nothing),
    ("notifications/progress", Rule::Nothing),
    ("notifications/cancelled", Rule::Nothing),
    ("notifications/roots/list_changed", Rule::Nothing),
    ("notifications/tools/list_changed", Rule::Nothing),
    ("notifications/prompts/list_changed", Rule::Nothing),
    ("notifications/resources/list_changed", Rule::Nothing),
    ("notifications/resources/updated", Rule::Nothing),
    ("notifications/tasks/status", Rule::Nothing),
    ("tools/call", Rule::Target(Feature::Tool)),
    ("prompts/get", Rule::Target(Feature::Prompt)),
    ("resources/read", Rule::Target(Feature::Resource)),
    ("resources/subscribe", Rule::Target(Feature::Resource)),
    ("resources/unsubscribe", Rule::Target(Feature::Resource)),
    ("skills/get", Rule::Target(Feature::Skill)),
    ("tools/list", Rule::Nothing),
    ("prompts/list", Rule::Nothing),
    ("resources/list", Rule::Nothing),
    ("resources/templates/list", Rule::Nothing),
    ("skills/list", Rule::Nothing),
    ("completion/complete", Rule::Completion),
    ("subscriptions/listen", Rule::Listen),
];

/// Finds the questions of a client's message. The message has to be one that every parser reads alike ([`Message::parse_strict`]).
pub fn asks<'a>(message: &'a Message<'a>) -> Asks<'a> {
    if message.kind() == Kind::Response {
        return Asks::Answer;
    }
    let method = message.method().unwrap_or_default();
    let questions = match RULES.iter().find(|(name, _)| *name == method).map(|(_, rule)| rule) {
        None => Err("policies know nothing of this method"),
        Some(Rule::Nothing) => return Asks::Nothing,
        Some(Rule::Target(feature)) => target(message, *feature).map(|question| vec![question]),
        Some(Rule::Completion) => completion(message).map(|question| vec![question]),
        Some(Rule::Listen) => listen(message),
    };
    match questions {
        Ok(questions) if questions.is_empty() => Asks::Nothing,
        Ok(questions) => Asks::Questions(questions),
        Err(reason) => Asks::Refused(reason),
    }
}

fn target<'a>(message: &'a Message<'a>, feature: Feature) -> Result<Question<'a>, &'static str> {
    let id = message.target().ok().flatten().filter(|id| !id.is_empty());
    let id = id.ok_or("the name or URI of what it asks for is missing")?;
    if feature == Feature::Resource {
        uri::check(&id)?;
    }
    let has_arguments = matches!(feature, Feature::Tool | Feature::Prompt);
    let arguments = if has_arguments { param(message, "arguments")? } else { None };
    Ok(Question { arguments, ..Question::new(feature, id) })
}

/// Completions come from what is referred to. They are no arguments of it, so policies are told none.
fn completion<'a>(message: &'a Message<'a>) -> Result<Question<'a>, &'static str> {
    let unclear = "it refers to no prompt and to no resource";
    let reference = param(message, "ref")?.ok_or(unclear)?;
    // A derived type would take an array for it, too.
    let Members(members) = serde_json::from_str(reference.get()).map_err(|_| unclear)?;
    let text = |name: &str| -> Result<Option<String>, &'static str> {
        let value = members.iter().find_map(|(key, value)| (key == name).then_some(value.get()));
        value.map_or(Ok(None), |value| serde_json::from_str(value).map_err(|_| unclear))
    };
    match (text("type")?.as_deref(), text("name")?, text("uri")?) {
        (Some("ref/prompt"), Some(name), None) if !name.is_empty() => Ok(Question::new(Feature::Prompt, name)),
        (Some("ref/resource"), None, Some(template)) if !template.is_empty() => {
            uri::check_template(&template)?;
            Ok(Question::new(Feature::Resource, template))
        }
        _ => Err(unclear),
    }
}

fn listen<'a>(message: &'a Message<'a>) -> Result<Vec<Question<'a>>, &'static str> {
    message.params().ok_or("its parameters are missing")?;
    let Some(notifications) = param(message, "notifications")? else { return Ok(Vec::new()) };
    let unreadable = "what it subscribes to cannot be read";
    let Members(members) = serde_json::from_str(notifications.get()).map_err(|_| unreadable)?;
    let mut questions = Vec::new();
    let mut seen = BTreeSet::new();
    for (name, value) in &members {
        if !NOTIFICATIONS.contains(&&**name) {
            return Err("it subscribes to something that policies know nothing of");
        }
        if name != NOTIFICATIONS[3] {
            continue;
        }
        let uris: Vec<String> = serde_json::from_str(value.get()).map_err(|_| unreadable)?;
        if uris.len() > SUBSCRIPTIONS {
            return Err("it subscribes to more than 50 resources");
        }
        for uri in uris {
            uri::check(&uri)?;
            if seen.insert(uri.clone()) {
                questions.push(Question::new(Feature::Resource, uri));
            }
        }
    }
    Ok(questions)
}

fn param<'a>(message: &'a Message<'a>, name: &str) -> Result<Option<&'a RawValue>, &'static str> {
    message.param(name).map_err(|_| "its parameters cannot be read")
}
