//! Diagnoses of an operator's installation: the reasons why it does not work, and the commands that fix it.
//!
//! [`examine`] reads the cluster with a bounded number of requests that change nothing, and runs every check of
//! [`CATALOGUE`]. Each gives at least one [`Finding`] with a verdict, a message and, where something is wrong, the command
//! that fixes it. No fix is ever run from here.
//!
//! [`explain`] needs no cluster: it calls the registered validating webhooks for a manifest.
//!
//! Objects that the caller may not read are no failure: the checks that need them name the missing right.
//!
//! ```no_run
//! use portcullis_doctor::{Options, Subject, Verdict, examine};
//!
//! # async fn look(client: kube::Client, provider: std::sync::Arc<rustls::crypto::CryptoProvider>, subject: Subject) {
//! let report = examine(client, &provider, &subject, &Options::default()).await;
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
mod parts;
mod report;
mod rules;
mod snapshot;
mod subject;
mod trust;

use std::sync::Arc;

use kube::Client;
use rustls::crypto::CryptoProvider;

pub use checks::CATALOGUE;
pub use explain::explain;
pub use report::{Finding, Report, Verdict};
pub use subject::{Kind, Options, Subject};

/// Reads the objects that the checks need, and runs every check. Each request has a deadline. There are a few dozen
/// requests, and one for each right that the operator needs (at most 250). The listeners are called with the algorithms
/// of `provider`.
pub async fn examine(client: Client, provider: &Arc<CryptoProvider>, subject: &Subject, options: &Options) -> Report {
    let parts = checks::parts(subject, options);
    let snapshot = Box::pin(observe::observe(client, provider, subject, options, &parts)).await;
    checks::judge(subject, &snapshot)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
