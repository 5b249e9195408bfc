//! Typed admission and conversion webhooks, as a tower service or behind an HTTPS server.
//!
//! A webhook is registered once, with its handlers. From that one value come the routes of the server
//! ([`Webhooks::routes`]) and the entries of the webhook configurations ([`Webhooks::manifests`]), so that the two
//! cannot drift.
//!
//! ```
//! use std::sync::Arc;
//! use portcullis_webhook::{Context, Mutate, Mutation, Operation, Validate, Verdict, Webhooks};
//! use k8s_openapi::api::core::v1::ConfigMap;
//!
//! let webhooks = Webhooks::new()
//!     .validate(
//!         Validate::<ConfigMap>::new("not-empty")
//!             .on_create(|new: Arc<ConfigMap>, _: Context| async move {
//!                 match &new.data {
//!                     Some(_) => Verdict::allow(),
//!                     None => Verdict::deny("data is empty").code(422).cause("data", "must have an entry"),
//!                 }
//!             })
//!             .on_delete(|old: Arc<ConfigMap>, cx: Context| async move {
//!                 if old.immutable == Some(true) && !cx.user.groups.iter().any(|group| group == "admins") {
//!                     return Verdict::deny("immutable ConfigMaps are for admins to delete").code(403);
//!                 }
//!                 Verdict::allow()
//!             }),
//!     )
//!     .mutate(Mutate::<ConfigMap>::new("labels").on_create(|mut new: ConfigMap, cx: Context| async move {
//!         new.metadata.labels.get_or_insert_default().insert("made-by".into(), cx.user.username);
//!         Mutation::modified(new)
//!     }));
//!
//! assert_eq!(webhooks.routes()?.paths(), ["/mutate/labels", "/validate/not-empty"]);
//! let manifests = webhooks.manifests()?;
//! assert_eq!(manifests[0].name, "not-empty.configmaps.core");
//! assert_eq!(manifests[0].rules[0].operations, [Operation::Create, Operation::Delete]);
//! # Ok::<(), portcullis_webhook::RegistrationError>(())
//! ```
//!
//! | to … | use |
//! |---|---|
//! | serve a kind in several versions | [`conversion`] |
//! | serve HTTPS in a process of your own | [`server`], [`Routes`] |
//! | validate or mutate objects of a kind that has a type | [`Validate::new`], [`Mutate::new`] |
//! | … what is sent to `/status`, `/scale` (a [`Scale`]) or another subresource | [`Validate::subresource_of`], [`Mutate::subresource_of`] |
//! | … connections such as `kubectl exec` | [`Validate::on_connect`] on the subresource |
//! | … kinds without a type, one or many | [`Validate::dynamic`], [`Mutate::dynamic`] with a [`Target`] |
//! | name the fields that are wrong | [`Field`], [`Verdict::from_causes`] |
//! | let the API server evaluate a rule in CEL by itself | [`Validate::cel`] |
//! | evaluate the same rules without the API server | [`Webhooks::explain`] |
//! | read user, operation, options, dry run | [`Context`] |
//! | have side effects, but never in a dry run | [`Validate::side_effects`], [`Context::permit`] |
//! | share a client, a store or settings with handlers | [`Validator`], [`Mutator`] |
//! | return errors with `?` | a handler that returns a `Result`; see [`Validate`] |
//! | choose what happens when a handler fails | [`Validate::failure_policy`], [`Validate::deny_on_failure`] |
//! | read other objects | [`Validate::with_source`], [`Mutate::with_source`] with a `Cache` of `portcullis-controller` |
//!
//! Handlers get objects without `metadata.managedFields` unless they ask ([`Validate::with_managed_fields`]). A
//! handler's edits are applied to the object as the API server sent it, so that fields unknown to its type are kept;
//! see [`Mutate`].

mod admit;
mod context;
pub mod conversion;
mod decision;
mod decision_log;
mod handler;
mod memory;
mod metrics;
mod mutate;
mod mutation;
mod offline;
mod old;
mod rejected;
mod review_call;
mod routes;
mod settings;
mod target;
mod validate;
mod validator;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use portcullis_manifest::{Overrides, Webhook};
use portcullis_review::ADMISSION_LIMIT;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use crate::routes::Routes;
pub use context::{Context, Permit};
/// The object of the `scale` subresource of any kind (`autoscaling/v1`).
pub use k8s_openapi::api::autoscaling::v1::Scale;
/// The type of [`Context::kind`].
pub use kube_core::GroupVersionKind;
pub use mutate::Mutate;
pub use mutation::Mutation;
pub use offline::Evaluation;
pub use old::{OldObject, OldObjectError};
/// The HTTPS server, which serves [`Routes`] in a process of your own.
pub use portcullis_listener as server;
/// The types of [`Webhooks::manifests`] and [`Webhooks::with_overrides`].
pub use portcullis_manifest as manifest;
pub use portcullis_manifest::{FailurePolicy, KnownScope, MatchPolicy, ReinvocationPolicy, ScopeType, Source};
pub use portcullis_metrics::{MetricNameError, Metrics};
pub use portcullis_review::{
    BoxError, Cause, DecodeError, Denial, Field, GroupVersionResource, IntoResult, Operation, UserInfo, Verdict,
};
pub use settings::RegistrationError;
pub use target::{AdmissionObject, Target};
pub use validate::Validate;
pub use validator::{Mutator, Validator};

use crate::conversion::Registered;
use crate::memory::Memory;
use crate::metrics::AdmissionMetrics;
use crate::routes::{Budget, Endpoint};
use admit::Admit;
use review_call::{ReviewCalls, Skip};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The webhooks of an operator. Cheap to clone.
#[derive(Clone, Default)]
#[must_use = "webhooks do nothing until they are served and registered"]
pub struct Webhooks {
    registered: Vec<Arc<dyn Admit>>,
    pub(crate) conversions: Vec<Registered>,
    /// Settings of the installation, for all webhooks.
    overrides: Overrides,
    memory_limit: Option<usize>,
}

impl Webhooks {
    /// Creates an empty registration.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a validating webhook.
    pub fn validate<T: DeserializeOwned + Send + Sync + 'static>(mut self, webhook: Validate<T>) -> Self {
        self.registered.push(Arc::new(webhook));
        self
    }

    /// Adds a mutating webhook.
    pub fn mutate<T>(mut self, webhook: Mutate<T>) -> Self
    where
        T: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        self.registered.push(Arc::new(webhook));
        self
    }

    /// Adds all webhooks and conversions of `other`. Overrides and the memory limit of `self` stay; without a limit of
    /// its own it takes that of `other`. Overrides of `other` are dropped.
    pub fn merge(mut self, other: Self) -> Self {
        self.registered.extend(other.registered);
        self.conversions.extend(other.conversions);
        self.memory_limit = self.memory_limit.or(other.memory_limit);
        self
    }

    /// Returns the sources that handlers read besides requests, without duplicates.
    pub fn sources(&self) -> Vec<Arc<dyn Source>> {
        let mut sources: Vec<Arc<dyn Source>> = Vec::new();
        for source in self.registered.iter().flat_map(|webhook| &webhook.settings().sources) {
            if !sources.iter().any(|known| Arc::ptr_eq(known, source)) {
                sources.push(source.clone());
            }
        }
        sources
    }

    /// Applies the settings of an installation to evaluations [without the API server](Self::explain).
    pub fn with_overrides(mut self, overrides: &Overrides) -> Self {
        self.overrides = overrides.clone();
        self
    }

    /// Sets the memory limit of the process in bytes, as of its container. Reviews in flight take at most half of it;
    /// further ones are answered with 429, or with 413 when they could never fit. More concurrent reviews and larger
    /// lists need a higher limit.
    ///
    /// The `run` command of `portcullis-operator` sets it to `--memory-limit`, or to the limit of its cgroup.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Returns whether no webhook and no conversion is registered.
    pub fn is_empty(&self) -> bool {
        self.registered.is_empty() && self.conversions.is_empty()
    }

    /// Returns the entries of the webhook configurations, in the order of registration.
    ///
    /// # Errors
    /// When the registration is not valid.
    pub fn manifests(&self) -> Result<Vec<Webhook>, RegistrationError> {
        let (mut paths, mut names) = (BTreeSet::new(), BTreeSet::new());
        self.registered
            .iter()
            .map(|webhook| {
                let settings = webhook.settings();
                settings.check()?;
                let manifest = settings.entry.clone();
                if !paths.insert(manifest.path.clone()) {
                    return Err(RegistrationError::DuplicatePath(manifest.path));
                }
                if !names.insert((manifest.kind, manifest.name.clone())) {
                    return Err(RegistrationError::DuplicateName(manifest.name));
                }
                Ok(manifest)
            })
            .collect()
    }

    /// Builds the HTTP routes that serve the webhooks.
    ///
    /// # Errors
    /// When the registration is not valid.
    pub fn routes(&self) -> Result<Routes, RegistrationError> {
        self.routes_with_skip(|_| None)
    }

    /// Builds the [`routes`](Self::routes) of an operator that skips namespaces of other operators. Where `skip`
    /// returns a reason for a namespace (empty for objects without one), reviews are allowed without calling a handler,
    /// and objects are not mutated. `Scope::skip_reason` of `portcullis-lease` is such a function.
    ///
    /// # Errors
    /// When the registration is not valid.
    pub fn routes_with_skip(
        &self,
        skip: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Routes, RegistrationError> {
        let skip: Arc<Skip> = Arc::new(skip);
        let (metrics, memory) = (Metrics::new(), Memory::of(self.memory_limit));
        // One review fits at any time.
        let budget = Budget::of(memory.admission.max(ADMISSION_LIMIT));
        let paths = self.manifests()?.into_iter().map(|manifest| manifest.path);
        let endpoints = paths.zip(&self.registered).map(|(path, webhook)| {
            let calls = ReviewCalls::new(
                Arc::clone(webhook),
                AdmissionMetrics::new(&metrics, &path),
                budget.clone(),
                skip.clone(),
            );
            (path, Arc::new(calls) as Arc<dyn Endpoint>)
        });
        let conversions = self.conversion_endpoints(&metrics, memory)?;
        Ok(Routes::new(endpoints.chain(conversions), metrics.clone()))
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.registered.iter().map(|webhook| webhook.settings());
        f.debug_list().entries(settings).entries(&self.conversions).finish()
    }
}
