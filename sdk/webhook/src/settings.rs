//! The settings that validating and mutating webhooks share, and the mistakes in them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use portcullis_manifest::names::{is_label, is_subdomain};
use portcullis_manifest::{CelRule, MAX_MATCH_CONDITIONS, Rule, Webhook, WebhookKind};

use crate::target::Subject;
use crate::{Operation, Source};
use portcullis_convert::GraphError;

/// The default limit on concurrent reviews of one webhook.
const CONCURRENCY: usize = 256;

/// The entry of a webhook in its configuration, and the settings of its reviews.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) name: String,
    /// The entry in the configuration.
    pub(super) entry: Webhook,
    /// Whether the entry's name was given, and does not follow from `name`.
    pub(super) has_full_name: bool,
    /// The requests that reach its handlers.
    pub(super) subject: Subject,
    pub(super) concurrency: usize,
    pub(super) managed_fields: bool,
    pub(super) deny_on_failure: bool,
    /// The sources that handlers read.
    pub(super) sources: Vec<Arc<dyn Source>>,
    /// A mistake that no other field shows, such as a second handler. [`check`](Self::check) returns it.
    pub(super) mistake: Option<RegistrationError>,
}

impl Settings {
    pub(super) fn new(kind: WebhookKind, name: String, subject: Subject) -> Self {
        let path = match kind {
            WebhookKind::Validating => format!("/validate/{name}"),
            WebhookKind::Mutating => format!("/mutate/{name}"),
        };
        Self {
            entry: Webhook::new(format!("{name}.{}", subject.domain()), kind, path, vec![subject.rule()]),
            name,
            has_full_name: false,
            subject,
            concurrency: CONCURRENCY,
            managed_fields: false,
            deny_on_failure: false,
            sources: Vec::new(),
            mistake: None,
        }
    }

    /// The sources that are not filled yet: a handler would not see all objects.
    pub(super) fn unfilled(&self) -> impl Iterator<Item = &Arc<dyn Source>> {
        self.sources.iter().filter(|source| !source.is_filled())
    }

    /// The name in the log and in [`Evaluation`](crate::Evaluation)s.
    pub(super) fn shown_name(&self) -> &str {
        if self.has_full_name { &self.entry.name } else { &self.name }
    }

    /// The time that a review may take.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.entry.timeout_seconds.into())
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        match u8::try_from(timeout.as_secs()) {
            Ok(seconds @ 1..=30) if timeout.subsec_nanos() == 0 => self.entry.timeout_seconds = seconds,
            _ => self.note(RegistrationError::InvalidTimeout(self.name.clone())),
        }
    }

    /// Adds an operation that has a handler.
    pub(super) fn add_operation(&mut self, operation: Operation) {
        let mut is_new = true;
        for rule in &mut self.entry.rules {
            match rule.operations.binary_search(&operation) {
                Err(at) => rule.operations.insert(at, operation),
                Ok(_) => is_new = false,
            }
        }
        if !is_new {
            self.note(RegistrationError::DuplicateHandler { name: self.name.clone(), operation });
        }
    }

    /// Keeps the first mistake.
    pub(super) fn note(&mut self, mistake: RegistrationError) {
        self.mistake.get_or_insert(mistake);
    }

    /// The first mistake. Setters return no errors, so that registrations can be chained.
    pub(super) fn check(&self) -> Result<(), RegistrationError> {
        let Self { name, entry, .. } = self;
        if !is_label(name) {
            return Err(RegistrationError::InvalidName(name.clone()));
        }
        // The API server (`IsFullyQualifiedName`) requires three labels.
        if self.has_full_name && (!is_subdomain(&entry.name) || entry.name.split('.').count() < 3) {
            return Err(RegistrationError::InvalidFullName(entry.name.clone()));
        }
        check_path(name, &entry.path)?;
        if let Some(mistake) = &self.mistake {
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
        if self.concurrency == 0 {
            return Err(RegistrationError::InvalidConcurrency(name.clone()));
        }
        let (conditions, given) = (entry.all_match_conditions(), entry.match_conditions.len());
        if conditions.len() > MAX_MATCH_CONDITIONS {
            let most = MAX_MATCH_CONDITIONS - (conditions.len() - given);
            return Err(RegistrationError::TooManyMatchConditions { name: name.clone(), given, most });
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = conditions.iter().find(|condition| !names.insert(&condition.name)) {
            let condition = twice.name.clone();
            return Err(RegistrationError::DuplicateMatchCondition { name: name.clone(), condition });
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
}

/// Checks that the API server accepts the path: its segments are DNS subdomains (`ValidateWebhookService`).
pub(crate) fn check_path(name: &str, path: &str) -> Result<(), RegistrationError> {
    let parts = path.strip_prefix('/').map(|parts| parts.strip_suffix('/').unwrap_or(parts));
    if parts.is_some_and(|parts| path == "/" || parts.split('/').all(is_subdomain)) {
        return Ok(());
    }
    Err(RegistrationError::InvalidPath { name: name.to_owned(), path: path.to_owned() })
}

/// Defines the setters of [`Settings`] on a webhook type.
macro_rules! settings {
    () => {
        /// Sets the name in the webhook configuration, in place of `{name}.{plural}.{group}`: for an operator that
        /// replaces one whose webhooks have other names. Denials and the log show it. It must be a DNS subdomain of at
        /// least three labels, such as `check.shop.example`, and unique within its configuration.
        pub fn full_name(mut self, full_name: impl Into<String>) -> Self {
            self.settings.entry.name = full_name.into();
            self.settings.has_full_name = true;
            self
        }

        /// Sets the path of the webhook instead of the one made from the name.
        pub fn path(mut self, path: impl Into<String>) -> Self {
            self.settings.entry.path = path.into();
            self
        }

        /// Sets what the API server does when this webhook does not answer, or answers with an HTTP error: refuse the
        /// request (`Fail`, the default) or go on without it (`Ignore`). A denial is an answer and always holds.
        pub fn failure_policy(mut self, policy: portcullis_manifest::FailurePolicy) -> Self {
            self.settings.entry.failure_policy = policy;
            self
        }

        /// Sets how long the API server waits: whole seconds from 1 to 30 (default: 10).
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.settings.set_timeout(timeout);
            self
        }

        /// Calls the webhook only for objects in namespaces with these labels.
        pub fn namespace_selector(
            mut self,
            selector: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
        ) -> Self {
            self.settings.entry.namespace_selector = Some(selector);
            self
        }

        /// Calls the webhook only for objects that have these labels before or after the request. Users who may set
        /// labels can opt out.
        pub fn object_selector(
            mut self,
            selector: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
        ) -> Self {
            self.settings.entry.object_selector = Some(selector);
            self
        }

        /// Adds a match condition, a CEL expression such as `request.userInfo.username != 'admin'`. The API server calls
        /// the webhook only for requests for which all of its match conditions are true, and shows `name` in messages
        /// and metrics.
        ///
        /// Kubernetes allows 64 match conditions. For a webhook that handles updates, the generated configuration adds
        /// one or two, which exempt the removal of finalizers; with the rest of the 64 taken, one more is
        /// [`RegistrationError::TooManyMatchConditions`](super::RegistrationError::TooManyMatchConditions). Their names differ.
        pub fn match_condition(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
            let condition = portcullis_manifest::MatchCondition { name: name.into(), expression: expression.into() };
            self.settings.entry.match_conditions.push(condition);
            self
        }

        /// Sets whether the API server also sends requests for other versions of the resource, converted to the
        /// webhook's version (`Equivalent`, the default). With `Exact` such requests bypass the webhook.
        pub fn match_policy(mut self, policy: portcullis_manifest::MatchPolicy) -> Self {
            self.settings.entry.match_policy = policy;
            self
        }

        /// Sets whether the resource is namespaced (default: as the type or the target says).
        pub fn scope(mut self, scope: portcullis_manifest::ScopeType) -> Self {
            self.settings.entry.rules.iter_mut().for_each(|rule| rule.scope = scope);
            self
        }

        /// Declares that handlers have side effects (such as a record in another system), except in a dry run: the
        /// webhook is registered with `sideEffects: NoneOnDryRun`, and [`Context::permit`](super::Context::permit)
        /// returns the permit for them. By default there is none.
        pub fn side_effects(mut self) -> Self {
            self.settings.entry.side_effects = portcullis_manifest::SideEffects::NoneOnDryRun;
            self
        }

        /// Limits the concurrent reviews of this webhook (default: 256). Further ones are answered at once with HTTP
        /// 429, and the API server retries them.
        pub fn concurrency(mut self, reviews: usize) -> Self {
            self.settings.concurrency = reviews;
            self
        }

        /// Passes `metadata.managedFields` to handlers. By default they are left out: few handlers read them, and they
        /// are often half of an object, so that decoding them would cost more than all the rest.
        pub fn with_managed_fields(mut self) -> Self {
            self.settings.managed_fields = true;
            self
        }

        /// Declares a source that handlers read, usually a `&Cache` of `portcullis-controller`. Every replica of the
        /// operator keeps it filled, and the generated roles permit that. Until its first list is complete, this
        /// webhook answers HTTP 429, and the API server retries.
        pub fn with_source(mut self, source: impl Into<std::sync::Arc<dyn crate::Source>>) -> Self {
            self.settings.sources.push(source.into());
            self
        }

        /// Denies the request (code 500) when the handler fails, panics or takes too long. By default that is an HTTP
        /// error, and the failure policy decides.
        pub fn deny_on_failure(mut self) -> Self {
            self.settings.deny_on_failure = true;
            self
        }
    };
}
pub(super) use settings;

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
    /// A [`Validator`](crate::Validator) or [`Mutator`](crate::Mutator) does not have the method for one of its operations.
    #[error(
        "OPERATIONS of webhook {name} has {operation}, for which there is no method: write it, or leave {operation} out"
    )]
    NoMethod {
        /// The webhook.
        name: String,
        /// The operation.
        operation: Operation,
    },
    /// A [`Validator`](crate::Validator) or [`Mutator`](crate::Mutator) has a method for an operation that it does not
    /// name, which would never be called.
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
    /// Two match conditions of a webhook have one name, which Kubernetes refuses.
    #[error("webhook {name} has two match conditions named {condition:?}: give one of them another name")]
    DuplicateMatchCondition {
        /// The webhook.
        name: String,
        /// The name of both.
        condition: String,
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
        source: Arc<GraphError>,
    },
}
