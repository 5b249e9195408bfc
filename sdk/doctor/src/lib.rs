//! What is wrong with an installation, by name, and what to do about it.
//!
//! [`observe`] reads what the cluster holds into a [`Snapshot`]: a bounded number of requests, none of which changes
//! anything. [`examine`] judges it: every check of [`CATALOGUE`] gives at least one [`Finding`] with a verdict, a
//! message and, where something is to be done, the command that does it. Nothing is ever repaired from here.
//!
//! | checks | ask |
//! |---|---|
//! | `W1`–`W14` | is the webhook called at all? |
//! | `C1`–`C12` | does somebody answer? |
//! | `X1`–`X15` | do certificate, key and CA bundles fit together? |
//! | `H1`–`H7` | did the Jobs of an installation do their work? |
//! | `V1`–`V4` | who refused a request, and why? |
//! | `T1`–`T5` | what keeps an object from being deleted? |
//! | `L1`–`L7` | does each namespace have exactly one operator? |
//!
//! [`explain`] needs no cluster: it asks the registered validators about a manifest.
//!
//! What the caller may not read is no failure: the checks that needed it say what to grant.
//!
//! ```no_run
//! use portcullis_doctor::{Options, Subject, Verdict, examine, observe};
//!
//! # async fn look(client: kube::Client, provider: std::sync::Arc<rustls::crypto::CryptoProvider>, subject: Subject) {
//! let snapshot = observe(client, provider.clone(), &subject, &Options::default()).await;
//! let report = examine(&subject, &snapshot, &provider);
//! for finding in report.findings.iter().filter(|finding| finding.verdict == Verdict::Fail) {
//!     println!("{}: {}\n  {}", finding.id, finding.message, finding.fix.as_deref().unwrap_or_default());
//! }
//! # }
//! ```

mod checks;
mod configuration;
mod explain;
mod lookups;
mod observe;
mod report;
mod rules;
mod snapshot;
mod subject;
mod trust;

pub use checks::{CATALOGUE, examine};
pub use configuration::{Configuration, Entry};
pub use explain::explain;
pub use observe::{Options, observe};
pub use report::{Finding, Report, Verdict};
pub use snapshot::{
    Answer, Bound, Calls, Identity, Issuance, Listed, Listener, Log, Look, Probe, Reached, Right, Served, Snapshot,
    Stored,
};
pub use subject::{Kind, Subject};

#[cfg(test)]
mod tests;
