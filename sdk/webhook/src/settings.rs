//! The settings that validating and mutating webhooks share.

use std::sync::Arc;
use std::time::Duration;

use portcullis_manifest::{Webhook, WebhookKind};

use crate::target::Subject;
use crate::{Operation, RegistrationError, Source};

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
    /// A mistake that the entry cannot show. [`Webhooks::manifests`](crate::Webhooks::manifests) returns it.
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
            _ => self.mistake = Some(RegistrationError::InvalidTimeout(self.name.clone())),
        }
    }

    /// Adds an operation that has a handler.
    pub(super) fn add_operation(&mut self, operation: Operation) {
        for rule in &mut self.entry.rules {
            if let Err(at) = rule.operations.binary_search(&operation) {
                rule.operations.insert(at, operation);
            } else {
                let name = self.name.clone();
                self.mistake = Some(RegistrationError::DuplicateHandler { name, operation });
            }
        }
    }
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
        /// [`RegistrationError::TooManyMatchConditions`](super::RegistrationError::TooManyMatchConditions).
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
