//! The part of an MCPOIDCConfig that the proxy reads (toolhive-auth §2.1), with the files that it needs.

use std::borrow::Cow;

use mcp_api::v1beta1::{KubernetesServiceAccountConfig, MCPOIDCConfigSpec, OidcConfigType, SecretKeyRef};
use mcp_plan::{
    config::Target,
    reference::{MountedFile, bundle},
};
use mcp_runconfig::{OidcConfig, paths::ACCOUNT};

use crate::config::LoginTerms;

/// The cluster as an issuer.
const CLUSTER: &str = "https://kubernetes.default.svc";
/// Where CA bundles are mounted.
const BUNDLES: &str = "/config/certs";

/// The configuration that the proxy of a workload reads.
pub(super) fn login(spec: &MCPOIDCConfigSpec, target: &Target, terms: &LoginTerms) -> OidcConfig {
    let login = OidcConfig {
        audience: terms.audience.clone(),
        resource_url: terms.resource_url.clone().unwrap_or_else(|| origin(&target.url).to_owned()),
        scopes: terms.scopes.clone(),
        ..OidcConfig::default()
    };
    match (spec.kind, &spec.inline) {
        (OidcConfigType::KubernetesServiceAccount, _) => {
            let cluster = cluster(spec);
            let own = |file: &str| format!("{ACCOUNT}/{file}");
            let (ca, token) = if uses_account(&cluster) { (own("ca.crt"), own("token")) } else { Default::default() };
            OidcConfig {
                issuer: issuer(&cluster).to_owned(),
                jwks_url: cluster.jwks_url.clone().unwrap_or_default(),
                introspection_url: cluster.introspection_url.clone().unwrap_or_default(),
                ca_cert_path: ca,
                auth_token_file: token,
                // The address of the API server is a private one.
                allow_private_ip: uses_account(&cluster),
                ..login
            }
        }
        (OidcConfigType::Inline, None) => login,
        (OidcConfigType::Inline, Some(inline)) => OidcConfig {
            issuer: inline.issuer.clone(),
            jwks_url: inline.jwks_url.clone().unwrap_or_default(),
            introspection_url: inline.introspection_url.clone().unwrap_or_default(),
            client_id: inline.client_id.clone().unwrap_or_default(),
            ca_cert_path: ca_bundle(spec).map(|file| file.path()).unwrap_or_default(),
            auth_token_file: inline.jwks_auth_token_path.clone().unwrap_or_default(),
            allow_private_ip: inline.jwks_allow_private_ip,
            insecure_allow_http: inline.insecure_allow_http,
            ..login
        },
    }
}

/// The block for the cluster as an issuer; one that is left out says what an empty one says.
pub(super) fn cluster(spec: &MCPOIDCConfigSpec) -> Cow<'_, KubernetesServiceAccountConfig> {
    spec.kubernetes_service_account.as_ref().map_or_else(Cow::default, Cow::Borrowed)
}

/// The issuer of the cluster's tokens.
pub(super) fn issuer(cluster: &KubernetesServiceAccountConfig) -> &str {
    if cluster.issuer.is_empty() { CLUSTER } else { &cluster.issuer }
}

/// Whether keys are fetched with the CA and the token of the proxy's pod.
pub(super) fn uses_account(cluster: &KubernetesServiceAccountConfig) -> bool {
    cluster.use_cluster_auth != Some(false)
}

/// Whether the proxy reads files of its pod's ServiceAccount.
pub(super) fn needs_account(spec: &MCPOIDCConfigSpec) -> bool {
    spec.kind == OidcConfigType::KubernetesServiceAccount && uses_account(&cluster(spec))
}

/// The client secret that it names.
pub(super) fn client_secret(spec: &MCPOIDCConfigSpec) -> Option<&SecretKeyRef> {
    let inline = spec.inline.as_ref().filter(|_| spec.kind == OidcConfigType::Inline)?;
    inline.client_secret_ref.as_ref()
}

/// The CA bundle that it names.
pub(super) fn ca_bundle(spec: &MCPOIDCConfigSpec) -> Option<MountedFile> {
    let inline = spec.inline.as_ref().filter(|_| spec.kind == OidcConfigType::Inline)?;
    bundle::file(inline.ca_bundle_ref.as_ref()?, "oidc-ca-bundle", BUNDLES)
}

/// The scheme, host and port of a URL. As the name of a resource it covers every path of the proxy.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |at| host + at);
    &url[..end]
}
