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

use portcullis_manifest::{CelRule, MAX_MATCH_CONDITIONS, Overrides, Rule, Webhook};
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
pub use target::{AdmissionObject, Target};
pub use validate::Validate;
pub use validator::{Mutator, Validator};

use crate::conversion::Registered;
use crate::memory::Memory;
use crate::metrics::AdmissionMetrics;
use crate::routes::{Budget, Endpoint};
use admit::Admit;
use portcullis_manifest::names::{is_label, is_subdomain};
use review_call::{ReviewCalls, Skip};
use settings::Settings;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// A registration that cannot be served, or that Kubernetes would refuse. Fix it in the code that registers.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// The name is not a DNS label, which Kubernetes requires.
    #[error("webhook name {0:?} is not a DNS label: use lower-case letters, digits and '-'")]
    InvalidName(String),
    /// The full name is not a DNS subdomain of at least three labels, which Kubernetes requires.
    #[error("full name {0:?} of a webhook is not a DNS subdomain of three labels at least, as in check.shop.example")]
    InvalidFullName(String),
    /// Two webhooks have the same path.
    #[error("two webhooks are served at {0}: give one of them another name or path")]
    DuplicatePath(String),
    /// The API server cannot call this path.
    #[error(
        "path {path:?} of webhook {name} must begin with '/' and have segments of lower-case letters, digits, '-' and '.'"
    )]
    InvalidPath {
        /// The webhook.
        name: String,
        /// The invalid path.
        path: String,
    },
    /// The timeout is outside of what Kubernetes allows.
    #[error("timeout of webhook {0} must be 1 to 30 whole seconds")]
    InvalidTimeout(String),
    /// No operation has a handler, so the webhook would never be called.
    #[error("webhook {0} has no handler: add on_create_or_update, on_delete or on_connect")]
    NoHandler(String),
    /// An operation of the webhook has two handlers.
    #[error("webhook {name} has two handlers for {operation}: keep one (on_create_or_update is for CREATE and UPDATE)")]
    DuplicateHandler {
        /// The webhook.
        name: String,
        /// The operation.
        operation: Operation,
    },
    /// A [`Validator`] or [`Mutator`] does not have the method for one of its operations.
    #[error(
        "OPERATIONS of webhook {name} has {operation}, for which there is no method: write it, or leave {operation} out"
    )]
    NoMethod {
        /// The webhook.
        name: String,
        /// The operation.
        operation: Operation,
    },
    /// A [`Validator`] or [`Mutator`] has a method for an operation that it does not name, which would never be called.
    #[error(
        "OPERATIONS of webhook {name} lacks {operation}, for which there is a method: add {operation}, or remove the method"
    )]
    UnusedMethod {
        /// The webhook.
        name: String,
        /// The operation.
        operation: Operation,
    },
    /// Two webhooks have the same full name; Kubernetes requires unique names within a configuration.
    #[error("two webhooks are registered as {0}: give one of them another name")]
    DuplicateName(String),
    /// The target names no resource, so the webhook would never be called.
    #[error("webhook {0} matches no resource: name groups, versions and resources, or '*'")]
    NoResource(String),
    /// The concurrency is 0, so the webhook could answer no request.
    #[error("concurrency of webhook {0} is 0: set it to 1 or more")]
    InvalidConcurrency(String),
    /// There are more match conditions than Kubernetes allows.
    #[error("webhook {name} has {given} match conditions: at most {most} are allowed beside the generated ones")]
    TooManyMatchConditions {
        /// The webhook.
        name: String,
        /// Number of match conditions that it has.
        given: usize,
        /// Number of match conditions that it may have.
        most: usize,
    },
    /// The webhook has CEL rules, but handles neither CREATE nor UPDATE.
    #[error("CEL rules of webhook {0} validate objects that are created or updated: add on_create_or_update")]
    CelWithoutObject(String),
    /// A CEL rule has no expression, or no message of one line.
    #[error("a CEL rule of webhook {0} needs an expression, and a message of one line")]
    InvalidCelRule(String),
    /// The converters do not cover all versions of the kind.
    #[error("conversion of {kind}: {source}")]
    Conversion {
        /// The kind.
        kind: String,
        /// The problem with its versions.
        #[source]
        source: Arc<conversion::GraphError>,
    },
}

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
                check(settings)?;
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

fn check(settings: &Settings) -> Result<(), RegistrationError> {
    let Settings { name, entry, .. } = settings;
    if !is_label(name) {
        return Err(RegistrationError::InvalidName(name.clone()));
    }
    // The API server (`IsFullyQualifiedName`) requires three labels.
    if settings.has_full_name && (!is_subdomain(&entry.name) || entry.name.split('.').count() < 3) {
        return Err(RegistrationError::InvalidFullName(entry.name.clone()));
    }
    check_path(name, &entry.path)?;
    if let Some(mistake) = &settings.mistake {
        return Err(mistake.clone());
    }
    if entry.rules.iter().all(|rule| rule.operations.is_empty()) {
        return Err(RegistrationError::NoHandler(name.clone()));
    }
    // A resource with an empty name or an empty subresource matches nothing.
    let is_none = |resource: &String| resource.split('/').any(str::is_empty);
    let none = |r: &Rule| r.groups.is_empty() || r.versions.is_empty() || r.resources.is_empty();
    if entry.rules.iter().any(|rule| none(rule) || rule.resources.iter().any(is_none)) {
        return Err(RegistrationError::NoResource(name.clone()));
    }
    if settings.concurrency == 0 {
        return Err(RegistrationError::InvalidConcurrency(name.clone()));
    }
    let (given, most) = (entry.match_conditions.len(), MAX_MATCH_CONDITIONS - entry.exemptions().len());
    if given > most {
        return Err(RegistrationError::TooManyMatchConditions { name: name.clone(), given, most });
    }
    if !entry.cel_rules.is_empty() && !entry.has_use_for_cel_rules() {
        return Err(RegistrationError::CelWithoutObject(name.clone()));
    }
    let one_line = |text: &str| !text.trim().is_empty() && !text.contains(['\n', '\r']);
    let taken = |rule: &CelRule| !rule.expression.trim().is_empty() && one_line(&rule.message);
    if !entry.cel_rules.iter().all(taken) {
        return Err(RegistrationError::InvalidCelRule(name.clone()));
    }
    Ok(())
}

/// Checks that the API server accepts the path: its segments are DNS subdomains (`ValidateWebhookService`).
pub(crate) fn check_path(name: &str, path: &str) -> Result<(), RegistrationError> {
    let parts = path.strip_prefix('/').map(|parts| parts.strip_suffix('/').unwrap_or(parts));
    if parts.is_some_and(|parts| path == "/" || parts.split('/').all(is_subdomain)) {
        return Ok(());
    }
    Err(RegistrationError::InvalidPath { name: name.to_owned(), path: path.to_owned() })
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.registered.iter().map(|webhook| webhook.settings());
        f.debug_list().entries(settings).entries(&self.conversions).finish()
    }
}
