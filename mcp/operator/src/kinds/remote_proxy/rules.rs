//! Rules of MCPRemoteProxy that its schema cannot say.

use mcp_api::v1beta1::MCPRemoteProxy;
use mcp_plan::{
    problem::Problem,
    settings::Settings,
    workload::{
        overrides::{self, is_dns_label},
        quantity,
    },
};
use mcp_runconfig::endpoint::EndpointPolicy;

use super::{headers, names};
use crate::config::ConfigRef;

/// Every rule that the proxy breaks, `spec.podTemplateSpec` and `spec.remoteUrl` aside.
pub(super) fn problems(proxy: &MCPRemoteProxy) -> Vec<Problem> {
    let mut problems = Vec::new();
    let name = proxy.metadata.name.as_deref().unwrap_or_default();
    if name.len() > names::MAX_NAME || !is_dns_label(name) {
        let message = format!(
            "{name:?} cannot name this proxy's Service; use at most {} lower-case letters, digits and dashes",
            names::MAX_NAME
        );
        problems.push(Problem::new("metadata.name", message));
    }
    let spec = &proxy.spec;
    let login = spec.oidc_config_ref.as_ref().map(ConfigRef::terms);
    problems.extend(login.iter().flat_map(|login| login.problems("spec.oidcConfigRef")));
    problems.extend(headers::problems(spec));
    problems.extend(spec.resources.iter().flat_map(quantity::problems));
    problems.extend(spec.resource_overrides.iter().flat_map(overrides::problems));
    problems
}

/// What is wrong with `spec.remoteUrl`, as far as its text says. A name may still lead to an address that the proxy refuses
/// when it calls it.
pub(super) fn remote_url_problem(proxy: &MCPRemoteProxy, settings: &Settings) -> Option<Problem> {
    let spec = &proxy.spec;
    let policy = EndpointPolicy::new(spec.allow_private_endpoint, settings.exempt_endpoints.clone());
    let error = policy.check_url(&spec.remote_url).err()?;
    Some(Problem::new("spec.remoteUrl", error.to_string()))
}
