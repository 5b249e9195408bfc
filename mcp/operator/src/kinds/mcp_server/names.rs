//! Names of an MCPServer's children (toolhive-operator §2.3).

/// Longest name of a server: `mcp-NAME-headless` is a Service, whose name is a DNS label.
pub(super) const MAX_SERVER_NAME: usize = 50;

/// Name of the proxy's ServiceAccount, Role and RoleBinding.
pub(super) fn proxy_account(server: &str) -> String {
    format!("{server}-proxy-runner")
}

/// Name of the ServiceAccount made for the MCP server's pods.
pub(super) fn workload_account(server: &str) -> String {
    format!("{server}-sa")
}

/// Name of the Service clients connect to.
pub(super) fn proxy_service(server: &str) -> String {
    format!("mcp-{server}-proxy")
}

/// Name of the Service the proxy reaches the MCP server by.
pub(super) fn backend_service(server: &str) -> String {
    format!("mcp-{server}")
}

/// Name of the headless Service of the MCP server's pods.
pub(super) fn headless_service(server: &str) -> String {
    format!("mcp-{server}-headless")
}

/// Name of the NetworkPolicy of the MCP server's pods.
pub(super) fn network_policy(server: &str) -> String {
    format!("mcp-{server}")
}
