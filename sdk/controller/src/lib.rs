//! Controllers: observe, plan, apply.
//!
//! A [`Controller`] watches the objects of one kind and what they own, and calls its reconcile whenever one of them
//! changed. What is around that is the kit's:
//!
//! - one watch per kind, listed in pages and reduced to what is read; an object that does not decode is logged and stops
//!   nothing ([`Watches`], [`Store`]);
//! - a queue in which an object is once, and never worked on twice at a time; backoff after failures and panics; a
//!   deadline; as many at once as [`Controller::concurrency`] says; on shutdown no new ones. Those under way may finish
//!   as long as an operator's process waits: 22 seconds after SIGTERM, and for the time between a leader's deadline and
//!   the end of its Lease (5 seconds) where the Lease is lost. What is not done by then is dropped, at any await point;
//! - the finalizer, put on before anything else and taken off when the cleanup is done;
//! - the registered validators, asked in the controller while webhooks are off (below);
//! - writes by server-side apply, and only where something differs ([`apply`]). A steady state costs no write, and our
//!   own writes wake nobody, whether the watch brings them before their answers or after.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::process::ExitCode;
//! use portcullis_controller::{Controller, ControllerError, Action, Reconcile};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use portcullis::operator::{NoArgs, Operator, Components};
//! use portcullis_webhook::Webhooks;
//! # use kube::{CustomResource, CustomResourceExt as _};
//! # use schemars::JsonSchema;
//! # use serde::{Deserialize, Serialize};
//! # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! # #[kube(group = "demo.example", version = "v1", kind = "Entity", plural = "entities", namespaced, status = "EntityStatus")]
//! # struct EntitySpec { username: String }
//! # #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
//! # struct EntityStatus { greeted: Option<String> }
//!
//! /// What should be, from what is: a function without IO, easily tested.
//! fn greeting(entity: &Entity) -> ConfigMap {
//!     let mut map = ConfigMap::default();
//!     map.metadata.name = entity.metadata.name.clone();
//!     map.data = Some(BTreeMap::from([("greeting".to_owned(), format!("Hello {}!", entity.spec.username))]));
//!     map
//! }
//!
//! async fn reconcile(cx: Reconcile<Entity>) -> Result<Action, ControllerError> {
//!     cx.apply(&greeting(&cx.object)).await?;
//!     cx.status(&EntityStatus { greeted: Some(cx.object.spec.username.clone()) }).await?;
//!     Ok(Action::await_change())
//! }
//!
//! fn main() -> ExitCode {
//!     # if std::env::args().count() < 2 { return ExitCode::SUCCESS }
//!     Operator::named("greeter")
//!         .crds(vec![Entity::crd()])
//!         .setup(|_: &NoArgs| {
//!             let greeter = Controller::named("greeter").owns::<ConfigMap>();
//!             Ok(Components::new(Webhooks::new()).controller(greeter, reconcile))
//!         })
//!         .main()
//! }
//! ```
//!
//! `generate rbac` then grants what that controller does ([`Controller::access`]), and nothing else.
//!
//! The kind lives in namespaces or in none, and so does each that it [owns](Controller::owns) or
//! [watches](Controller::watches). Objects without a namespace are reconciled by the cluster-wide operator; a restricted
//! one may watch them, and reconciles none. A controller that shares its stores, with webhooks or with other controllers,
//! starts its watches itself with [`Watches::follow`] on the [`Controller::queue`], and runs by [`Controller::follow`] and
//! [`Controller::work`].
//!
//! # Webhooks off
//!
//! An operator that runs with `--webhooks off` asks the validators that it registered itself, before every reconcile:
//! there is nothing to call and nothing to forget. An object that they deny is not reconciled until its spec is mended.
//! Its condition [`VALID`] is `False` with the reason `ValidationFailed` and the message `Validation failed: …`, and one
//! event says the same; otherwise it is `True` with `ValidationPassed`. Nothing is written when nothing changed. Objects
//! that are being deleted are not judged, so that their finalizers go.
//!
//! The CRD needs `status.conditions`, a list of type `map` with the key `type`, for two field managers write to it: the
//! controller's own conditions are in [`Reconcile::status`], and `Valid` is left out there while webhooks are off. When they
//! are on again, the condition is taken back. Objects of a kind without such a list get the event and the log line only.
//!
//! What has no meaning without a request is not asked; [`Webhooks::explain`](portcullis_webhook::Webhooks::explain) names
//! it. Above all, rules about changes have no old object to look at: immutable fields hold while webhooks are on, or by
//! CEL in the CRD. And what a mutating webhook would have filled in is missing: let the controller take it as optional.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod apply;
pub mod cache;
mod changes;
mod children;
mod conditions;
#[expect(clippy::module_inception, reason = "the module is private; its one type is what the folder is about")]
mod controller;
mod error;
mod events;
mod kind_scope;
mod metrics;
mod observed;
mod queue;
mod reconcile;
mod reconciler;
mod retries;
mod rights;
mod runtime;
mod store;
mod validity;
mod watched;
mod watches;
#[cfg(feature = "webhook")]
mod webhooks;
mod writer;
mod writes;

pub use children::ChildTrace;
pub use conditions::{ConditionStatus, Conditions, fitting};
pub use controller::Controller;
pub use error::ControllerError;
pub use events::{EventType, Events, PlannedEvent};
pub use kind_scope::{KindScope, MayOwn};
pub use observed::Observed;
pub use queue::{Action, Backoff, Key, Queue};
pub use reconcile::{Applied, Cleanup, Deletion, Reconcile};
pub use runtime::Runtime;
pub use store::{Change, Store, Stored};
pub use validity::{VALID, Validity};
pub use watched::Watchable;
pub use watches::{Namespaces, Watches, paged};
pub use writer::Kind;
