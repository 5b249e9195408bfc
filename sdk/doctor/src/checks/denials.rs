//! W12 and V: what was refused, by whom, and why.

use portcullis_manifest::WebhookKind;

use super::{Note, Said, View, fail, fine, info, note, unseen, warn};
use crate::report::Verdict;
use crate::snapshot::Probe;
use crate::subject::Subject;
use portcullis_manifest::words::{INVALID, MUTATE, VALIDATE};

/// What the API server puts before a webhook's own message.
const DENIED: &str = "admission webhook \"";
const FAILED: &str = "failed calling webhook \"";
/// The most lines of logs that are shown.
const LINES: usize = 5;

/// Who refused a request, by the API server's words for it.
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

/// W12
pub(super) fn probes(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    if snapshot.probes.is_empty() {
        return Ok(vec![fine("give --probe FILE with an object that should be refused to try it")]);
    }
    let ours = |name: &str| subject.webhooks.iter().any(|webhook| webhook.name == name);
    let judge = |Probe { kind, namespace, refusal: refused }: &Probe| -> Note {
        let place = if namespace.is_empty() { "the cluster" } else { namespace };
        let Some((code, message)) = refused else {
            return fail(format!("probe was accepted: {kind} is not validated in {place}"), "see the W checks for why");
        };
        match refusal(message) {
            Refusal::Denied(name) if ours(name) => fine(format!("probe {kind} was refused: {message}")),
            Refusal::Denied(name) => {
                info(format!("probe {kind} was refused by {name}, not by this operator: {message}"))
            }
            Refusal::Failed(name) => fail(
                format!("probe {kind}: webhook {name} cannot be called: {message}"),
                "see the C and X checks for why",
            ),
            Refusal::Other if *code == 403 => warn(
                format!("could not probe: needs create {kind} in {place}: {message}"),
                "probe as somebody who may create it",
            ),
            Refusal::Other => {
                let message = format!("probe {kind} was refused before any webhook was asked: {message}");
                warn(message, "take an object that its schema allows and a rule refuses")
            }
        }
    };
    Ok(snapshot.probes.iter().map(judge).collect())
}

/// It takes no flags of an installation: the registration is what is asked.
fn explain(subject: &Subject) -> String {
    format!("{} doctor explain --filename FILE", subject.installation.operator)
}

/// V1
pub(super) fn rules(view: &View<'_>) -> Said {
    let View { subject, .. } = *view;
    let validates = subject.webhooks_of(WebhookKind::Validating).next().is_some();
    let message = if validates { "the rules that a manifest breaks" } else { "there are no validating webhooks" };
    Ok(vec![fine(format!("{message}: {}", explain(subject)))])
}

/// V2
pub(super) fn decided(view: &View<'_>) -> Said {
    let View { snapshot, .. } = *view;
    let Some(object) = &snapshot.object else {
        return Ok(vec![fine("give --object NAME (and --in-namespace) to see what was decided about it")]);
    };
    let mut notes = Vec::new();
    for (pod, log) in &snapshot.logs {
        let log = log.known()?;
        let about = |line: &&String| {
            let place = snapshot.in_namespace.as_ref().is_none_or(|namespace| line.contains(namespace.as_str()));
            place
                && line.contains(object.as_str())
                && [VALIDATE, MUTATE, INVALID].iter().any(|sign| line.contains(sign))
        };
        let lines: Vec<_> = log.lines.iter().rev().filter(about).take(LINES).collect();
        notes.extend(lines.into_iter().rev().map(|line| info(format!("{pod}: {line}"))));
    }
    if notes.is_empty() {
        notes.push(info(format!("the pods' logs say nothing about {object}: it was not asked about, or long ago")));
    }
    Ok(notes)
}

/// V3
pub(super) fn refused_by(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let Some(denial) = &snapshot.denial else {
        return Ok(vec![fine("give --denial 'MESSAGE' to know who refused a request")]);
    };
    let ours = |name: &str| subject.webhooks.iter().find(|webhook| webhook.name == name);
    let elsewhere = |name: &str| {
        let holds = |one: &&crate::configuration::Configuration| one.entries.iter().any(|entry| entry.name == name);
        let found = snapshot.all().iter().find(holds).map(|one| format!(" ({} {})", one.resource(), one.name()));
        found.unwrap_or_default()
    };
    let note = match refusal(denial) {
        Refusal::Denied(name) if ours(name).is_some() => {
            let explain = explain(subject);
            note(
                Verdict::Info,
                format!("denied by {name}, a rule of this operator"),
                Some(format!("all rules that the object breaks: {explain}")),
            )
        }
        Refusal::Denied(name) => info(format!("denied by {name}{}, not by this operator", elsewhere(name))),
        Refusal::Failed(name) if ours(name).is_some() => {
            info(format!("nobody decided: webhook {name} of this operator could not be called; see the C and X checks"))
        }
        Refusal::Failed(name) => info(format!(
            "nobody decided: webhook {name}{} could not be called; it is not this operator's",
            elsewhere(name)
        )),
        Refusal::Other if denial.trim().is_empty() => return unseen("the message is empty"),
        Refusal::Other => {
            // Judged by the words alone: no configuration need be seen for it.
            info(
                "the message names no webhook, so none refused it: it was the kind's schema or a CEL rule of it, a policy, or a missing right",
            )
        }
    };
    Ok(vec![note])
}

/// V4
pub(super) fn asked_by(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let Some(identity) = &snapshot.identity else {
        return Ok(vec![fine("give --denial 'MESSAGE' to know who you are to the webhooks")]);
    };
    let identity = identity.known()?;
    let account = format!("system:serviceaccount:{}:{}", subject.namespace(), snapshot.account(subject));
    let user = &identity.user;
    let is_operator = if *user == account { "the operator itself" } else { "not the operator" };
    let message = format!(
        "you act as {user} ({}), {is_operator} ({account}): rules may refuse by user, and then somebody else has to ask, or another field be set",
        identity.groups.join(", ")
    );
    Ok(vec![info(message)])
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
