//! The rules of an MCPOIDCConfig that its schema cannot say, in ToolHive's words where it has them (toolhive-auth §2).

use http::Uri;
use mcp_api::v1beta1::{InlineOidcConfig, KubernetesServiceAccountConfig, MCPOIDCConfigSpec, OidcConfigType};

use super::login;
use crate::problem::Problem;

/// Longest name of a ConfigMap with a CA bundle: it is part of the name of a volume.
const MAX_BUNDLE_NAME: usize = 48;

/// An address that the proxy calls to check tokens.
struct Address<'a> {
    field: &'static str,
    /// What it is called in messages.
    what: &'static str,
    url: &'a str,
    /// Whether it may be one of http; `None` where no field can allow that.
    http: Option<bool>,
}

/// Every rule that the configuration breaks; empty when workloads may refer to it.
pub(super) fn problems(spec: &MCPOIDCConfigSpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    match (spec.kind, &spec.inline) {
        (OidcConfigType::KubernetesServiceAccount, _) => {
            problems.extend(of_cluster(&login::cluster(spec)).iter().filter_map(Address::problem));
        }
        (OidcConfigType::Inline, Some(inline)) => {
            problems.extend(of_provider(inline).iter().filter_map(Address::problem));
            provider_problems(inline, &mut problems);
        }
        (OidcConfigType::Inline, None) => {
            problems.push(Problem::new("spec.inline", "is missing; name the issuer of the tokens there"));
        }
    }
    problems
}

/// What is valid and does less than its author may think, or lets in more.
pub(super) fn warnings(spec: &MCPOIDCConfigSpec) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |field: &str, message: &str| warnings.push(format!("{field}: {message}"));
    match (spec.kind, &spec.inline) {
        (OidcConfigType::KubernetesServiceAccount, _) => {
            let cluster = login::cluster(spec);
            for (name, value) in [("namespace", &cluster.namespace), ("serviceAccount", &cluster.service_account)] {
                if value.as_deref().is_some_and(|value| !value.is_empty()) {
                    let message = "is not checked: every ServiceAccount with a token for the audience may call";
                    warn(&format!("spec.kubernetesServiceAccount.{name}"), message);
                }
            }
        }
        (OidcConfigType::Inline, Some(inline)) => {
            if inline.insecure_allow_http {
                warn("spec.inline.insecureAllowHTTP", "whoever is on the way to the provider can forge its keys");
            }
            if inline.client_secret_ref.is_some() && inline.client_id.as_deref().is_none_or(str::is_empty) {
                warn("spec.inline.clientSecretRef", "has no effect without clientId");
            }
            if inline.protected_resource_allow_private_ip {
                warn("spec.inline.protectedResourceAllowPrivateIP", "has no effect in this version");
            }
        }
        (OidcConfigType::Inline, None) => {}
    }
    warnings
}

fn of_cluster(cluster: &KubernetesServiceAccountConfig) -> Vec<Address<'_>> {
    let issuer = Some(login::issuer(cluster));
    let all = [
        ("spec.kubernetesServiceAccount.issuer", "OIDC issuer URL", issuer),
        ("spec.kubernetesServiceAccount.jwksUrl", "JWKS URL", written(cluster.jwks_url.as_ref())),
        (
            "spec.kubernetesServiceAccount.introspectionUrl",
            "introspection URL",
            written(cluster.introspection_url.as_ref()),
        ),
    ];
    let written = all.into_iter().filter_map(|(field, what, url)| Some(Address { field, what, url: url?, http: None }));
    written.collect()
}

fn of_provider(inline: &InlineOidcConfig) -> Vec<Address<'_>> {
    let http = Some(inline.insecure_allow_http);
    let all = [
        ("spec.inline.issuer", "OIDC issuer URL", Some(&*inline.issuer)),
        ("spec.inline.jwksUrl", "JWKS URL", written(inline.jwks_url.as_ref())),
        ("spec.inline.introspectionUrl", "introspection URL", written(inline.introspection_url.as_ref())),
    ];
    all.into_iter().filter_map(|(field, what, url)| Some(Address { field, what, url: url?, http })).collect()
}

/// An empty URL is the same as none.
fn written(url: Option<&String>) -> Option<&str> {
    url.map(String::as_str).filter(|url| !url.is_empty())
}

fn provider_problems(inline: &InlineOidcConfig, problems: &mut Vec<Problem>) {
    if let Some(secret) = &inline.client_secret_ref
        && (secret.name.is_empty() || secret.key.is_empty())
    {
        problems.push(Problem::new("spec.inline.clientSecretRef", "names no Secret or no key of it; set both"));
    }
    if let Some(bundle) = &inline.ca_bundle_ref {
        let field = "spec.inline.caBundleRef.configMapRef.name";
        let name = bundle.config_map_ref.as_ref().map_or("", |map| &map.name);
        if name.is_empty() {
            problems.push(Problem::new(field, "is empty; name the ConfigMap with the CA bundle"));
        } else if name.len() > MAX_BUNDLE_NAME {
            let message = format!(
                "configMapRef.name {name:?} is too long ({} chars); maximum is {MAX_BUNDLE_NAME} characters to fit in Kubernetes volume name",
                name.len()
            );
            problems.push(Problem::new(field, message));
        }
    }
    if let Some(path) = written(inline.jwks_auth_token_path.as_ref()).filter(|path| !path.starts_with('/')) {
        let message = format!("{path:?} is not an absolute path; name a file in the proxy's container");
        problems.push(Problem::new("spec.inline.jwksAuthTokenPath", message));
    }
}

// === impl Address ===

impl Address<'_> {
    fn problem(&self) -> Option<Problem> {
        let Self { field, what, url, http } = *self;
        let uri = url.parse::<Uri>().ok();
        let parts = uri.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.host().filter(|host| !host.is_empty())?)));
        let message = match (parts.map(|(scheme, _)| scheme), http) {
            (Some("https"), _) | (Some("http"), Some(true)) => return None,
            (None, _) => format!("{what} {url:?} is malformed: missing scheme or host"),
            (Some("http"), Some(false)) => format!(
                "{what} {url:?} uses HTTP scheme, which is insecure; use HTTPS or set insecureAllowHTTP: true for development only"
            ),
            (Some("http"), None) => format!("{what} {url:?} uses HTTP scheme, which is insecure; use HTTPS"),
            (Some(scheme), _) => format!("{what} {url:?} has unsupported scheme {scheme:?}; must be http or https"),
        };
        Some(Problem::new(field, message))
    }
}
