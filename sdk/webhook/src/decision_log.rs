//! One line per decision, `validate create` or the like: who asked for what, what was answered, and why. Never the
//! object.

use std::time::Duration;

use portcullis_manifest::WebhookKind;
use portcullis_review::{Operation, Request, Verdict};
use tracing::field::display;
use tracing::{info, warn};

use crate::metrics::Decided;
use crate::routes::TraceId;
use portcullis_manifest::messages::{MUTATE, VALIDATE};

/// The outcome of a request.
pub(super) enum Outcome<'a> {
    /// It was answered; the note takes the place of the denial's message.
    Decided { verdict: &'a Verdict, note: Option<&'a str> },
    /// It was not answered; the failure policy decides, unless the webhook then answers with a denial.
    Failed { problem: &'a str },
}

/// Logs a decision. Messages are recorded as strings, which subscribers quote: a line break in one starts no new line.
pub(super) fn log(
    webhook_kind: WebhookKind,
    webhook: &str,
    request: &Request<'_>,
    decided: Decided,
    outcome: &Outcome<'_>,
    took: Duration,
    trace: Option<TraceId>,
) {
    let trace = trace.map(display);
    let decision = decided.as_str();
    let kind = &*request.kind.kind;
    let namespace = &*request.namespace;
    let name = &*request.name;
    let uid = &*request.uid;
    let user = &*request.user_info.username;
    let operation = request.operation.as_str();
    let dry_run = request.dry_run.unwrap_or_default();
    let verb = match webhook_kind {
        WebhookKind::Validating => VALIDATE,
        WebhookKind::Mutating => MUTATE,
    };
    let noun = match request.operation {
        Operation::Create => "create",
        Operation::Update => "update",
        Operation::Delete => "delete",
        Operation::Connect => "connect",
    };
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    match *outcome {
        Outcome::Decided { verdict, note } => {
            let (said, code) = verdict.denial().map_or(("", 200), |denial| (denial.message(), denial.code()));
            let reason = note.unwrap_or(said);
            info!(
                webhook,
                kind,
                namespace,
                name,
                uid,
                user,
                operation,
                dry_run,
                decision,
                code,
                reason,
                micros,
                trace,
                "{verb}{noun}"
            );
        }
        Outcome::Failed { problem: reason } => {
            warn!(
                webhook,
                kind,
                namespace,
                name,
                uid,
                user,
                operation,
                dry_run,
                decision,
                code = 500,
                reason,
                micros,
                trace,
                "{verb}{noun}"
            );
        }
    }
}
