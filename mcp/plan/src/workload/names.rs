//! Names, labels and annotations of a workload's children (toolhive-operator §2.2, §2.3).

use std::collections::BTreeMap;

use mcp_api::names::label;

/// Key of the RunConfig in its ConfigMap.
pub const RUN_CONFIG_KEY: &str = "runconfig.json";

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
