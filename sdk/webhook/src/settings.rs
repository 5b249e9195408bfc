//! Settings that any webhook has.

use std::sync::Arc;
use std::time::Duration;

use portcullis_manifest::{Scope, Webhook, WebhookKind};

use crate::Source;

/// Concurrent reviews of one webhook, by default.
const CONCURRENCY: usize = 256;

/// The settings of the entry in the webhook configuration, and those of reviews.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) name: String,
    /// The name that it is registered under, if it does not follow from `name`.
    pub(super) full_name: Option<String>,
    pub(super) path: Option<String>,
    /// The entry, but for the name, the path, the rules and the timeout.
    pub(super) entry: Webhook,
    pub(super) timeout: Duration,
    pub(super) scope: Option<Scope>,
    pub(super) concurrency: usize,
    pub(super) managed_fields: bool,
    pub(super) deny_on_failure: bool,
    /// The sources that handlers read.
    pub(super) sources: Vec<Arc<dyn Source>>,
}

impl Settings {
    /// The sources that are not filled yet: a handler would not see all objects.
    pub(super) fn unfilled(&self) -> impl Iterator<Item = &Arc<dyn Source>> {
        self.sources.iter().filter(|source| !source.is_filled())
    }

    /// Its name in the log and for who asks it without the API server.
    pub(super) fn shown_name(&self) -> &str {
        self.full_name.as_deref().unwrap_or(&self.name)
    }

    pub(super) fn new(kind: WebhookKind, name: String) -> Self {
        Self {
            entry: Webhook::new(&name, kind, "", Vec::new()),
            name,
            full_name: None,
            path: None,
            timeout: Duration::from_secs(10),
            scope: None,
            concurrency: CONCURRENCY,
            managed_fields: false,
            deny_on_failure: false,
            sources: Vec::new(),
        }
    }
}

/// The methods that set them, the same on every kind of webhook.
macro_rules! settings {
    () => {
        /// Registers under this name, and not under the one made from the name, the resource and the group: for an
        /// operator that takes the place of one whose webhooks have other names. Denials and the log show it. It is a DNS
        /// subdomain of three labels at least, as in `check.shop.example`, and no two webhooks of a configuration share one;
        /// otherwise the registration is an error.
        pub fn full_name(mut self, full_name: impl Into<String>) -> Self {
            self.settings.full_name = Some(full_name.into());
            self
        }

        /// Sets the path of the webhook instead of the one made from the name.
        pub fn path(mut self, path: impl Into<String>) -> Self {
            self.settings.path = Some(path.into());
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
            self.settings.timeout = timeout;
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

        /// Calls the webhook only for requests for which this CEL expression is true, as well as all others of its
        /// match conditions. `name` appears in messages and metrics of the API server. Kubernetes allows 64, of which a
        /// webhook for updates uses one or two to exempt the removal of finalizers (`Webhook::exemptions` of
        /// `portcullis-manifest`).
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
        pub fn scope(mut self, scope: portcullis_manifest::Scope) -> Self {
            self.settings.scope = Some(scope);
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
        pub fn reads(mut self, source: impl Into<std::sync::Arc<dyn crate::Source>>) -> Self {
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
