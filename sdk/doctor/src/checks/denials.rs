//! V: refusals, their authors and their reasons.

use portcullis_manifest::WebhookKind;
use portcullis_manifest::messages::{INVALID, MUTATE, VALIDATE};

use super::{Note, fine, info, unseen};
use crate::parts::View;
use crate::report::Verdict;
use crate::subject::Subject;

/// The API server's words before a webhook's own message.
const DENIED: &str = "admission webhook \"";
const FAILED: &str = "failed calling webhook \"";
/// The most lines of logs that are shown.
const LINES: usize = 5;

/// The author of a refusal, by the API server's words for it.
#[derive(Debug, PartialEq, Eq)]
enum Refusal<'a> {
    /// This webhook decided so.
    Denied(&'a str),
    /// This webhook could not be called.
    Failed(&'a str),
    /// No webhook: the schema, a CEL rule, a policy, a right.
    Other,
}

fn refusal(message: &str) -> Refusal<'_> {
    let name = |sign: &str| message.split_once(sign)?.1.split_once('"').map(|(name, _)| name);
    match (name(DENIED).filter(|_| message.contains("denied the request")), name(FAILED)) {
        (Some(name), _) => Refusal::Denied(name),
        (None, Some(name)) => Refusal::Failed(name),
        (None, None) => Refusal::Other,
    }
}

/// It takes no flags of an installation: the registration is what is asked.
fn explain(subject: &Subject) -> String {
    format!("{} doctor explain --filename FILE", subject.program)
}

/// V1
pub(super) fn rules(view: View<'_>) -> Vec<Note> {
    let validates = view.subject.webhooks_of(WebhookKind::Validating).next().is_some();
    let message = if validates { "the rules that a manifest breaks" } else { "there are no validating webhooks" };
    vec![fine(format!("{message}: {}", explain(view.subject)))]
}

/// V2
pub(super) fn decided(view: View<'_>) -> Vec<Note> {
    let options = &view.snapshot.options;
    let object = options.object.as_deref().unwrap_or_default();
    let about = |line: &&String| {
        options.in_namespace.as_ref().is_none_or(|namespace| line.contains(namespace.as_str()))
            && line.contains(object)
            && [VALIDATE, MUTATE, INVALID].iter().any(|sign| line.contains(sign))
    };
    let mut notes = Vec::new();
    for log in view.logs().iter() {
        let lines: Vec<_> = log.lines.iter().rev().filter(about).take(LINES).collect();
        notes.extend(lines.into_iter().rev().map(|line| info(format!("{}: {line}", log.pod))));
    }
    if notes.is_empty() {
        notes.push(info(format!("the pods' logs say nothing about {object}: it was not asked about, or long ago")));
    }
    notes
}

/// V3
pub(super) fn refused_by(view: View<'_>) -> Vec<Note> {
    let denial = view.snapshot.options.denial.as_deref().unwrap_or_default();
    let ours = |name: &str| view.subject.webhooks.iter().any(|webhook| webhook.name == name);
    let elsewhere = |name: &str| {
        let found = view.configurations().iter().find(|one| one.entries.iter().any(|entry| entry.name == name));
        found.map(|one| format!(" ({} {})", one.resource(), one.name())).unwrap_or_default()
    };
    let note = match refusal(denial) {
        Refusal::Denied(name) if ours(name) => Note::new(
            Verdict::Info,
            format!("denied by {name}, a rule of this operator"),
            Some(format!("all rules that the object breaks: {}", explain(view.subject))),
        ),
        Refusal::Denied(name) => info(format!("denied by {name}{}, not by this operator", elsewhere(name))),
        Refusal::Failed(name) if ours(name) => {
            info(format!("no decision: webhook {name} of this operator could not be called; see the C and X checks"))
        }
        Refusal::Failed(name) => info(format!(
            "no decision: webhook {name}{} could not be called; it is not this operator's",
            elsewhere(name)
        )),
        Refusal::Other if denial.trim().is_empty() => return unseen("the message is empty"),
        Refusal::Other => info(
            "the message names no webhook, so none refused it: it was the kind's schema or a CEL rule of it, a policy, or a missing right",
        ),
    };
    vec![note]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_servers_words_say_who_refused() {
        for (message, expected) in [
            ("admission webhook \"a.b.c\" denied the request: no", Refusal::Denied("a.b.c")),
            (
                "Internal error occurred: failed calling webhook \"a.b.c\": failed to call webhook: Post \"https://x\": EOF",
                Refusal::Failed("a.b.c"),
            ),
            ("Order.shop.example \"x\" is invalid: spec.beer: Required value", Refusal::Other),
            ("", Refusal::Other),
        ] {
            assert_eq!(refusal(message), expected, "{message}");
        }
    }
}
