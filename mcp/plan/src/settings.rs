//! What the operator was started with.

use mcp_runconfig::endpoint::IpNet;

/// What the operator was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Image of the proxy.
    pub runner_image: String,
    /// Address proxies listen on.
    pub proxy_host: String,
    /// Image pull secrets added behind each workload's own.
    pub default_image_pull_secrets: Vec<String>,
    /// The abilities of the proxy's image, by the names of [`abilities`](mcp_runconfig::chain::abilities). A guard that needs something else
    /// cannot be enforced.
    pub runner_middleware: Vec<String>,
    /// Origins of web pages that may call every proxy.
    pub allowed_origins: Vec<String>,
    /// Networks of proxies before those of workloads, whose headers tell the address of the client.
    pub trusted_proxies: Vec<IpNet>,
    /// Networks whose addresses count as public where a proxy may call public addresses only.
    pub exempt_endpoints: Vec<IpNet>,
    /// Address or name of the Kubernetes API, where it is known: no remote server may be there.
    pub kubernetes_api: Option<String>,
}

impl Settings {
    /// Whether the proxy's image has all these types of middleware.
    pub fn can_run(&self, middleware: &[&str]) -> bool {
        middleware.iter().all(|kind| self.runner_middleware.iter().any(|known| known == kind))
    }
}
