//! Names, labels and annotations of a server's children (toolhive-operator §2.2, §2.3).

use std::collections::BTreeMap;

use mcp_api::names::{finalizer, label};

/// Finalizer of MCPServers: their children go first.
pub const SERVER_FINALIZER: &str = finalizer::MCP_SERVER;
/// Finalizer of MCPWebhookConfigs: they stay while servers refer to them.
pub const WEBHOOK_CONFIG_FINALIZER: &str = finalizer::MCP_WEBHOOK_CONFIG;
/// Annotation of the proxy Deployment: `NAME/HASH` of the webhook configuration its pods enforce. It tells whether a
/// proxy that exists has the guard its author asks for.
pub const GATE: &str = "toolhive.stacklok.dev/webhook-config";
/// Annotation of the StatefulSet's pod template: a digest of the Secret values its environment takes.
pub const SECRETS_CHECKSUM: &str = "toolhive.stacklok.dev/secrets-checksum";
/// Key of the RunConfig in its ConfigMap.
pub const RUN_CONFIG_KEY: &str = "runconfig.json";
/// Longest name of a server: `mcp-NAME-headless` is a Service, whose name is a DNS label.
pub const MAX_SERVER_NAME: usize = 50;

/// Name of the ConfigMap with the RunConfig.
pub fn run_config(server: &str) -> String {
    format!("{server}-runconfig")
}

/// Name of the proxy's ServiceAccount, Role and RoleBinding.
pub fn proxy_account(server: &str) -> String {
    format!("{server}-proxy-runner")
}

/// Name of the ServiceAccount made for the MCP server's pods.
pub fn workload_account(server: &str) -> String {
    format!("{server}-sa")
}

/// Name of the Service clients connect to.
pub fn proxy_service(server: &str) -> String {
    format!("mcp-{server}-proxy")
}

/// Name of the Service the proxy reaches the MCP server by.
pub fn backend_service(server: &str) -> String {
    format!("mcp-{server}")
}

/// Name of the headless Service of the MCP server's pods.
pub fn headless_service(server: &str) -> String {
    format!("mcp-{server}-headless")
}

/// Labels of the proxy's objects, and the selector of its pods.
pub fn proxy_labels(server: &str) -> BTreeMap<String, String> {
    let kind = label::APP_MCP_SERVER;
    [
        (label::APP, kind),
        (label::APP_NAME, kind),
        (label::APP_INSTANCE, server),
        (label::TOOLHIVE, "true"),
        (label::TOOLHIVE_NAME, server),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}
