//! Admission and conversion webhooks, certificates, controllers and manifests for operators written with kube.
//!
//! kube gives an operator its client, its watches and its types. This crate adds what a webhook needs before the API
//! server can call it: typed handlers, an HTTPS server that keeps to the API server's rules, certificates that are
//! issued, published and rotated, and manifests that cannot drift from the code; and controllers for the same kinds.
//!
//! It is a facade: each module is a crate of its own (`portcullis-webhook`, `portcullis-controller`, …), chosen by a
//! [feature](#features).
//!
//! | you want to | look at |
//! |---|---|
//! | validate or mutate objects of a kind | [`webhooks`] |
//! | serve a kind in several versions | [`conversion`] |
//! | validate by other objects | [`cache`] |
//! | reconcile objects and what they own | [`controller`] |
//! | ship one binary that runs the operator and generates its manifests | [`operator`] |
//! | run an operator inside a process of your own | [`Operator::embed`](operator::Operator::embed) |
//! | serve webhooks alone there, with certificates of your own | [`Routes`](webhooks::Routes), [`server`] |
//! | add metrics of your own | [`metrics`] |
//! | generate manifests and RBAC | [`manifest`] |
//! | find out what is wrong with an installation | [`doctor`] |
//! | choose where certificates come from, and how they rotate | [`certificates`] |
//! | run an operator in several replicas, or beside others | [`scopes`] |
//! | test it, in the process and against a real API server | the crate `portcullis-testing` |
//!
//! The book in the repository's `docs/` has a tutorial from `cargo new` to a validating, mutating, converting operator
//! in an hour, a how-to for each question, and explanations of admission, conversion, rotation and scopes.
//!
//! # Features
//!
//! Only the chosen features are compiled; `webhook` alone has no client of the API server.
//!
//! | feature | modules | what |
//! |---|---|---|
//! | `webhook` (default) | [`webhooks`], [`conversion`], [`server`] | typed admission and conversion webhooks, and their HTTPS server |
//! | `certificates` | [`certificates`] | certificates of webhooks: automatic, from cert-manager or external; with `webhook` |
//! | `controller` | [`controller`], [`cache`] | controllers, and caches that webhooks read; with `scopes` |
//! | `scopes` | [`scopes`] | leader election, and namespace-restricted operators beside a cluster-wide one |
//! | `embed` | [`operator`] | the whole operator, to run in a process of your own; with `certificates` and `controller` |
//! | `operator` | | one binary with `run`, `generate` and `certs`; with `embed` |
//! | `dev` | | its subcommand `dev`; with `operator` |
//! | `doctor` | [`doctor`] | its subcommand `doctor`, and the checks; with `operator` |
//! | `migrate` | [`migrate`] | its subcommand `migrate-storage`, and the migration as a function; with `operator` |
//! | `full` | | all of these |
//!
//! [`manifest`], [`metrics`], [`k8s_openapi`] and [`prometheus_client`] are always there; YAML
//! (`manifest::to_yaml`) with `operator`, [`kube`] with `certificates` or `scopes`.
//!
//! # A whole operator
//!
//! With the feature `operator`, this binary refuses ConfigMaps that hold passwords. `no-passwords generate webhooks`
//! and `generate rbac` print the manifests to apply; `no-passwords run` issues its certificates, publishes its CA in
//! the webhook configurations, and is ready when the API server can call it. `examples/controller.rs` of
//! `portcullis-operator` adds flags, a kind of its own and a controller; `examples/entity-operator` of the repository
//! has three versions of its kind and their conversion.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use portcullis::operator::Operator;
//! use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
//!
//! async fn no_passwords(new: Arc<ConfigMap>, _: Context) -> Verdict {
//!     if new.data.iter().flatten().any(|(key, _)| key.contains("password")) {
//!         return Verdict::deny("passwords belong in Secrets").code(422).cause("data", "holds a password");
//!     }
//!     Verdict::allow()
//! }
//!
//! fn main() -> ExitCode {
//!     let webhook = Validate::<ConfigMap>::new("no-passwords").on_create_or_update(no_passwords);
//!     Operator::new("no-passwords").webhooks(Webhooks::new().validate(webhook)).main()
//! }
//! ```
//!
//! # Validate, mutate, convert
//!
//! One value registers all webhooks. Routes, manifests, the CRD's conversion stanza and the operator's own rights are
//! made from it.
//!
//! ```
//! use std::sync::Arc;
//! use portcullis::conversion::Convert;
//! use portcullis::webhooks::{Context, Mutate, Mutation, Validate, Verdict, Webhooks};
//! # mod v1 {
//! #     use kube::CustomResource;
//! #     use schemars::JsonSchema;
//! #     use serde::{Deserialize, Serialize};
//! #     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #     #[kube(group = "shop.example", version = "v1", kind = "Order", namespaced)]
//! #     pub struct OrderSpec { pub beer: String }
//! # }
//! # mod v2 {
//! #     use kube::CustomResource;
//! #     use schemars::JsonSchema;
//! #     use serde::{Deserialize, Serialize};
//! #     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #     #[kube(group = "shop.example", version = "v2", kind = "Order", namespaced)]
//! #     pub struct OrderSpec { pub beer: String, pub glasses: Option<u32> }
//! # }
//!
//! async fn sober(new: Arc<v2::Order>, _: Context) -> Verdict {
//!     match new.spec.glasses {
//!         Some(glasses) if glasses > 8 => Verdict::deny("that is too much").code(422).cause("spec.glasses", "8 at most"),
//!         _ => Verdict::allow(),
//!     }
//! }
//!
//! async fn one_glass(mut new: v2::Order, _: Context) -> Mutation<v2::Order> {
//!     new.spec.glasses.get_or_insert(1);
//!     Mutation::modified(new)
//! }
//!
//! // What version 1 cannot express (the glasses) is kept in an annotation and comes back.
//! fn to_v2(old: v1::Order) -> v2::Order {
//!     v2::Order { metadata: old.metadata, spec: v2::OrderSpec { beer: old.spec.beer, glasses: None } }
//! }
//!
//! fn to_v1(new: v2::Order) -> v1::Order {
//!     v1::Order { metadata: new.metadata, spec: v1::OrderSpec { beer: new.spec.beer } }
//! }
//!
//! let webhooks = Webhooks::new()
//!     .validate(Validate::<v2::Order>::new("sober").on_create_or_update(sober))
//!     .mutate(Mutate::<v2::Order>::new("one-glass").on_create_or_update(one_glass))
//!     .convert(Convert::<v2::Order>::hub().spoke::<v1::Order>(to_v2, to_v1));
//! assert_eq!(webhooks.routes()?.paths(), ["/convert/orders", "/mutate/one-glass", "/validate/sober"]);
//! # Ok::<(), portcullis::webhooks::RegistrationError>(())
//! ```
//!
//! # What it leaves to you
//!
//! The library installs no crypto provider, reads no environment and spawns no task that it does not wait for; only
//! [`Operator::main`](operator::Operator::main) does what a binary does. Binaries choose the version of the Kubernetes
//! types, by a feature of the crate `k8s-openapi`. A library that does not depend on that crate takes its types from
//! [`k8s_openapi`] here.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub use k8s_openapi;
#[cfg(any(feature = "certificates", feature = "scopes"))]
pub use kube;
#[cfg(feature = "certificates")]
pub use portcullis_certificates as certificates;
#[cfg(feature = "controller")]
pub use portcullis_controller as controller;
#[cfg(feature = "controller")]
pub use portcullis_controller::cache;
#[cfg(feature = "doctor")]
pub use portcullis_doctor as doctor;
#[cfg(feature = "scopes")]
pub use portcullis_lease as scopes;
/// The HTTPS server of webhooks.
#[cfg(feature = "webhook")]
pub use portcullis_listener as server;
pub use portcullis_manifest as manifest;
pub use portcullis_metrics as metrics;
#[cfg(feature = "migrate")]
pub use portcullis_migrate as migrate;
#[cfg(feature = "embed")]
pub use portcullis_operator as operator;
#[cfg(feature = "webhook")]
pub use portcullis_webhook as webhooks;
#[cfg(feature = "webhook")]
pub use portcullis_webhook::conversion;
pub use prometheus_client;
