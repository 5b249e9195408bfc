//! Answers to who may call which tool, by the code that decides on calls, without a call.
//!
//! Nothing is asked: an answer depends on what a webhook or a policy decision point would say, and on whether somebody would give the proxy a
//! credential for the caller. Rate limits do not count, and neither does whether a token is valid.

mod chain;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use mcp_authz::{Denial, Outlook};
use mcp_middleware::Identity;
use mcp_runconfig::webhook::{self, TOOL_CALL};
use mcp_runconfig::{AUTHORIZATION, TOOL_CALL_FILTER, TOOL_FILTER, chain::AUTH};
use mcp_wire::{Entry, List, ListKind, OwnedMessage};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::authorization::View;
use crate::tools::Call;
use crate::webhook::principal;
use chain::Step;

pub use chain::Gate;

/// The answers about one tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnswer {
    /// The name by which clients call it, or the server's own where they cannot.
    pub name: String,
    /// The MCP server's name for it.
    pub server_name: String,
    /// Whether the caller sees it in lists.
    pub shown: Verdict,
    /// Whether the caller may call it.
    pub call: Verdict,
}

/// An answer, and what decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The answer.
    pub answer: Answer,
    /// The decisions that make it, or what it depends on.
    pub because: Vec<Reason>,
}

/// Whether the caller may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// In any case.
    Yes,
    /// In no case.
    No,
    /// Some of the reasons can go both ways.
    DependsOn,
}

/// One decision, or the lack of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// The type of the middleware.
    pub guard: &'static str,
    /// The policy or the webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The thing that has to be known for a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<Unknown>,
    /// The decision in words.
    pub says: String,
}

/// Something that has to be known for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unknown {
    /// The arguments of the call.
    Arguments,
    /// The answer of a webhook.
    Webhook,
    /// The answer of the policy decision point.
    Pdp,
    /// Whether there is a credential for this caller.
    Credential,
}

impl Reason {
    fn new(guard: &'static str, name: Option<String>, says: impl Into<String>) -> Self {
        Self { guard, name, depends_on: None, says: says.into() }
    }

    fn on(unknown: Unknown, guard: &'static str, name: Option<String>, says: impl Into<String>) -> Self {
        Self { depends_on: Some(unknown), ..Self::new(guard, name, says) }
    }

    fn permits(policies: Vec<String>) -> Vec<Self> {
        policies.into_iter().map(|policy| Self::new(AUTHORIZATION, Some(policy), "permits it")).collect()
    }

    fn denies(denial: Denial) -> Vec<Self> {
        let by = |policy, says| Self::new(AUTHORIZATION, Some(policy), says);
        match denial {
            Denial::Forbidden(policies) => {
                policies.into_iter().map(|policy| by(policy, "forbids it".to_owned())).collect()
            }
            Denial::Failed(policies) => {
                let failed = policies.into_iter();
                failed
                    .map(|(policy, problem)| by(policy, format!("cannot be evaluated, and so denies: it {problem}")))
                    .collect()
            }
            denial => vec![Self::new(AUTHORIZATION, None, denial.to_string())],
        }
    }

    fn pdp() -> Self {
        Self::on(Unknown::Pdp, AUTHORIZATION, None, "the policy decision point decides")
    }

    fn credential(kind: &'static str) -> Self {
        Self::on(Unknown::Credential, kind, None, "refuses a caller for whom it gets no credential")
    }
}

impl Verdict {
    fn no(reason: Reason) -> Self {
        Self::refused(vec![reason])
    }

    fn refused(because: Vec<Reason>) -> Self {
        Self { answer: Answer::No, because }
    }

    /// Yes for these reasons, but where one of them can go both ways.
    fn of(because: Vec<Reason>) -> Self {
        let is_open = because.iter().any(|reason| reason.depends_on.is_some());
        Self { answer: if is_open { Answer::DependsOn } else { Answer::Yes }, because }
    }
}

const WITHHELD: &str = "the proxy withholds this list from everybody";
const AMBIGUOUS: &str = "clients may read it in another way";
const LIST_TOOLS: &str = "tools/list";

impl Gate {
    /// The answers about each tool of `list`, an answer of the MCP server, for this caller; `None` is one who has not logged in where that is needed.
    /// `arguments` are those of a call of the tool with this name, as clients call it.
    /// Beside the answers stands whether the list goes on.
    ///
    /// # Errors
    /// The list is none, or one that no client gets.
    pub fn explain(
        &self,
        list: &Bytes,
        caller: Option<&Arc<Identity>>,
        arguments: Option<(&str, &RawValue)>,
    ) -> Result<(Vec<ToolAnswer>, bool), String> {
        let begin = if self.reads_lists() { WITHHELD } else { AMBIGUOUS };
        let withheld = |reason| format!("{begin}: {reason}");
        let read = || {
            List::read(list.clone(), &[ListKind::Tools])
                .map_err(withheld)?
                .ok_or_else(|| "it has no list of tools".to_owned())
        };
        let tools = read()?;
        let views = self.steps.iter().map(|step| match step {
            Step::Authorization(authorization) => authorization.view(&tools).map(Some),
            _ => Ok(None),
        });
        let views = views.collect::<Result<Vec<_>, _>>().map_err(withheld)?;
        let steps: Vec<_> = self.steps.iter().zip(views).collect();
        // Some lists are withheld only for what is left of them.
        steps
            .iter()
            .rev()
            .try_fold(read()?, |list, (step, view)| filter(step, view.as_ref(), list, caller))
            .map_err(withheld)?;
        let explain = |tool: &Entry<'_>| {
            let server_name = tool.name().to_owned();
            let Some(identity) = caller else {
                let nobody = Verdict::no(Reason::new(AUTH, None, "a login is needed, and there are no claims"));
                return ToolAnswer { name: server_name.clone(), server_name, shown: nobody.clone(), call: nobody };
            };
            let name = presented(&steps, &server_name).unwrap_or(&server_name).to_owned();
            let raw = arguments.filter(|(tool, _)| *tool == name).map(|(_, raw)| raw);
            let shown = shown(&steps, tool, identity);
            let call = called(&steps, (&name, &server_name), raw, identity);
            ToolAnswer { name, server_name, shown, call }
        };
        let has_more_pages = tools.next_cursor().map_err(withheld)?.is_some();
        Ok((tools.entries().iter().map(explain).collect(), has_more_pages))
    }
}

type Steps<'a> = [(&'a Step, Option<View<'a>>)];

fn filter(
    step: &Step,
    view: Option<&View<'_>>,
    list: List,
    caller: Option<&Arc<Identity>>,
) -> Result<List, &'static str> {
    match (step, view) {
        (Step::List(names), _) => names.present(list),
        (_, Some(View::Cedar(cedar))) => cedar.filter(list, caller),
        _ => Ok(list),
    }
}

/// The client's name of a tool; `None` where clients do not see it.
fn presented<'a>(steps: &'a Steps<'_>, name: &'a str) -> Option<&'a str> {
    steps.iter().rev().try_fold(name, |name, (step, _)| match step {
        Step::List(names) => names.presented(name),
        _ => Some(name),
    })
}

fn shown(steps: &Steps<'_>, tool: &Entry<'_>, caller: &Arc<Identity>) -> Verdict {
    let mut because = Vec::new();
    for (_, view) in steps.iter().rev() {
        match view {
            Some(View::Cedar(cedar)) => match cedar.sees(tool, Some(caller)) {
                Ok(policies) => because.extend(Reason::permits(policies)),
                Err(denial) => return Verdict::refused(Reason::denies(denial)),
            },
            Some(View::Pdp) => because.push(Reason::pdp()),
            None => {}
        }
    }
    if presented(steps, tool.name()).is_none() {
        return Verdict::no(Reason::new(TOOL_FILTER, None, "hides it"));
    }
    // The request for the list is a message like others: webhooks may be asked about it, and it needs the caller's credential.
    let mut asked = Asked::default();
    because.extend(steps.iter().filter_map(|(step, _)| asked.reason(step, LIST_TOOLS, None, caller)));
    Verdict::of(because)
}

/// The state of a caller's message on its way from the outermost middleware to the innermost.
#[derive(Default)]
struct Asked<'a> {
    /// The caller, as far as it is known by then.
    principal: Option<&'a str>,
    /// Whether one of them may have made another message of it.
    changed: bool,
}

impl<'a> Asked<'a> {
    /// The reason that a step is, where somebody else is asked about a message with this method, which calls this tool.
    fn reason(&mut self, step: &Step, method: &str, tool: Option<&str>, caller: &'a Identity) -> Option<Reason> {
        match step {
            Step::Login => self.principal = principal(caller),
            Step::Credential(kind) => return Some(Reason::credential(kind)),
            Step::Webhook { kind, name, selector } => {
                let is_known = !self.changed;
                let (method, tool) = (Some(method).filter(|_| is_known), tool.filter(|_| is_known));
                if selector.matches(method, tool, self.principal) {
                    self.changed |= *kind == webhook::MUTATING;
                    return Some(Reason::on(Unknown::Webhook, kind, Some(name.clone()), "is asked, and may refuse it"));
                }
            }
            _ => {}
        }
        None
    }
}

/// The answer about a call by this name, from the outermost middleware to the innermost. It has to reach this tool of the server.
fn called(
    steps: &Steps<'_>,
    (name, server_name): (&str, &str),
    arguments: Option<&RawValue>,
    caller: &Arc<Identity>,
) -> Verdict {
    let mut message = match message(name, arguments) {
        Ok(message) => message,
        Err(refusal) => return Verdict::no(refusal),
    };
    let (mut because, mut asked) = (Vec::new(), Asked::default());
    for (step, view) in steps {
        match (step, view) {
            (Step::Call(names), _) if !asked.changed => match names.call(&message) {
                Call::Pass => {}
                Call::Replace(body) => match OwnedMessage::read(body.into()) {
                    Ok(renamed) => message = renamed,
                    Err(error) => return Verdict::no(Reason::new(TOOL_CALL_FILTER, None, error.to_string())),
                },
                Call::Hidden(_) | Call::Malformed => {
                    return Verdict::no(Reason::new(TOOL_CALL_FILTER, None, "clients cannot call it"));
                }
            },
            (Step::Login | Step::Webhook { .. } | Step::Credential(_), _) => {
                because.extend(asked.reason(step, TOOL_CALL, called_tool(&message).as_deref(), caller));
            }
            (_, Some(View::Pdp)) => because.push(Reason::pdp()),
            (_, Some(View::Cedar(cedar))) => {
                let outlook = match arguments {
                    Some(_) => cedar.calls(&message, Some(caller)).map_or_else(Outlook::Denied, Outlook::Permitted),
                    None => cedar.outlook(&message, Some(caller)),
                };
                match outlook {
                    Outlook::Permitted(policies) => because.extend(Reason::permits(policies)),
                    Outlook::Denied(denial) => {
                        let reasons = Reason::denies(denial);
                        if !asked.changed {
                            return Verdict::refused(reasons);
                        }
                        because.extend(reasons);
                    }
                    Outlook::DependsOn(policies) => because.extend(policies.into_iter().map(|policy| {
                        Reason::on(Unknown::Arguments, AUTHORIZATION, Some(policy), "decides by the arguments")
                    })),
                }
            }
            _ => {}
        }
    }
    if !asked.changed && called_tool(&message).as_deref() != Some(server_name) {
        return Verdict::no(Reason::new(TOOL_CALL_FILTER, None, "calls by its name do not reach it"));
    }
    Verdict::of(because)
}

fn called_tool(message: &OwnedMessage) -> Option<Cow<'_, str>> {
    message.message().target().ok().flatten()
}

/// The message that calls a tool.
fn message(name: &str, arguments: Option<&RawValue>) -> Result<OwnedMessage, Reason> {
    let arguments = arguments.map_or_else(String::new, |raw| format!(r#","arguments":{raw}"#));
    let params = format!(r#"{{"name":{}{arguments}}}"#, Value::from(name));
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{TOOL_CALL}","params":{params}}}"#);
    OwnedMessage::read(body.into())
        .map_err(|error| Reason::new(mcp_runconfig::chain::PARSER, None, format!("refuses such a message: {error}")))
}
