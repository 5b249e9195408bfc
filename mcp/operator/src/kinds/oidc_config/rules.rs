//! The rules of an MCPOIDCConfig that its schema cannot say, in ToolHive's words where it has them (toolhive-auth §2).

use http::Uri;
use mcp_api::v1beta1::{InlineOidcConfig, KubernetesServiceAccountConfig, MCPOIDCConfigSpec, OidcConfigType};
use mcp_plan::{
    problem::Problem,
    reference::{bundle, incomplete_key},
    settings::Settings,
};
use mcp_runconfig::{
    endpoint::{EndpointError, EndpointPolicy},
    paths::{hidden_directory, is_of_account, is_plain},
};

use super::login;

/// The name of the issuer's URL in messages.
const ISSUER: &str = "OIDC issuer URL";
/// The name of the URL of its keys in messages.
const KEYS: &str = "JWKS URL";
/// The names of the Kubernetes API inside its cluster.
const API: [&str; 2] = ["kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];

/// An address that the proxy calls to check tokens.
struct Address<'a> {
    field: &'static str,
    /// Its name in messages.
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

/// The problems of its URLs: addresses that a proxy may not call. The Kubernetes API is allowed where the proxy has an
/// account for it, and an issuer that is only a name: where the keys have an address of their own.
pub(super) fn endpoint_problems(spec: &MCPOIDCConfigSpec, settings: &Settings) -> Vec<Problem> {
    let cluster = login::cluster(spec);
    let (addresses, own, allow_private) = match (spec.kind, &spec.inline) {
        (OidcConfigType::KubernetesServiceAccount, _) => {
            let own = login::uses_account(&cluster);
            (of_cluster(&cluster), own, own)
        }
        (OidcConfigType::Inline, Some(inline)) => (of_provider(inline), false, inline.jwks_allow_private_ip),
        (OidcConfigType::Inline, None) => return Vec::new(),
    };
    let policy = EndpointPolicy::new(allow_private, settings.exempt_endpoints.clone());
    let judged = called(addresses).filter(|address| !(own && is_api(address.url)));
    judged.filter_map(|address| address.endpoint_problem(&policy)).collect()
}

/// The URLs that the proxy calls: an issuer with keys elsewhere is only compared by name.
fn called(addresses: Vec<Address<'_>>) -> impl Iterator<Item = Address<'_>> {
    let has_keys = addresses.iter().any(|address| address.what == KEYS);
    addresses.into_iter().filter(move |address| !(address.what == ISSUER && has_keys))
}

/// Warnings about valid settings that do less than their author may think, or let in more.
pub(super) fn warnings(spec: &MCPOIDCConfigSpec) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |field: &str, message: &str| warnings.push(format!("{field}: {message}"));
    match (spec.kind, &spec.inline) {
        (OidcConfigType::KubernetesServiceAccount, _) => {
            let cluster = login::cluster(spec);
            if login::uses_account(&cluster) {
                for Address { field, url, .. } in called(of_cluster(&cluster)).filter(|address| !is_api(address.url)) {
                    let message =
                        format!("{url:?} is shown the token by which the proxy's pod calls the Kubernetes API");
                    warn(field, &format!("{message}; set useClusterAuth: false where it is another server"));
                }
            }
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
            if written(inline.jwks_auth_token_path.as_ref()).is_some() {
                warn("spec.inline.jwksAuthTokenPath", "whoever answers at the URLs of this provider gets the token");
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
        ("spec.kubernetesServiceAccount.issuer", ISSUER, issuer),
        ("spec.kubernetesServiceAccount.jwksUrl", KEYS, written(cluster.jwks_url.as_ref())),
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
        ("spec.inline.issuer", ISSUER, Some(&*inline.issuer)),
        ("spec.inline.jwksUrl", KEYS, written(inline.jwks_url.as_ref())),
        ("spec.inline.introspectionUrl", "introspection URL", written(inline.introspection_url.as_ref())),
    ];
    all.into_iter().filter_map(|(field, what, url)| Some(Address { field, what, url: url?, http })).collect()
}

/// Whether it is the Kubernetes API of the cluster, by the name that every pod knows.
fn is_api(url: &str) -> bool {
    let uri = url.parse::<Uri>().ok();
    uri.as_ref().and_then(Uri::host).is_some_and(|host| API.contains(&host))
}

/// An empty URL is the same as none.
fn written(url: Option<&String>) -> Option<&str> {
    url.map(String::as_str).filter(|url| !url.is_empty())
}

fn provider_problems(inline: &InlineOidcConfig, problems: &mut Vec<Problem>) {
    let secret = inline.client_secret_ref.as_ref();
    let incomplete = secret.and_then(|secret| incomplete_key(&secret.name, &secret.key));
    problems.extend(incomplete.map(|message| Problem::new("spec.inline.clientSecretRef", message)));
    let bundle = inline.ca_bundle_ref.as_ref();
    problems.extend(bundle.and_then(|bundle| bundle::problem(bundle, "spec.inline.caBundleRef")));
    if let Some(path) = written(inline.jwks_auth_token_path.as_ref()) {
        let field = "spec.inline.jwksAuthTokenPath";
        if !path.starts_with('/') {
            let message = format!("{path:?} is not an absolute path; name a file in the proxy's container");
            problems.push(Problem::new(field, message));
        } else if is_of_account(path) {
            // No URL of a provider may name the Kubernetes API.
            let message = "would show a provider the token by which the proxy's pod calls the Kubernetes API; name another file, or \
                           use type kubernetesServiceAccount where the API is the provider";
            problems.push(Problem::new(field, message));
        } else if let Some(directory) = hidden_directory(path) {
            let message = format!(
                "{path:?} is below {directory}, whose files no provider may see; name a file that is mounted for the provider"
            );
            problems.push(Problem::new(field, message));
        } else if !is_plain(path) {
            let message =
                format!("{path:?} is not a plain path; write it without //, /./, /../ and a slash at its end");
            problems.push(Problem::new(field, message));
        }
    }
}

// === impl Address ===

impl Address<'_> {
    /// Why the proxy may not call it, where its text is a URL.
    fn endpoint_problem(&self, policy: &EndpointPolicy) -> Option<Problem> {
        let Self { field, what, url, http } = *self;
        if self.problem().is_some() {
            return None;
        }
        let message = match (policy.check_url(url).err()?, http) {
            (EndpointError::Private(host), Some(_)) => format!(
                "{what} {url:?} host {host:?} is in a private network; name a public provider or set jwksAllowPrivateIP: true"
            ),
            (error, _) => format!("{what} {url:?} {error}"),
        };
        Some(Problem::new(field, message))
    }

    fn problem(&self) -> Option<Problem> {
        let Self { field, what, url, http } = *self;
        let uri = url.parse::<Uri>().ok();
        // RFC 9110 §4.2.4; the proxy does not start on one.
        if uri.as_ref().and_then(Uri::authority).is_some_and(|authority| authority.as_str().contains('@')) {
            return Some(Problem::new(field, format!("{what} has a user name in it; remove it")));
        }
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
