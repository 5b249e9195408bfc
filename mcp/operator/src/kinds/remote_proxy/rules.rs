//! Rules of MCPRemoteProxy that its schema cannot say.

use http::Uri;
use mcp_api::v1beta1::MCPRemoteProxy;
use mcp_plan::{
    additions::Additions,
    problem::Problem,
    settings::Settings,
    workload::{
        overrides::{self, is_dns_label},
        pod_template,
        proxy_template::{self, CONTAINER},
        quantity,
    },
};
use mcp_runconfig::endpoint::{EndpointError, EndpointPolicy};

use super::{headers, names};
use crate::config::LoginTerms;

/// Every rule that the proxy breaks, `spec.remoteUrl` and what keeps `spec.podTemplateSpec` from being read aside.
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
    let url = spec.remote_url.parse::<Uri>().ok().filter(|url| !matches!(url.path(), "" | "/"));
    let no_paths = url.map(|_| "the path of spec.remoteUrl replaces every other");
    problems.extend(Additions::of(proxy.metadata.annotations.as_ref()).problems(no_paths));
    let login = spec.oidc_config_ref.as_ref().map(LoginTerms::from);
    problems.extend(login.iter().flat_map(|login| login.problems("spec.oidcConfigRef")));
    problems.extend(headers::problems(spec));
    problems.extend(spec.resources.iter().flat_map(quantity::problems));
    problems.extend(spec.resource_overrides.iter().flat_map(overrides::problems));
    let template = spec.pod_template_spec.as_ref().map(|template| pod_template::decode(template, CONTAINER));
    let template = template.and_then(Result::ok);
    problems.extend(template.iter().flat_map(|template| proxy_template::problems(&template.known)));
    problems
}

/// The problem of `spec.remoteUrl`, as far as its text shows it. A name may still lead to an address that the proxy
/// refuses when it calls it.
pub(super) fn remote_url_problem(proxy: &MCPRemoteProxy, settings: &Settings) -> Option<Problem> {
    let spec = &proxy.spec;
    let api = settings.kubernetes_api.as_deref();
    let kubernetes_api = api.and_then(|host| host.parse().ok());
    let policy = EndpointPolicy {
        kubernetes_api,
        ..EndpointPolicy::new(spec.allow_private_endpoint, settings.exempt_endpoints.clone())
    };
    // Some clusters give the API a name, whose address the policy does not know.
    let name = api.filter(|_| kubernetes_api.is_none());
    let named = || api_name(&spec.remote_url, name?).map(EndpointError::Forbidden);
    let error = policy.check_url(&spec.remote_url).err().or_else(named)?;
    Some(Problem::new("spec.remoteUrl", error.to_string()))
}

/// The host of `url`, where it is the name `api`.
fn api_name(url: &str, api: &str) -> Option<String> {
    let host = url.parse::<Uri>().ok()?.host()?.to_owned();
    host.trim_end_matches('.').eq_ignore_ascii_case(api.trim_end_matches('.')).then_some(host)
}
