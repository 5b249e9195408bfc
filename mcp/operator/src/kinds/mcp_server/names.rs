//! Names of an MCPServer's children (toolhive-operator §2.3).

use mcp_plan::workload::{ChildKind, ChildRef};

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

/// Name of its only pod, of a server that its proxy attaches to.
pub(super) fn first_pod(server: &str) -> String {
    format!("{server}-0")
}

/// Name of the NetworkPolicy of the MCP server's pods.
pub(super) fn network_policy(server: &str) -> String {
    format!("mcp-{server}")
}

/// The servers whose child this may be, by its name.
pub(super) fn servers(ChildRef { kind, name }: &ChildRef) -> Vec<&str> {
    let without = |suffixes: &[&str]| suffixes.iter().filter_map(|suffix| name.strip_suffix(suffix)).collect();
    match kind {
        ChildKind::Deployment | ChildKind::StatefulSet => vec![name],
        ChildKind::ConfigMap => without(&["-runconfig"]),
        ChildKind::Role | ChildKind::RoleBinding => without(&["-proxy-runner"]),
        ChildKind::ServiceAccount => without(&["-proxy-runner", "-sa"]),
        ChildKind::NetworkPolicy => name.strip_prefix("mcp-").into_iter().collect(),
        ChildKind::Service => {
            let Some(rest) = name.strip_prefix("mcp-") else { return Vec::new() };
            ["-proxy", "-headless"].iter().filter_map(|suffix| rest.strip_suffix(suffix)).chain([rest]).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use mcp_api::v1beta1::MCPServer;

    use super::*;
    use crate::workload::Workload as _;

    #[test]
    fn every_child_is_traced_back_to_the_server_it_is_named_after() {
        for name in ["web", "web-sa", "web-proxy", "mcp-web", "a-headless"] {
            let mut server = MCPServer::default();
            server.metadata.name = Some(name.to_owned());
            for child in server.all_children() {
                assert!(servers(&child).contains(&name), "{child:?} is not traced to {name}");
            }
        }
        assert_eq!(servers(&ChildRef::new(ChildKind::Service, "kubernetes")), Vec::<&str>::new());
    }
}
