//! The checks: pure functions of what was observed.

#![allow(clippy::unnecessary_wraps, reason = "all checks have one signature, for the table")]

mod answers;
mod called;
mod cut;
mod deleting;
mod denials;
mod hooks;
mod registered;
mod rollout;
mod schemas;
mod scopes;
mod trusted;
mod writers;

use std::sync::Arc;

use jiff::Timestamp;
use rustls::crypto::CryptoProvider;

use super::report::{Finding, Report, UNSEEN, Verdict};
use super::snapshot::{Blind, Look, Snapshot};
use super::subject::Subject;

/// What a check sees.
#[derive(Clone, Copy)]
struct View<'a> {
    subject: &'a Subject,
    /// The port of the Service as the flags say it. That of `subject` is the one that is called, where that is sure.
    given_port: u16,
    snapshot: &'a Snapshot,
    now: Timestamp,
    /// Verifies as callers would.
    provider: &'a Arc<CryptoProvider>,
}

/// What a check says; nothing at all when everything is as it should be.
type Said = Result<Vec<Note>, Blind>;

struct Note {
    verdict: Verdict,
    message: String,
    fix: Option<String>,
}

fn note(verdict: Verdict, message: impl Into<String>, fix: Option<String>) -> Note {
    Note { verdict, message: message.into(), fix }
}

fn fail(message: impl Into<String>, fix: impl Into<String>) -> Note {
    note(Verdict::Fail, message, Some(fix.into()))
}

fn warn(message: impl Into<String>, fix: impl Into<String>) -> Note {
    note(Verdict::Warn, message, Some(fix.into()))
}

fn info(message: impl Into<String>) -> Note {
    note(Verdict::Info, message, None)
}

fn fine(message: impl Into<String>) -> Note {
    note(Verdict::Ok, message, None)
}

/// Not all is well, and nothing is wrong: there was nothing from which to tell.
fn unseen(why: &str) -> Said {
    Ok(vec![info(format!("{UNSEEN}{why}"))])
}

/// That the operator's namespace does not exist, where it could be asked for.
fn no_namespace(view: &View<'_>) -> Option<Note> {
    let own = view.subject.namespace();
    let missing = matches!(view.snapshot.namespaces.get(own)?, Look::Seen(None));
    missing.then(|| fail(format!("namespace {own} does not exist"), format!("kubectl create namespace {own}")))
}

struct Check {
    id: &'static str,
    what: &'static str,
    /// Whether it makes sense only where webhooks are served.
    of_webhooks: bool,
    look: fn(&View<'_>) -> Said,
}

macro_rules! checks {
    ($($id:literal $what:literal $of:ident $look:path;)+) => {
        /// The id of every check, with what it checks.
        pub const CATALOGUE: &[(&str, &str)] = &[$(($id, $what)),+];
        const CHECKS: &[Check] =
            &[$(Check { id: $id, what: $what, of_webhooks: checks!($of), look: $look }),+];
    };
    (webhooks) => { true };
    (always) => { false };
}

checks! {
    "W1" "the webhook configurations exist" webhooks called::configurations;
    "W2" "every kind and operation has a rule" webhooks called::rules;
    "W3" "every caBundle holds valid certificates" webhooks called::bundles;
    "W4" "the Service that is called exists" webhooks called::services;
    "W5" "every path that is called is served" webhooks called::paths;
    "W6" "the namespace is selected" webhooks called::selected;
    "W7" "no other operator has claimed the namespace" webhooks scopes::claimed;
    "W8" "calls that fail refuse the request" webhooks called::policies;
    "W9" "the operator serves its webhooks" always rollout::switched_on;
    "W10" "objects that are being deleted" always deleting::exempt;
    "W11" "writes to subresources" webhooks called::subresources;
    "W12" "a bad object is refused" webhooks denials::probes;
    "W13" "CEL rules hold as policies" always registered::policies;
    "W14" "timeouts and selectors are those that were generated" webhooks registered::settings;
    "W15" "CRDs have every field of the operator" always schemas::fields;
    "C1" "a pod of the operator is ready" webhooks rollout::pods;
    "C2" "the Service has endpoints" webhooks answers::endpoints;
    "C3" "the Service and the pods agree on the port" webhooks answers::ports;
    "C4" "the listener answers" webhooks answers::reached;
    "C5" "it is the operator that answers" webhooks answers::ourselves;
    "C6" "no NetworkPolicy keeps the API server out" webhooks answers::policies;
    "C7" "no sidecar takes the calls" webhooks answers::sidecars;
    "C8" "the operator's log is without errors" always rollout::logs;
    "C9" "a rollout or a drained node does not stop admission" webhooks rollout::replicas;
    "C10" "answers come long before the timeout" webhooks answers::latency;
    "C11" "readiness covers the listener" webhooks rollout::readiness;
    "C12" "the API server reaches the pod network" webhooks answers::network;
    "X1" "the Secret holds a pair and a bundle" webhooks trusted::keys;
    "X2" "the certificate is valid now and for a while" webhooks trusted::dates;
    "X3" "the certificate names the Service" webhooks trusted::names;
    "X4" "the key belongs to the certificate" webhooks trusted::key;
    "X5" "every caBundle verifies the certificate" webhooks trusted::bundles;
    "X6" "what is served is what is stored" webhooks trusted::served;
    "X7" "every replica is trusted" webhooks trusted::replicas;
    "X8" "all entries carry the same bundle" webhooks trusted::same;
    "X9" "the CAs may sign, and the certificate may serve" webhooks trusted::fit;
    "X10" "the Jobs that publish the CA ran after the Secret changed" webhooks hooks::publishing;
    "X11" "cert-manager has issued and injects" webhooks writers::issuance;
    "X12" "the bundle that was brought is the Secret's" webhooks writers::brought;
    "X13" "one owner of the certificates" webhooks writers::owners;
    "X14" "one writer of each caBundle" webhooks writers::fights;
    "X15" "by the log, callers trust the certificate" webhooks rollout::handshakes;
    "H1" "the installation's Jobs succeed" always hooks::jobs;
    "H2" "the Jobs' pods run" always hooks::pods;
    "H3" "accounts and bindings are those of this installation" always hooks::bindings;
    "H4" "the operator may do what it needs to" always hooks::rights;
    "H5" "the Jobs found the Secret" always hooks::secret;
    "H6" "the Jobs could make certificates" always hooks::tools;
    "H7" "what to do with failed Jobs" always hooks::cleanup;
    "V1" "which rules an object breaks" webhooks denials::rules;
    "V2" "what the operator decided about an object" always denials::decided;
    "V3" "who refused the request" always denials::refused_by;
    "V4" "who asked" always denials::asked_by;
    "T1" "deletions end" always deleting::stuck;
    "T2" "no webhook keeps finalizers from being removed" always deleting::blocked;
    "T3" "objects that are invalid can be deleted" always deleting::invalid;
    "T4" "no configuration calls what is gone" always deleting::orphans;
    "T5" "foreground deletions end" always deleting::foreground;
    "L1" "every restricted operator holds its namespace" always scopes::lost;
    "L2" "every Lease that claims a namespace is in one that is handed over" always scopes::unguarded;
    "L4" "each Lease has one holder" always scopes::holders;
    "L5" "clocks agree" always scopes::clocks;
    "L6" "one installation leads" always scopes::cluster_wide;
    "L7" "restricted configurations select their namespace only" always scopes::selectors;
}

/// Runs every check on a snapshot; certificates are verified with the algorithms of `provider`. Every check gives at
/// least one finding.
pub fn examine(subject: &Subject, snapshot: &Snapshot, provider: &Arc<CryptoProvider>) -> Report {
    let given_port = subject.installation.service.port;
    // A command with a port that is not called would take down what works.
    let called = snapshot.called_port(subject).map(|port| subject.called_on(port));
    let subject = called.as_ref().unwrap_or(subject);
    let now = snapshot.server_time.unwrap_or(snapshot.now);
    let view = View { subject, given_port, snapshot, now, provider };
    let mut findings = Vec::new();
    for Check { id, what, of_webhooks, look } in CHECKS {
        let said = if *of_webhooks && !subject.is_called() {
            vec![fine("nothing to look at: this installation serves no webhooks")]
        } else {
            match look(&view) {
                Ok(said) if said.iter().all(|note| note.verdict == Verdict::Ok) => match cut::unread(&view, id) {
                    Some(why) => vec![info(why)],
                    None if said.is_empty() => vec![fine(*what)],
                    None => said,
                },
                Ok(said) => said,
                // What could not be looked at may be well or not.
                Err(Blind(why)) => vec![note(Verdict::Warn, format!("{what}? {why}"), None)],
            }
        };
        findings.extend(said.into_iter().map(|Note { verdict, message, fix }| Finding {
            id,
            what,
            verdict,
            message,
            fix,
        }));
    }
    let installation = &subject.installation;
    let restricted = installation.restricted_to.as_ref().map(|to| format!(", restricted to {to}")).unwrap_or_default();
    Report {
        subject: format!(
            "{} as {} in namespace {}{restricted}, {} certificates",
            installation.operator, installation.release, installation.namespace, installation.certificates
        ),
        requests: snapshot.requests,
        findings,
    }
}
