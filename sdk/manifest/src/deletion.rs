//! Match conditions that let finalizers of objects that are being deleted be removed, also while the webhook is down.
//!
//! The webhook server allows the same without calling a handler (`admit.rs` of `portcullis-webhook`). These match
//! conditions must never exempt more than it does.

use portcullis_review::Operation;

use crate::{MatchCondition, Rule, ScopeType, Webhook};

/// The largest number of match conditions that the API server accepts in one webhook.
pub const MAX_MATCH_CONDITIONS: usize = 64;

/// True for all but an update of an object that is being deleted which changes only `metadata` or `status`.
///
/// It must not fail for any object: a condition that fails refuses the request under `Fail`, and lets it pass the webhook
/// under `Ignore`. So each step asks whether the next one can be taken. `object` and `oldObject` are maps, of built-in
/// kinds too, and the API server gives both in the version that the webhook is for.
const FINALIZER_REMOVAL: (&str, &str) = (
    "portcullis.dev/exclude-finalizer-removal",
    "request.operation != 'UPDATE' || oldObject == null || !has(oldObject.metadata) || \
     !has(oldObject.metadata.deletionTimestamp) || \
     object.exists(key, !(key in ['metadata', 'status']) && !(key in oldObject && object[key] == oldObject[key])) || \
     oldObject.exists(key, !(key in ['metadata', 'status']) && !(key in object))",
);

/// True for all but updates of `namespaces/finalize`: Namespaces keep finalizers in `spec`, and only there can they be
/// changed. A Namespace that is not being deleted may be finalized as well, and the webhook must see that.
const NAMESPACE_FINALIZE: (&str, &str) = (
    "portcullis.dev/exclude-namespace-finalize",
    "request.operation != 'UPDATE' || request.resource.group != '' || request.resource.resource != 'namespaces' || \
     !has(request.subResource) || request.subResource != 'finalize' || !has(oldObject.metadata.deletionTimestamp)",
);

impl Webhook {
    /// The match conditions of the configuration: the webhook's own, and one or two exemptions where a rule covers
    /// updates. An update is exempt if its object is being deleted and it changes only `metadata` or `status`, so that
    /// finalizers can be removed while the webhook is down, even from invalid objects. Edits of anything else are still
    /// sent to the webhook.
    pub fn all_match_conditions(&self) -> Vec<MatchCondition> {
        let conditions = [
            (FINALIZER_REMOVAL, self.rules.iter().any(updates)),
            (NAMESPACE_FINALIZE, self.rules.iter().any(|rule| updates(rule) && reaches_finalize(rule))),
        ];
        let needed = conditions.into_iter().filter_map(|(condition, needed)| needed.then_some(condition));
        let exemptions =
            needed.map(|(name, expression)| MatchCondition { name: name.into(), expression: expression.into() });
        self.match_conditions.iter().cloned().chain(exemptions).collect()
    }
}

/// Whether a match condition is the one that exempts the removal of finalizers; see [`Webhook::all_match_conditions`].
pub fn exempts_finalizer_removal(name: &str, expression: &str) -> bool {
    FINALIZER_REMOVAL == (name, expression)
}

fn updates(rule: &Rule) -> bool {
    rule.operations.contains(&Operation::Update)
}

/// Whether it matches `namespaces/finalize`.
fn reaches_finalize(rule: &Rule) -> bool {
    let matches = |resource: &String| {
        let (kind, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        ["*", "namespaces"].contains(&kind) && ["*", "finalize"].contains(&subresource)
    };
    rule.scope != ScopeType::Namespaced
        && rule.groups.iter().any(|group| group.is_empty() || group == "*")
        && rule.resources.iter().any(matches)
}
