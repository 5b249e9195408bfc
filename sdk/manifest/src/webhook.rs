//! Entries of webhook configurations.

use std::fmt;

use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use portcullis_review::Operation;

/// One entry of a webhook configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    /// Full name: a DNS subdomain of at least three labels, unique in its configuration.
    pub name: String,
    /// The configuration that it belongs to.
    pub kind: WebhookKind,
    /// Path of its route; starts with `/`.
    pub path: String,
    /// Requests that it is called for.
    pub rules: Vec<Rule>,
    /// The API server's action when the webhook does not answer.
    pub failure_policy: FailurePolicy,
    /// Timeout of a call in seconds, 1 to 30.
    pub timeout_seconds: u8,
    /// Whether a call changes anything but its answer.
    pub side_effects: SideEffects,
    /// Whether requests for equivalent versions of the resource are converted and sent too.
    pub match_policy: MatchPolicy,
    /// Whether a mutating webhook is called again when a later one changed the object; ignored for validating ones.
    pub reinvocation_policy: ReinvocationPolicy,
    /// Only objects in namespaces with these labels.
    pub namespace_selector: Option<LabelSelector>,
    /// Only objects with these labels.
    pub object_selector: Option<LabelSelector>,
    /// Only requests for which all of these are true, and those that
    /// [`all_match_conditions`](Self::all_match_conditions) adds.
    pub match_conditions: Vec<MatchCondition>,
    /// CEL rules that the API server evaluates itself, in a policy beside the webhook
    /// ([`admission_policies`](crate::admission_policies)).
    pub cel_rules: Vec<CelRule>,
    /// Whether [`with_overrides`](Self::with_overrides) has changed its failure policy to `Ignore`.
    pub(crate) ignores_by_override: bool,
}

impl Webhook {
    /// Creates a webhook with safe defaults: `Fail`, 10 s, no side effects, `Equivalent`, reinvoked when needed.
    pub fn new(name: impl Into<String>, kind: WebhookKind, path: impl Into<String>, rules: Vec<Rule>) -> Self {
        Self {
            name: name.into(),
            kind,
            path: path.into(),
            rules,
            failure_policy: FailurePolicy::Fail,
            timeout_seconds: 10,
            side_effects: SideEffects::None,
            match_policy: MatchPolicy::Equivalent,
            reinvocation_policy: ReinvocationPolicy::IfNeeded,
            namespace_selector: None,
            object_selector: None,
            ignores_by_override: false,
            match_conditions: Vec::new(),
            cel_rules: Vec::new(),
        }
    }
}

/// Requests that a webhook is called for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// API groups; empty for the core group.
    pub groups: Vec<String>,
    /// Versions of the groups.
    pub versions: Vec<String>,
    /// Plural names, or `plural/subresource`.
    pub resources: Vec<String>,
    /// Namespaced or cluster-scoped.
    pub scope: ScopeType,
    /// Operations, in the order of the manifest.
    pub operations: Vec<Operation>,
}

/// A CEL rule that the API server evaluates itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CelRule {
    /// CEL expression over `object`, `oldObject`, `request`, `namespaceObject` and `authorizer`. An object for which it is
    /// false, or cannot be evaluated, is refused.
    pub expression: String,
    /// Message to the user whose request breaks the rule.
    pub message: String,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// The value in Kubernetes' API.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Kind of a webhook, and of the configuration that it belongs to.
    WebhookKind {
        /// Allows or denies requests.
        Validating = "Validating",
        /// May change the object.
        Mutating = "Mutating",
    }
}
words! {
    /// The API server's action when a webhook does not answer, or answers with an HTTP error.
    FailurePolicy {
        /// Refuses the request.
        Fail = "Fail",
        /// Proceeds as if the webhook did not exist.
        Ignore = "Ignore",
    }
}
words! {
    /// Scope of the resources that a rule matches.
    ScopeType {
        /// Namespaced resources only.
        Namespaced = "Namespaced",
        /// Cluster-scoped resources only.
        Cluster = "Cluster",
        /// Both.
        Any = "*",
    }
}
words! {
    /// Whether a call has side effects.
    SideEffects {
        /// No side effects; dry runs are sent too.
        None = "None",
        /// Side effects, but not on a dry run.
        NoneOnDryRun = "NoneOnDryRun",
    }
}
words! {
    /// Whether a rule also covers other versions of the same resource.
    MatchPolicy {
        /// Other versions match too: the API server converts the object.
        Equivalent = "Equivalent",
        /// Only the versions that the rule names match.
        Exact = "Exact",
    }
}
words! {
    /// Whether a mutating webhook is called again when a later one changed the object.
    ReinvocationPolicy {
        /// Never.
        Never = "Never",
        /// When needed.
        IfNeeded = "IfNeeded",
    }
}
