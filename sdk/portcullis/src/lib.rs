//! Admission webhooks, certificates and manifests for operators written with kube.
//!
//! kube gives an operator its client, its controllers and its types. This crate gives it the rest of what a webhook
//! needs before the API server will call it: typed handlers, an HTTPS server that keeps to the API server's rules,
//! certificates that make and publish themselves, and manifests that cannot drift from the code.
//!
//! | you want to | look at |
//! |---|---|
//! | refuse or edit objects of a kind | [`webhooks`] |
//! | serve a kind in several versions | [`conversion`] |
//! | ship one binary with `run` and `generate crds\|webhooks\|rbac` | [`operator`] |
//! | serve webhooks in a process of your own | [`server`] |
//! | know where the certificates are kept | [`certificates`] |
//!
//! # A whole operator
//!
//! This binary refuses ConfigMaps that hold passwords. `no-passwords generate webhooks` and `generate rbac` print what
//! to apply; `no-passwords run` makes its certificates, publishes its CA in the webhook configurations, and is ready when
//! the API server can call it. `examples/entity_operator.rs` adds a kind of its own, defaults and a controller.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//! use portcullis::k8s_openapi::api::core::v1::ConfigMap;
//! use portcullis::operator::{NoArgs, Operator, Parts};
//! use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
//!
//! async fn no_passwords(new: Arc<ConfigMap>, _: Context) -> Verdict {
//!     if new.data.iter().flatten().any(|(key, _)| key.contains("password")) {
//!         return Verdict::deny("passwords belong into Secrets").code(422).cause("data", "holds a password");
//!     }
//!     Verdict::allow()
//! }
//!
//! fn main() -> ExitCode {
//!     Operator::named("no-passwords")
//!         .setup(|_: &NoArgs| {
//!             let webhook = Validate::<ConfigMap>::named("no-passwords").on_create(no_passwords);
//!             Ok(Parts::new(Webhooks::new().validate(webhook)))
//!         })
//!         .main()
//! }
//! ```
//!
//! The library installs no crypto provider, reads no environment and spawns nothing that it does not wait for; binaries
//! choose the version of the Kubernetes types (a feature of [`k8s_openapi`]).

pub mod certificates;
pub mod conversion;
pub mod metrics;
pub mod operator;
mod pauses;
mod routes;
pub mod server;
pub mod webhooks;

pub use k8s_openapi;
pub use kube;
/// What the API server is told about webhooks, as values.
pub use portcullis_manifest as manifest;
