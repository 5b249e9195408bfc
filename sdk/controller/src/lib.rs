//! Controllers for kube: watches, stores, a work queue, and server-side apply of what differs.
//!
//! A [`Controller`] watches the objects of one kind and the children that they own, and calls your reconcile function
//! when one of them changes. It provides:
//!
//! - one watch per kind, listed in pages and reduced to what is read; an object that does not decode is logged and does
//!   not stop the others ([`Watches`], [`Store`]);
//! - a work queue that holds each object once and never reconciles it twice at a time; backoff after failures and
//!   panics; a deadline; [`Controller::concurrency`]. On shutdown no reconcile starts; running ones have 22 seconds
//!   after SIGTERM, or the 5 seconds between a leader's deadline and the end of its Lease where the Lease is lost.
//!   After that they are dropped, at any await point;
//! - the finalizer, added before the first reconcile and removed when the cleanup is done;
//! - the registered validators, evaluated in the controller while webhooks are off (see below);
//! - writes by server-side apply, only where something differs ([`apply`]). In the steady state nothing is written, and
//!   a controller's own write triggers at most one more reconcile. A repair that others undo again and again slows down.
//!
//! ```
//! use std::collections::BTreeMap;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Client;
//! use portcullis_controller::{Action, Controller, ControllerError, Reconcile, Runtime};
//! use tokio_util::sync::CancellationToken;
//! # use kube::CustomResource;
//! # use schemars::JsonSchema;
//! # use serde::{Deserialize, Serialize};
//! # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! # #[kube(group = "demo.example", version = "v1", kind = "Entity", plural = "entities", namespaced, status = "EntityStatus")]
//! # struct EntitySpec { username: String }
//! # #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
//! # struct EntityStatus { greeted: Option<String> }
//!
//! /// The desired child: a function without IO, easily tested.
//! fn greeting(entity: &Entity) -> ConfigMap {
//!     let mut map = ConfigMap::default();
//!     map.metadata.name = entity.metadata.name.clone();
//!     map.data = Some(BTreeMap::from([("greeting".to_owned(), format!("Hello {}!", entity.spec.username))]));
//!     map
//! }
//!
//! async fn reconcile(cx: Reconcile<Entity>) -> Result<Action, ControllerError> {
//!     cx.apply(&greeting(&cx.object)).await?;
//!     cx.apply_status(&EntityStatus { greeted: Some(cx.object.spec.username.clone()) }).await?;
//!     Ok(Action::await_change())
//! }
//!
//! /// Runs until `stop` is cancelled, as the only replica.
//! async fn run(client: Client, stop: CancellationToken) {
//!     let greeter = Controller::new("greeter").owns::<ConfigMap>();
//!     greeter.run(Runtime::new(client, "default", stop), reconcile).await;
//! }
//! ```
//!
//! An operator of `portcullis-operator` takes the same controller and the same function (`Components::controller`), runs
//! them in the leading replica, and generates the RBAC rules that [`Controller::access`] lists.
//!
//! The kind may be namespaced or cluster-scoped, and so may each kind that it [owns](Controller::owns) or
//! [watches](Controller::watches). Cluster-scoped objects are reconciled by the cluster-wide operator; a restricted one
//! may watch them, but does not reconcile them. A [`SharedController`] shares its stores with webhooks or other controllers.
//!
//! # Webhooks off
//!
//! With `--webhooks off`, an operator evaluates its registered validators before every reconcile; the reconcile
//! function does not call them. An object that they deny is not reconciled until its spec is fixed: its condition
//! [`VALID`] is `False` with the reason `ValidationFailed` and the message `Validation failed: …`, and one event says
//! the same. Otherwise it is `True` with `ValidationPassed`. Nothing is written when nothing changed. Objects that are
//! being deleted are not validated, so that their finalizers can be removed. Warnings of validators are logged
//! (`Validation warning`). [`Controller::on_invalid`] reports the denial in other fields of the status.
//!
//! The CRD needs `status.conditions`, a list of type `map` with the key `type`, because two field managers write to it:
//! [`Reconcile::apply_status`] writes the controller's own conditions, and leaves out `Valid` while webhooks are off. When
//! webhooks are on again, that condition is removed. In a list of another type, each of the two managers erases the
//! conditions of the other. Objects of a kind without conditions get the event and the log line only.
//!
//! Rules that need a request are not evaluated; `Webhooks::explain` of `portcullis-webhook` names them. In particular,
//! rules about changes have no old object: enforce immutable fields by CEL in the CRD. And defaults that a mutating
//! webhook would set are missing: let the controller treat those fields as optional.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod apply;
mod backoff;
pub mod cache;
mod changes;
mod children;
mod conditions;
mod controller;
mod error;
mod events;
mod kind_scope;
mod metrics;
mod observed;
mod queue;
mod reconcile;
mod retries;
mod rights;
mod runtime;
mod shared;
mod store;
mod validators;
mod watched;
mod watches;
#[cfg(feature = "webhook")]
mod webhooks;
mod writer;

pub use backoff::Backoff;
pub use children::ChildTrace;
pub use conditions::{ConditionStatus, Conditions, truncate_message};
pub use controller::Controller;
pub use error::ControllerError;
pub use events::{EventType, Events, PlannedEvent};
pub use kind_scope::{KindScope, MayOwn, Watchable};
pub use observed::Observed;
/// The types of [`Runtime::scope`] and [`Runtime::leadership`].
pub use portcullis_lease as scopes;
/// The types of [`Runtime::webhooks`] and [`Controller::rbac`].
pub use portcullis_manifest as manifest;
/// The type of [`Runtime::metrics`].
pub use portcullis_metrics::Metrics;
/// The error of a reconcile, whatever its type.
pub use portcullis_review::BoxError;
pub use queue::{Action, Key, Queue};
pub use reconcile::{Applied, Cleanup, Deletion, Reconcile};
pub use runtime::Runtime;
pub use shared::SharedController;
pub use store::{Change, Store, Stored};
pub use validators::{VALID, Validation, Validators};
pub use watches::{Namespaces, Watches, watcher_config};
pub use writer::Kind;
