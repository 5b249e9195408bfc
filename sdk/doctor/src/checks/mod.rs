//! The checks: pure functions of the parts of a snapshot that they declare. A new check is a row of the table and its
//! function, a case in `tests.rs` and a variant in `tests/doctor/broken.rs`; then `make generate` for the docs.

mod answers;
mod called;
mod deleting;
mod denials;
mod hooks;
mod issuance;
mod rights;
mod rollout;
mod scopes;
mod trusted;
mod when;

use super::parts::{Part, Snapshot, View};
use super::report::{Finding, Report, UNSEEN, Verdict};
use super::subject::{Options, Subject};

/// One sentence of a check. A check that gives none has found everything as it should be.
struct Note {
    verdict: Verdict,
    message: String,
    fix: Option<String>,
    /// Whether it says that something is not there, which is not sure where a list was cut.
    absent: bool,
}

impl Note {
    fn new(verdict: Verdict, message: impl Into<String>, fix: Option<String>) -> Self {
        Self { verdict, message: message.into(), fix, absent: false }
    }
}

fn fail(message: impl Into<String>, fix: impl Into<String>) -> Note {
    Note::new(Verdict::Fail, message, Some(fix.into()))
}

/// A failure because something is not there.
fn absent(message: impl Into<String>, fix: impl Into<String>) -> Note {
    Note { absent: true, ..fail(message, fix) }
}

fn warn(message: impl Into<String>, fix: impl Into<String>) -> Note {
    Note::new(Verdict::Warn, message, Some(fix.into()))
}

fn info(message: impl Into<String>) -> Note {
    Note::new(Verdict::Info, message, None)
}

fn fine(message: impl Into<String>) -> Note {
    Note::new(Verdict::Ok, message, None)
}

/// Nothing is known to be wrong, and there was nothing to check.
fn unseen(why: &str) -> Vec<Note> {
    vec![info(format!("{UNSEEN}{why}"))]
}

struct Check {
    id: &'static str,
    what: &'static str,
    /// Why there is nothing to check, where there is not.
    when: fn(&Subject, &Options) -> Result<(), &'static str>,
    reads: &'static [Part],
    look: fn(View<'_>) -> Vec<Note>,
}

macro_rules! checks {
    ($($symptom:literal { $($id:literal $what:literal $when:ident [$($part:ident)*] $look:path;)+ })+) => {
        /// Each symptom, with the id of every check for it and the state in which the check passes.
        pub const CATALOGUE: &[(&str, &[(&str, &str)])] = &[$(($symptom, &[$(($id, $what)),+])),+];
        const CHECKS: &[Check] = &[
            $($(Check { id: $id, what: $what, when: when::$when, reads: &[$(Part::$part),*], look: $look }),+),+
        ];
    };
}

checks! {
    "Invalid objects are accepted" {
        "W1" "the webhook configurations exist" webhooks [Configurations] called::configurations;
        "W2" "every kind and operation has a rule" webhooks [Configurations Crds] called::rules;
        "W3" "every caBundle holds valid certificates" webhooks [Configurations Crds] called::bundles;
        "W4" "the Service that is called exists" webhooks [Services] called::services;
        "W5" "every path that is called is served" webhooks [Configurations Crds] called::paths;
        "W6" "the namespace is selected (`--in-namespace NAMESPACE`)" a_namespace [Configurations Crds AskedNamespace]
            called::selected;
        "W7" "no other operator has claimed the namespace" cluster_wide [Leases HandedOver] scopes::claimed;
        "W8" "calls that fail refuse the request" webhooks [Configurations Crds] called::policies;
        "W9" "the operator serves its webhooks" always [Configurations Crds Services Deployments] rollout::switched_on;
    }
    "`connection refused`, `no endpoints available`, `context deadline exceeded`" {
        "C1" "a pod of the operator is ready" webhooks [Services Deployments Pods] rollout::pods;
        "C2" "the Service has endpoints" webhooks [Services Endpoints] answers::endpoints;
        "C3" "the Service and the pods agree on the port" webhooks [Services Deployments Pods] answers::ports;
        "C4" "the listener answers" webhooks [Services Listeners] answers::reached;
        "C5" "it is the operator that answers" webhooks [Listeners] answers::ourselves;
        "C8" "the operator's log is without errors" always [Logs] rollout::logs;
    }
    "`x509: certificate signed by unknown authority`, `is valid for …, not …`, `has expired`" {
        "X1" "the Secret holds a pair and a bundle" webhooks [Secret CaSecret] trusted::keys;
        "X2" "the certificate is valid now and for a while" webhooks [Secret] trusted::dates;
        "X3" "the certificate names the Service" webhooks [Secret] trusted::names;
        "X4" "the key belongs to the certificate" webhooks [Secret] trusted::key;
        "X5" "every caBundle verifies the certificate" webhooks [Secret Configurations Crds] trusted::bundles;
        "X6" "the certificate that is served is the one that is stored" webhooks [Secret Listeners] trusted::served;
        "X8" "all entries carry the same bundle" webhooks [Configurations Crds] trusted::same;
        "X10" "the Jobs that publish the CA succeed" webhooks [Jobs] hooks::publishing;
        "X11" "cert-manager has issued and injects" cert_manager [Issuance Configurations Crds] issuance::issuance;
    }
    "An installation with hook Jobs hangs, or the operator lacks rights" {
        "H1" "the installation's Jobs succeed" always [Jobs] hooks::jobs;
        "H3" "accounts and bindings are those of this installation" always
            [Services Deployments Accounts RoleBindings ClusterBinding] rights::bindings;
        "H4" "the operator may do all that it needs to" always [Rights] rights::rights;
        "H7" "no failed Job is left" always [Jobs] hooks::cleanup;
    }
    "A refusal that says too little" {
        "V1" "the rules that an object breaks (`doctor explain -f FILE`)" webhooks [] denials::rules;
        "V2" "the operator's decisions about an object (`--object NAME`)" an_object [Logs] denials::decided;
        "V3" "the author of a refusal (`--denial MESSAGE`)" a_denial [Configurations] denials::refused_by;
    }
    "Deletion does not end" {
        "T1" "deletions end" always [Objects] deleting::stuck;
        "T2" "no webhook keeps finalizers from being removed" always [Objects Configurations Endpoints Events]
            deleting::blocked;
    }
    "Several operators" {
        "L1" "every restricted operator holds its namespace" always [Configurations Leases] scopes::lost;
        "L6" "one installation leads" always [Leaders] scopes::leaders;
    }
}

/// The parts that the checks of this installation read.
pub(super) fn parts(subject: &Subject, options: &Options) -> Vec<Part> {
    let asked = CHECKS.iter().filter(|check| (check.when)(subject, options).is_ok());
    asked.flat_map(|check| check.reads).copied().collect()
}

impl Check {
    /// Looks at its parts. Gives at least one note.
    fn notes(&self, subject: &Subject, snapshot: &Snapshot) -> Vec<Note> {
        if let Err(nothing) = (self.when)(subject, &snapshot.options) {
            return vec![fine(nothing)];
        }
        let mut cut = Vec::new();
        for part in Part::ALL.iter().filter(|part| part.is_read_for(self.reads)) {
            match part.is_cut(snapshot) {
                Ok(false) => {}
                Ok(true) => cut.push(part.what()),
                Err(why) => return vec![Note::new(Verdict::Warn, format!("{}? {why}", self.what), None)],
            }
        }
        let notes = (self.look)(View { subject, snapshot, parts: self.reads });
        let well = notes.iter().all(|note| note.verdict == Verdict::Ok);
        let unread = format!("not all of these were read: {}", cut.join(", "));
        if well && !cut.is_empty() {
            return vec![info(format!("nothing was found, but {unread}"))];
        }
        if notes.is_empty() {
            return vec![fine(self.what)];
        }
        let judge = |note: Note| match note {
            Note { absent: true, message, fix, .. } if !cut.is_empty() => {
                Note::new(Verdict::Warn, format!("could not look: {unread}; it may be that {message}"), fix)
            }
            note => note,
        };
        notes.into_iter().map(judge).collect()
    }
}

/// Runs every check. Each gives at least one finding.
pub(super) fn judge(subject: &Subject, snapshot: &Snapshot) -> Report {
    let of = |check: &'static Check| {
        let notes = check.notes(subject, snapshot).into_iter();
        notes.map(|Note { verdict, message, fix, .. }| Finding {
            id: check.id,
            what: check.what,
            verdict,
            message,
            fix,
        })
    };
    let installation = &subject.installation;
    let restricted = installation.restricted_to.as_ref().map(|to| format!(", restricted to {to}")).unwrap_or_default();
    Report {
        subject: format!(
            "{} as {} in namespace {}{restricted}, {} certificates",
            installation.operator, installation.release, installation.namespace, installation.certificates
        ),
        requests: snapshot.requests,
        findings: CHECKS.iter().flat_map(of).collect(),
    }
}
