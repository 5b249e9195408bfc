//! Names of an MCPRemoteProxy's children (toolhive-operator §2.5).

use mcp_plan::workload::{ChildKind, ChildRef};

/// Longest name of a proxy: `mcp-NAME-remote-proxy` is a Service, whose name is a DNS label.
pub(super) const MAX_NAME: usize = 46;

/// Name of the ServiceAccount made for the proxy's pods. ToolHive's Role and RoleBinding have this name as well.
pub(super) fn account(proxy: &str) -> String {
    format!("{proxy}-remote-proxy-runner")
}

/// Name of the Service clients connect to.
pub(super) fn service(proxy: &str) -> String {
    format!("mcp-{proxy}-remote-proxy")
}

/// The proxies whose child this may be, by its name.
pub(super) fn proxies(ChildRef { kind, name }: &ChildRef) -> Vec<&str> {
    let proxy = match kind {
        ChildKind::Deployment => Some(name.as_str()),
        ChildKind::ConfigMap => name.strip_suffix("-runconfig"),
        ChildKind::Service => name.strip_prefix("mcp-").and_then(|rest| rest.strip_suffix("-remote-proxy")),
        ChildKind::ServiceAccount | ChildKind::Role | ChildKind::RoleBinding => {
            name.strip_suffix("-remote-proxy-runner")
        }
        ChildKind::StatefulSet | ChildKind::NetworkPolicy => None,
    };
    proxy.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use mcp_api::v1beta1::MCPRemoteProxy;

    use super::*;
    use crate::workload::Workload as _;

    #[test]
    fn every_child_is_traced_back_to_the_proxy_it_is_named_after() {
        for name in ["web", "mcp-web", "web-remote-proxy", "web-runconfig"] {
            let mut proxy = MCPRemoteProxy::default();
            proxy.metadata.name = Some(name.to_owned());
            for child in proxy.all_children() {
                assert_eq!(proxies(&child), [name], "{child:?}");
            }
        }
        for other in ["mcp-web-proxy", "web-remote-proxy", "kubernetes"] {
            assert_eq!(proxies(&ChildRef::new(ChildKind::Service, other)), Vec::<&str>::new(), "{other}");
        }
    }
}
