//! MCPOIDCConfig: how the tokens of callers are checked.
#![allow(clippy::duplicated_attributes, reason = "printer columns have the same type")]

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigStatus;
use crate::reference::{CaBundleRef, SecretKeyRef};

/// Who issues the tokens that callers show, and how they are checked.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "toolhive.stacklok.dev",
    version = "v1beta1",
    kind = "MCPOIDCConfig",
    namespaced,
    status = "ConfigStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "mcpoidc",
    category = "toolhive",
    doc = "MCPOIDCConfig says whose tokens open the workloads that refer to it, and how they are checked.",
    printcolumn(name = "Source", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Valid", type_ = "string", json_path = ".status.conditions[?(@.type=='Valid')].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.type == 'kubernetesServiceAccount' ? has(self.kubernetesServiceAccount) : !has(self.kubernetesServiceAccount)",
        "message": "kubernetesServiceAccount must be set when type is 'kubernetesServiceAccount', and must not be set otherwise",
    },
    {
        "rule": "self.type == 'inline' ? has(self.inline) : !has(self.inline)",
        "message": "inline must be set when type is 'inline', and must not be set otherwise",
    },
]))]
pub struct MCPOIDCConfigSpec {
    /// The identity provider, for type `inline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<InlineOidcConfig>,
    /// The cluster as the identity provider, for type `kubernetesServiceAccount`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes_service_account: Option<KubernetesServiceAccountConfig>,
    /// Where tokens come from.
    #[serde(rename = "type")]
    pub kind: OidcConfigType,
}

absent_spec_is_default!(MCPOIDCConfigSpec);

string_enum! {
    /// Where the tokens of callers come from.
    #[derive(Default)]
    pub enum OidcConfigType {
        /// From the cluster: callers are ServiceAccounts.
        KubernetesServiceAccount = "kubernetesServiceAccount",
        /// From the identity provider that the object describes.
        #[default]
        Inline = "inline",
    }
}

/// An OpenID Connect provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlineOidcConfig {
    /// The authorities that the provider's certificate may come from, instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
    /// The name under which the proxy itself is known to the provider, for introspection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The secret that goes with `clientId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretKeyRef>,
    /// Allows http in the addresses of the provider. For development only: anyone on the path can forge its keys.
    #[serde(default, rename = "insecureAllowHTTP")]
    pub insecure_allow_http: bool,
    /// Where tokens that are no JWTs are checked (RFC 7662). Without it, such tokens are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub introspection_url: Option<String>,
    /// The issuer of the tokens, exactly as their `iss` claim has it.
    pub issuer: String,
    /// Allows the provider's addresses to resolve to private ones.
    #[serde(default, rename = "jwksAllowPrivateIP")]
    pub jwks_allow_private_ip: bool,
    /// A file in the proxy's container with a token that is sent when keys are fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_auth_token_path: Option<String>,
    /// Where the provider publishes its keys. Found through the issuer's discovery document when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// Allows the address of the protected resource to resolve to a private one.
    #[serde(default, rename = "protectedResourceAllowPrivateIP")]
    pub protected_resource_allow_private_ip: bool,
}

/// The cluster as the issuer of ServiceAccount tokens. Empty, it is the cluster that the proxy runs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesServiceAccountConfig {
    /// Where tokens that are no JWTs are checked (RFC 7662). Without it, such tokens are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub introspection_url: Option<String>,
    /// The issuer of the tokens, exactly as their `iss` claim has it.
    #[serde(default = "KubernetesServiceAccountConfig::default_issuer")]
    pub issuer: String,
    /// Where the cluster publishes its keys. Found through the issuer's discovery document when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// The namespace of the ServiceAccount that callers use. Not checked: the audience limits who may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the ServiceAccount that callers use. Not checked: the audience limits who may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Whether the proxy fetches keys with the CA and the token of its own pod. Yes when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_cluster_auth: Option<bool>,
}

impl KubernetesServiceAccountConfig {
    fn default_issuer() -> String {
        "https://kubernetes.default.svc".into()
    }
}

impl Default for KubernetesServiceAccountConfig {
    /// The schema's defaults.
    fn default() -> Self {
        Self {
            introspection_url: None,
            issuer: Self::default_issuer(),
            jwks_url: None,
            namespace: None,
            service_account: None,
            use_cluster_auth: None,
        }
    }
}
