//! Settings of all webhooks of an installation.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::{FailurePolicy, Webhook};

/// Settings of all webhooks of an installation, in place of those that they are registered with. Charts have values for
/// them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Failure policy. A webhook that is registered with [`Ignore`](FailurePolicy::Ignore) keeps it, because failing
    /// closed could lock the cluster.
    pub failure_policy: Option<FailurePolicy>,
    /// Timeout of a call in seconds, 1 to 30.
    pub timeout_seconds: Option<u8>,
    /// Only objects in namespaces with these labels, in addition to the webhook's own selector.
    pub namespace_selector: Option<LabelSelector>,
    /// Only objects with these labels, in addition to the webhook's own selector.
    pub object_selector: Option<LabelSelector>,
}

impl Webhook {
    /// Returns the webhook with the settings of its installation.
    #[must_use]
    pub fn with_overrides(mut self, overrides: &Overrides) -> Self {
        if overrides.failure_policy == Some(FailurePolicy::Ignore) && self.failure_policy == FailurePolicy::Fail {
            self.failure_policy = FailurePolicy::Ignore;
            self.ignores_by_override = true;
        }
        if let Some(seconds) = overrides.timeout_seconds {
            self.timeout_seconds = seconds;
        }
        also(&mut self.namespace_selector, overrides.namespace_selector.as_ref());
        also(&mut self.object_selector, overrides.object_selector.as_ref());
        self
    }
}

/// Selects what both select.
fn also(selector: &mut Option<LabelSelector>, more: Option<&LabelSelector>) {
    let Some(more) = more else { return };
    let Some(selector) = selector else {
        *selector = Some(more.clone());
        return;
    };
    for (key, value) in more.match_labels.iter().flatten() {
        let labels = selector.match_labels.get_or_insert_default();
        if labels.get(key).is_some_and(|known| known != value) {
            // A label has one value, so nothing is selected.
            let only =
                LabelSelectorRequirement { key: key.clone(), operator: "In".into(), values: Some(vec![value.clone()]) };
            selector.match_expressions.get_or_insert_default().push(only);
        } else {
            labels.insert(key.clone(), value.clone());
        }
    }
    if let Some(expressions) = &more.match_expressions {
        selector.match_expressions.get_or_insert_default().extend(expressions.iter().cloned());
    }
}
