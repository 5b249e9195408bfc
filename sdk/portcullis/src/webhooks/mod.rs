//! Typed admission webhooks.
//!
//! A webhook is registered once, with its handlers. From that one value come the routes of the server
//! ([`Webhooks::routes`]) and the entries of the webhook configurations ([`Webhooks::manifests`]), so that the two
//! cannot drift.
//!
//! ```
//! use std::sync::Arc;
//! use portcullis::webhooks::{Context, Mutate, Mutation, Operation, Validate, Verdict, Webhooks};
//! use k8s_openapi::api::core::v1::ConfigMap;
//!
//! let webhooks = Webhooks::new()
//!     .validate(
//!         Validate::<ConfigMap>::named("not-empty")
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
//!     .mutate(Mutate::<ConfigMap>::named("labels").on_create(|mut new: ConfigMap, cx: Context| async move {
//!         new.metadata.labels.get_or_insert_default().insert("made-by".into(), cx.user.username);
//!         Mutation::modified(new)
//!     }));
//!
//! assert_eq!(webhooks.routes()?.paths(), ["/mutate/labels", "/validate/not-empty"]);
//! let manifests = webhooks.manifests()?;
//! assert_eq!(manifests[0].name, "not-empty.configmaps.core");
//! assert_eq!(manifests[0].rules[0].operations, [Operation::Create, Operation::Delete]);
//! # Ok::<(), portcullis::webhooks::RegistrationError>(())
//! ```
//!
//! | to … | use |
//! |---|---|
//! | judge or edit objects of a kind that has a type | [`Validate::named`], [`Mutate::named`] |
//! | … what is sent to `/status`, `/scale` (a [`Scale`]) or another subresource | [`Validate::subresource_of`], [`Mutate::subresource_of`] |
//! | … connections such as `kubectl exec` | [`Validate::on_connect`] on the subresource |
//! | … kinds without a type, one or many | [`Validate::dynamic`], [`Mutate::dynamic`] with a [`Target`] |
//! | name the fields that are wrong | [`Field`], [`Verdict::of`] |
//! | have the API server itself refuse what an expression can tell | [`Validate::cel`] |
//! | ask the same rules without the API server | [`Webhooks::explain`] |
//! | know user, operation, options, dry run | [`Context`] |
//! | change something outside, but never in a dry run | [`Validate::side_effects`], [`Context::permit`] |
//! | give handlers a client, a store, settings | [`Validate::state`], [`Mutate::state`] |
//! | fail with `?` | a handler that returns a `Result`; see [`Validate`] |
//! | choose what a failure means | [`Validate::failure_policy`], [`Validate::deny_on_failure`] |
//! | look at other objects | [`Validate::reads`], [`Mutate::reads`] a [`Cache`](crate::cache::Cache) |
//! | warn of changes that CEL rules refuse | [`immutable_fields`] |
//! | keep writers of one version from changing what only another one has | [`immutable_stash`] |
//!
//! Handlers get objects without `metadata.managedFields` unless they ask ([`Validate::with_managed_fields`]). What a
//! handler edits is carried over to the object as the API server has it, so that members which its type does not know
//! stay; see [`Mutate`].

mod admit;
mod context;
mod decision_log;
mod handler;
mod immutable;
mod manifest;
mod mutate;
mod offline;
mod review_call;
mod settings;
mod stash;
mod target;
mod validate;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use portcullis_manifest::{CelRule, MAX_MATCH_CONDITIONS, Overrides, Rule, Webhook};
use portcullis_review::ADMISSION_LIMIT;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use crate::routes::Routes;
pub use admit::{AdmissionObject, KnownScope};
pub use context::{Context, Permit};
pub use handler::Method;
pub use immutable::immutable_fields;
/// What is sent to the `scale` subresource of any kind (`autoscaling/v1`).
pub use k8s_openapi::api::autoscaling::v1::Scale;
pub use mutate::{Mutate, Mutation};
pub use offline::Judgement;
pub use portcullis_manifest::{FailurePolicy, MatchPolicy, Reinvocation, Scope};
pub use portcullis_review::{
    BoxError, Cause, DecodeError, Denial, Field, GroupVersionKind, GroupVersionResource, IntoResult, Operation,
    UserInfo, Verdict,
};
pub use stash::immutable_stash;
pub use target::Target;
pub use validate::Validate;

use crate::cache::AnyCache;
use crate::conversion::Registered;
use crate::memory::Memory;
use crate::metrics::{MetricNameError, Metrics};
use crate::names::{is_label, is_subdomain};
use crate::routes::{Budget, Endpoint};
use crate::scopes;
use admit::Admit;
use review_call::ReviewCalls;

/// Webhooks that cannot be served or registered together. Mend the registration.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// Kubernetes would refuse the configuration.
    #[error("webhook name {0:?} is not a DNS label: use lower-case letters, digits and '-'")]
    Name(String),
    /// Kubernetes would refuse the configuration.
    #[error("full name {0:?} of a webhook is not a DNS subdomain of three labels at least, as in check.shop.example")]
    BadFullName(String),
    /// Only one of them could be called.
    #[error("two webhooks are served at {0}: give one of them another name or path")]
    Path(String),
    /// A path that cannot be called.
    #[error(
        "path {path:?} of webhook {name} must begin with '/' and have parts of lower-case letters, digits, '-' and '.'"
    )]
    BadPath {
        /// The webhook.
        name: String,
        /// The path it asked for.
        path: String,
    },
    /// Kubernetes refuses it.
    #[error("timeout of webhook {0} must be 1 to 30 whole seconds")]
    Timeout(String),
    /// It would never be called.
    #[error("webhook {0} has no handler: add on_create, on_update, on_delete or on_connect")]
    NoHandler(String),
    /// Kubernetes wants the names in a configuration to be different.
    #[error("two webhooks are registered as {0}: give one of them another name")]
    FullName(String),
    /// It would never be called.
    #[error("webhook {0} is for no resource: name groups, versions and resources, or '*'")]
    NoResource(String),
    /// It would answer nothing.
    #[error("webhook {0} admits no request at a time: set its concurrency to 1 at least")]
    Concurrency(String),
    /// Kubernetes refuses it.
    #[error("webhook {name} has {given} match conditions: {most} is the most, beside those that the generator adds")]
    MatchConditions {
        /// The webhook.
        name: String,
        /// How many it has.
        given: usize,
        /// How many it may have.
        most: usize,
    },
    /// They would judge nothing.
    #[error("CEL rules of webhook {0} judge objects that are created or updated: add on_create or on_update")]
    CelWithoutObject(String),
    /// Kubernetes refuses it.
    #[error("a CEL rule of webhook {0} needs an expression, and a message of one line")]
    CelRule(String),
    /// It would never warn.
    #[error(
        "webhook {name} has nothing to warn of: no field of {plural} has a rule `self == oldSelf`; add one or leave it out"
    )]
    NothingImmutable {
        /// The webhook.
        name: String,
        /// The CRD's plural name.
        plural: String,
    },
    /// Only one of them would run.
    #[error("two controllers are named {0}: give one of them another name")]
    ControllerName(String),
    /// It could not be served at `/metrics`.
    #[error(transparent)]
    Metric(#[from] MetricNameError),
    /// Its ServiceAccount could not have a name.
    #[error(
        "controller {controller:?} cannot have a ServiceAccount {account:?}: name it with lower-case letters, digits and \
         '-', so short that both have 63 at most; or use a shorter --release, or --use-service-account-credentials=false"
    )]
    ControllerAccount {
        /// Name of the controller.
        controller: String,
        /// Name of its account: the release's and the controller's.
        account: String,
    },
    /// Another installation in the namespace could have the same ServiceAccount, with other rights.
    #[error(
        "release {release:?} has an account {account:?}, as controller {controller:?} of a release {other:?} has; give \
         another --release"
    )]
    Release {
        /// The release.
        release: String,
        /// The account that it has in common with the other one.
        account: String,
        /// Whose account that is in the other one.
        controller: String,
        /// The other release: the part of the name before a `-`.
        other: String,
    },
    /// Objects could not be converted between all versions of the kind.
    #[error("conversion of {kind}: {source}")]
    Conversion {
        /// The kind.
        kind: String,
        /// What is wrong with its versions.
        #[source]
        source: Arc<crate::conversion::GraphError>,
    },
    /// Nobody would call the conversion, and nobody could tell which versions there are.
    #[error("{kind} of group {group} has a conversion, but the operator brings no such CRD: add it to Operator::crds")]
    NoCrd {
        /// API group.
        group: String,
        /// The kind.
        kind: String,
    },
}

/// The webhooks of an operator. Cheap to clone.
#[derive(Clone, Default)]
#[must_use = "webhooks do nothing until they are served and registered"]
pub struct Webhooks {
    registered: Vec<Arc<dyn Admit>>,
    pub(crate) conversions: Vec<Registered>,
    /// What the installation says of all of them.
    overrides: Overrides,
    memory_limit: Option<usize>,
}

impl Webhooks {
    /// No webhooks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a validating webhook.
    pub fn validate<T, S>(mut self, webhook: Validate<T, S>) -> Self
    where
        T: DeserializeOwned + Send + Sync + 'static,
        S: Send + Sync + 'static,
    {
        self.registered.push(Arc::new(webhook));
        self
    }

    /// Adds a mutating webhook.
    pub fn mutate<T, S>(mut self, webhook: Mutate<T, S>) -> Self
    where
        T: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
        S: Send + Sync + 'static,
    {
        self.registered.push(Arc::new(webhook));
        self
    }

    /// The caches that handlers read, each once.
    pub(crate) fn caches(&self) -> Vec<Arc<dyn AnyCache>> {
        let mut caches: Vec<Arc<dyn AnyCache>> = Vec::new();
        for cache in self.registered.iter().flat_map(|webhook| &webhook.settings().caches) {
            if !caches.iter().any(|known| Arc::ptr_eq(known, cache)) {
                caches.push(cache.clone());
            }
        }
        caches
    }

    /// The same, asked [without the API server](Self::explain) under the settings of an installation.
    pub(crate) fn overridden(mut self, overrides: &Overrides) -> Self {
        self.overrides = overrides.clone();
        self
    }

    /// Bytes that the process may take, as its container is limited to. Reviews under way then take half of it at most,
    /// and what there is no room for is answered with 429, or 413 where it could never be. The more reviews a process
    /// is to answer at the same time, and the larger lists are, the more it needs.
    ///
    /// An operator's `run` says it ([`--memory-limit`](crate::operator), or the limit of its cgroup).
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.registered.is_empty() && self.conversions.is_empty()
    }

    /// The entries of the webhook configurations, in the order of registration.
    ///
    /// # Errors
    /// When they could not be registered or served as they are.
    pub fn manifests(&self) -> Result<Vec<Webhook>, RegistrationError> {
        let (mut paths, mut names) = (BTreeSet::new(), BTreeSet::new());
        self.registered
            .iter()
            .map(|webhook| {
                let manifest = webhook.manifest();
                check(webhook.settings(), &manifest)?;
                if !paths.insert(manifest.path.clone()) {
                    return Err(RegistrationError::Path(manifest.path));
                }
                if !names.insert((manifest.kind, manifest.name.clone())) {
                    return Err(RegistrationError::FullName(manifest.name));
                }
                Ok(manifest)
            })
            .collect()
    }

    /// The webhooks behind HTTP.
    ///
    /// # Errors
    /// When they could not be registered or served as they are.
    pub fn routes(&self) -> Result<Routes, RegistrationError> {
        self.routes_in(&scopes::Scope::everything())
    }

    /// The same for an operator that has others beside it: reviews of namespaces that another owns are allowed
    /// unchecked, and their objects left untouched.
    ///
    /// # Errors
    /// When they could not be registered or served as they are.
    pub fn routes_in(&self, scope: &scopes::Scope) -> Result<Routes, RegistrationError> {
        let (metrics, memory) = (Metrics::new(), Memory::of(self.memory_limit));
        // One review fits at any time.
        let budget = Budget::of(memory.admission.max(ADMISSION_LIMIT));
        let paths = self.manifests()?.into_iter().map(|manifest| manifest.path);
        let endpoints = paths.zip(&self.registered).map(|(path, webhook)| {
            let calls = ReviewCalls::new(Arc::clone(webhook), metrics.admission(&path), budget.clone(), scope.clone());
            (path, Arc::new(calls) as Arc<dyn Endpoint>)
        });
        let conversions = self.conversion_endpoints(&metrics, memory)?;
        Ok(Routes::new(endpoints.chain(conversions), metrics.clone()))
    }
}

fn check(settings: &settings::Settings, manifest: &Webhook) -> Result<(), RegistrationError> {
    let name = &settings.name;
    if !is_label(name) {
        return Err(RegistrationError::Name(name.clone()));
    }
    // To the API server (`IsFullyQualifiedName`) a name is one from three labels on.
    let refused = |name: &&String| !is_subdomain(name) || name.split('.').count() < 3;
    if let Some(full_name) = settings.full_name.as_ref().filter(refused) {
        return Err(RegistrationError::BadFullName(full_name.clone()));
    }
    check_path(name, &manifest.path)?;
    if settings.timeout.subsec_nanos() != 0 || !(1..=30).contains(&settings.timeout.as_secs()) {
        return Err(RegistrationError::Timeout(name.clone()));
    }
    if manifest.rules.iter().all(|rule| rule.operations.is_empty()) {
        return Err(RegistrationError::NoHandler(name.clone()));
    }
    // A resource without a name, or with a '/' and no subresource behind it, is none.
    let is_none = |resource: &String| resource.split('/').any(str::is_empty);
    let none = |r: &Rule| r.groups.is_empty() || r.versions.is_empty() || r.resources.is_empty();
    if manifest.rules.iter().any(|rule| none(rule) || rule.resources.iter().any(is_none)) {
        return Err(RegistrationError::NoResource(name.clone()));
    }
    if settings.concurrency == 0 {
        return Err(RegistrationError::Concurrency(name.clone()));
    }
    let (given, most) = (manifest.match_conditions.len(), MAX_MATCH_CONDITIONS - manifest.exemptions().len());
    if given > most {
        return Err(RegistrationError::MatchConditions { name: name.clone(), given, most });
    }
    if !manifest.cel_rules.is_empty() && !manifest.has_use_for_cel_rules() {
        return Err(RegistrationError::CelWithoutObject(name.clone()));
    }
    let one_line = |text: &str| !text.trim().is_empty() && !text.contains(['\n', '\r']);
    let taken = |rule: &CelRule| !rule.expression.trim().is_empty() && one_line(&rule.message);
    if !manifest.cel_rules.iter().all(taken) {
        return Err(RegistrationError::CelRule(name.clone()));
    }
    Ok(())
}

/// Whether the API server takes the path: its parts are names as domains have them (`ValidateWebhookService`).
pub(crate) fn check_path(name: &str, path: &str) -> Result<(), RegistrationError> {
    let parts = path.strip_prefix('/').map(|parts| parts.strip_suffix('/').unwrap_or(parts));
    if parts.is_some_and(|parts| path == "/" || parts.split('/').all(is_subdomain)) {
        return Ok(());
    }
    Err(RegistrationError::BadPath { name: name.to_owned(), path: path.to_owned() })
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.registered.iter().map(|webhook| webhook.settings());
        f.debug_list().entries(settings).entries(&self.conversions).finish()
    }
}
