//! An [`Operator`] as one value, to [embed](Operator::embed) in a process of your own; and with the feature `cli` the
//! command line of its binary.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use portcullis::operator::{Operator, Components};
//! use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
//!
//! #[derive(clap::Args)]
//! struct Args {
//!     /// Refuse ConfigMaps with more entries than this.
//!     #[arg(long, default_value_t = 10)]
//!     max_entries: usize,
//! }
//!
//! fn main() -> ExitCode {
//!     Operator::new("small-maps")
//!         .setup(|args: &Args| {
//!             let max = args.max_entries;
//!             let check = move |new: Arc<ConfigMap>, _: Context| async move {
//!                 match new.data.as_ref().map_or(0, |data| data.len()) {
//!                     n if n > max => Verdict::deny(format!("{n} entries, {max} are allowed")).cause("data", "too many entries"),
//!                     _ => Verdict::allow(),
//!                 }
//!             };
//!             Ok(Components::new(Webhooks::new().validate(Validate::<ConfigMap>::new("small").on_create_or_update(check))))
//!         })
//!         .main()
//! }
//! ```
//!
//! The binary then has these subcommands:
//!
//! - `generate crds|webhooks|policies|rbac|operator|certificates` writes manifests from the same value that is served,
//!   with exactly the rights that the operator needs; `operator` is a whole installation. `--out DIR` writes files,
//!   `--check` names the files that differ.
//! - `certs ensure|publish|rotate|show` manages the webhooks' certificates from outside of a replica
//!   ([`certificates`](portcullis_certificates)).
//! - `doctor` (feature `doctor`) reports what keeps an installation from working, each finding with the command that
//!   fixes it (crate `portcullis-doctor`); `doctor explain -f FILE` names the webhook rules that a manifest breaks,
//!   without a cluster.
//! - `migrate-storage` (feature `migrate`) rewrites every stored object in the storage version of its CRD, then drops
//!   the versions that store nothing any more from `status.storedVersions`, so that they can be removed from the CRD.
//! - `dev` (feature `dev`) serves the admission webhooks of any cluster from this machine, with a throw-away
//!   certificate: it creates webhook configurations that call a URL. It first asks the API server which name or address
//!   of this machine it can reach, or takes the `--public-url` of a tunnel. Everything that it creates is labelled with
//!   its owner and its expiry, removed when the process ends, and swept by the next session after a kill (crate
//!   `portcullis-dev`).
//! - `run` serves the webhooks on `--bind`, `/healthz`, `/readyz` and `/metrics` on `--health-bind`, and runs the
//!   controllers. It is ready once its CA is in the webhook configurations and
//!   CRDs and a TLS handshake with itself succeeds under it; until then `/readyz` says what is missing. The controllers
//!   run in the leading replica ([`scopes`](portcullis_lease)); one that fails ends the process with its error. After
//!   SIGTERM, controllers end at once, webhooks are served for `--drain-delay` more while callers learn of it, and the
//!   calls in flight are answered. A second signal ends the process at once, as an error. Where objects are converted,
//!   the controllers start when the API server can call the conversion, or after half a minute.
//!
//! # Without a command line
//!
//! [`Operator::embed`] runs an operator inside of an application. The features `dev`, `doctor` and `migrate` bring `cli`;
//! without these four the crate does not depend on clap.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod background;
mod caches;
mod certificate_source;
#[cfg(feature = "cli")]
mod cli;
mod components;
mod controllers;
mod convertible;
mod embed;
mod endpoint;
mod error;
mod health;
mod installation;
mod leases;
mod operator;
mod options;
mod prompt;
mod shutdown;
mod storage;
mod tasks;

pub use components::{Components, TaskResult};
pub use embed::{EmbeddedOperator, Readiness};
pub use error::{ComponentsError, RunError};
pub use installation::{InstallationError, SetupContext};
pub use operator::Operator;
pub use options::EmbedOptions;
/// The error of [`Operator::setup`] and of tasks, whatever its type.
pub use portcullis_controller::BoxError;
/// The environment of a controller or task: client, scope, leadership, and the token that stops it.
pub use portcullis_controller::Runtime;
pub use portcullis_manifest::{Installation, Switch};

#[cfg(test)]
mod tests;
