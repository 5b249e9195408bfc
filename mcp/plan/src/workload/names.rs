//! Names, labels and annotations of a workload's children (toolhive-operator §2.2, §2.3).

use std::collections::BTreeMap;

use mcp_api::names::label;

/// Key of the RunConfig in its ConfigMap.
pub const RUN_CONFIG_KEY: &str = "runconfig.json";

/// Labels by which Services, Deployments, StatefulSets and NetworkPolicies of workloads select pods. A pod that has one of another workload
/// may get its calls, so these are the operator's in every pod template.
pub const SELECTOR_LABELS: [&str; 6] =
    [label::APP, label::APP_NAME, label::APP_INSTANCE, label::TOOLHIVE, label::TOOLHIVE_NAME, label::TOOLHIVE_BASENAME];

/// Removes from a user's labels of pods those that select pods.
pub fn remove_selector_labels(labels: &mut BTreeMap<String, String>) {
    labels.retain(|key, _| !SELECTOR_LABELS.contains(&&**key));
}

/// A sentence for each of a user's labels of pods that selects pods. `field` holds the labels.
pub fn selector_label_notes(field: &str, labels: Option<&BTreeMap<String, String>>) -> Vec<String> {
    let mut keys: Vec<_> = labels.into_iter().flat_map(BTreeMap::keys).collect();
    keys.retain(|key| SELECTOR_LABELS.contains(&&***key));
    keys.iter().map(|key| format!("{field}[{key}] has no effect: the operator selects pods by this label")).collect()
}

/// Name of the ConfigMap with the RunConfig.
pub fn run_config(workload: &str) -> String {
    format!("{workload}-runconfig")
}

/// Labels of the proxy's objects, and the selector of its pods. `app` is the workload's kind in lower case.
pub fn proxy_labels(app: &str, workload: &str) -> BTreeMap<String, String> {
    [
        (label::APP, app),
        (label::APP_NAME, app),
        (label::APP_INSTANCE, workload),
        (label::TOOLHIVE, "true"),
        (label::TOOLHIVE_NAME, workload),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}
