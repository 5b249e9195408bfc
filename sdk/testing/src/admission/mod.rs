//! Admission without a cluster: reviews as the API server sends them, answered by the registered webhooks in this
//! process, and assertions on the answers.
//!
//! ```
//! use std::sync::Arc;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use portcullis_webhook::{Context, Mutate, Mutation, Validate, Verdict, Webhooks};
//! use portcullis_testing::admission::{Reviews, assert_idempotent};
//! use serde_json::json;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let webhooks = Webhooks::new()
//!     .validate(Validate::<ConfigMap>::new("size").on_create_or_update(|new: Arc<ConfigMap>, _: Context| async move {
//!         match &new.data {
//!             Some(_) => Verdict::allow(),
//!             None => Verdict::deny("data is empty").code(422).cause("data", "must have an entry"),
//!         }
//!     }))
//!     .mutate(Mutate::<ConfigMap>::new("owner").on_create_or_update(|mut new: ConfigMap, cx: Context| async move {
//!         new.metadata.labels.get_or_insert_default().insert("owner".into(), cx.user.username);
//!         Mutation::modified(new)
//!     }));
//! let reviews = Reviews::new(&webhooks)?;
//!
//! let empty = ConfigMap::default();
//! reviews.create(&empty).validate("size").await.assert_denied(422, "data is empty").assert_cause("data");
//! reviews.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}})).validate("size").await.assert_allowed();
//!
//! let answer = reviews.create(&empty).user("alice").mutate("owner").await;
//! assert_eq!(answer.patched()["metadata"]["labels"]["owner"], "alice");
//! assert_idempotent(&reviews, "owner", &empty).await;
//! # Ok::<(), portcullis_webhook::RegistrationError>(())
//! # }).unwrap();
//! ```
//!
//! The rest of the API server's work is not done here: match conditions and selectors are not evaluated, and objects
//! are not defaulted, pruned or validated. A request that the webhook's rules do not match fails the test, because the
//! API server would never send it.

mod answer;
mod convert;
mod idempotent;
mod request;
mod target;

use portcullis_manifest::Webhook;
use portcullis_webhook::conversion::Conversion;
use portcullis_webhook::{RegistrationError, Routes, Webhooks};

pub use answer::{Answer, AnswerCause};
pub use idempotent::assert_idempotent;
pub use request::Request;

/// The webhooks of an operator, ready to be called.
#[derive(Debug)]
pub struct Reviews {
    routes: Routes,
    webhooks: Vec<Webhook>,
    conversions: Vec<Conversion>,
}

impl Reviews {
    /// Takes the registered webhooks, with the rules and paths of their manifests and the routes of their server.
    ///
    /// # Errors
    /// When the registration is invalid.
    pub fn new(webhooks: &Webhooks) -> Result<Self, RegistrationError> {
        let (routes, conversions) = (webhooks.routes()?, webhooks.conversions()?);
        Ok(Self { routes, webhooks: webhooks.manifests()?, conversions })
    }
}
