//! Diagnoses of an operator's installation: what is wrong with it, and how to fix it.
//!
//! [`observe`] reads the cluster into a [`Snapshot`], with a bounded number of requests that change nothing.
//! [`examine`] checks it: every check of [`CATALOGUE`] gives at least one [`Finding`] with a verdict, a message and,
//! where something is wrong, the command that fixes it. No fix is ever run from here.
//!
//! | checks | ask |
//! |---|---|
//! | `W1`–`W15` | is the webhook called at all? |
//! | `C1`–`C12` | do the webhooks answer? |
//! | `X1`–`X15` | do certificate, key and CA bundles fit together? |
//! | `H1`–`H7` | did the Jobs succeed, and does the operator have its rights? |
//! | `V1`–`V4` | who refused a request, and why? |
//! | `T1`–`T5` | what keeps an object from being deleted? |
//! | `L1`–`L7` | does each namespace have exactly one operator? |
//!
//! [`explain`] needs no cluster: it calls the registered validating webhooks for a manifest.
//!
//! Objects that the caller may not read are no failure: the checks that need them name the missing right.
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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
