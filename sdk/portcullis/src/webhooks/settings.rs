//! What can be said about any webhook, whatever it does.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use portcullis_manifest::{FailurePolicy, MatchCondition, MatchPolicy, Reinvocation, Scope, SideEffects};

use crate::cache::AnyCache;

/// Reviews of one webhook under way at the same time, unless said otherwise.
const CONCURRENCY: usize = 256;

/// The settings that end up in the manifest, and those that shape an answer.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) name: String,
    /// What it is registered as, where that does not follow from `name`.
    pub(super) full_name: Option<String>,
    pub(super) path: Option<String>,
    pub(super) failure_policy: FailurePolicy,
    pub(super) timeout: Duration,
    pub(super) namespace_selector: Option<LabelSelector>,
    pub(super) object_selector: Option<LabelSelector>,
    pub(super) match_conditions: Vec<MatchCondition>,
    pub(super) match_policy: MatchPolicy,
    pub(super) reinvocation: Reinvocation,
    pub(super) side_effects: SideEffects,
    pub(super) scope: Option<Scope>,
    pub(super) concurrency: usize,
    pub(super) managed_fields: bool,
    pub(super) deny_on_failure: bool,
    /// Whether updates of objects that are being deleted are judged although they change only metadata.
    pub(super) judges_metadata_of_deleted: bool,
    /// What handlers read.
    pub(super) caches: Vec<Arc<dyn AnyCache>>,
}

impl Settings {
    /// Those of the caches that are not filled yet: what handlers would see is not what is.
    pub(super) fn unfilled(&self) -> impl Iterator<Item = &Arc<dyn AnyCache>> {
        self.caches.iter().filter(|cache| !cache.is_filled())
    }

    /// What the log, and whoever asks without the API server, call it.
    pub(super) fn shown_name(&self) -> &str {
        self.full_name.as_deref().unwrap_or(&self.name)
    }

    pub(super) fn named(name: String) -> Self {
        Self {
            name,
            full_name: None,
            path: None,
            failure_policy: FailurePolicy::Fail,
            timeout: Duration::from_secs(10),
            namespace_selector: None,
            object_selector: None,
            match_conditions: Vec::new(),
            match_policy: MatchPolicy::Equivalent,
            reinvocation: Reinvocation::IfNeeded,
            side_effects: SideEffects::None,
            scope: None,
            concurrency: CONCURRENCY,
            managed_fields: false,
            deny_on_failure: false,
            judges_metadata_of_deleted: false,
            caches: Vec::new(),
        }
    }
}

/// The methods that set them, the same on every kind of webhook.
macro_rules! settings {
    () => {
        /// Registers under this name, and not under the one made from the name, the resource and the group: for an
        /// operator that takes the place of one whose webhooks have other names. Users read it in a denial, and the log
        /// has it. It is a DNS subdomain of three labels at least, as in `check.shop.example`, and no two webhooks of a
        /// configuration share one; otherwise the registration is an error.
        pub fn full_name(mut self, full_name: impl Into<String>) -> Self {
            self.settings.full_name = Some(full_name.into());
            self
        }

        /// Serves at another path than the one made from the name.
        pub fn path(mut self, path: impl Into<String>) -> Self {
            self.settings.path = Some(path.into());
            self
        }

        /// What the API server does when this webhook does not answer, or answers with an HTTP error: refuse the
        /// request (`Fail`, the default) or go on without (`Ignore`). A denial is an answer and always holds.
        pub fn failure_policy(mut self, policy: portcullis_manifest::FailurePolicy) -> Self {
            self.settings.failure_policy = policy;
            self
        }

        /// How long the API server waits, in whole seconds from 1 to 30; 10 unless said.
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.settings.timeout = timeout;
            self
        }

        /// Only objects in namespaces with these labels.
        pub fn namespace_selector(
            mut self,
            selector: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
        ) -> Self {
            self.settings.namespace_selector = Some(selector);
            self
        }

        /// Only objects that have these labels, before or after the request. Whoever may set labels can opt out.
        pub fn object_selector(
            mut self,
            selector: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
        ) -> Self {
            self.settings.object_selector = Some(selector);
            self
        }

        /// Only requests for which this CEL expression is true; several are joined by "and". `name` shows up in the
        /// API server's messages and metrics. Kubernetes takes 64; a webhook for updates has one or two more than these,
        /// which exempt the removal of finalizers (`Webhook::exemptions` in `portcullis::manifest`).
        pub fn match_condition(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
            let condition = portcullis_manifest::MatchCondition { name: name.into(), expression: expression.into() };
            self.settings.match_conditions.push(condition);
            self
        }

        /// Whether the API server also sends requests for other versions of the resource, converted to the one that this
        /// webhook is for (`Equivalent`, the default): without that (`Exact`) they go past it.
        pub fn match_policy(mut self, policy: portcullis_manifest::MatchPolicy) -> Self {
            self.settings.match_policy = policy;
            self
        }

        /// Whether the resource lives in a namespace; unless said, what the type or the target says.
        pub fn scope(mut self, scope: portcullis_manifest::Scope) -> Self {
            self.settings.scope = Some(scope);
            self
        }

        /// Declares that handlers change something else than the answer (a record elsewhere, an address that is taken),
        /// though never on a dry run: registered with `sideEffects: NoneOnDryRun`, and
        /// [`Context::permit`](super::Context::permit) gives what they must hold to do so. Without this there is none.
        pub fn side_effects(mut self) -> Self {
            self.settings.side_effects = portcullis_manifest::SideEffects::NoneOnDryRun;
            self
        }

        /// The most reviews that are under way at the same time, 256 unless said; those above are answered at once with
        /// HTTP 429, and the API server tries them again.
        pub fn concurrency(mut self, reviews: usize) -> Self {
            self.settings.concurrency = reviews;
            self
        }

        /// Gives handlers `metadata.managedFields` too. They are left out unless asked for: nearly no handler reads them,
        /// and they are often half of an object, so that decoding them would cost more than all the rest.
        pub fn with_managed_fields(mut self) -> Self {
            self.settings.managed_fields = true;
            self
        }

        /// Handlers read this cache: every replica of the operator keeps it filled, with the right to in its generated
        /// roles. Until its first list is complete, this webhook answers HTTP 429, and the API server tries again.
        pub fn reads<C: crate::cache::Cached>(mut self, cache: &crate::cache::Cache<C>) -> Self {
            self.settings.caches.push(cache.erased());
            self
        }

        /// Answers with a denial (code 500) when the handler fails, panics or takes too long. Without this each is an
        /// HTTP error, and the failure policy decides.
        pub fn deny_on_failure(mut self) -> Self {
            self.settings.deny_on_failure = true;
            self
        }
    };
}
pub(super) use settings;
