//! How callers prove who they are, as the virtual server reads it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How callers prove who they are, and what they may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IncomingAuthConfig {
    /// What callers may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz: Option<IncomingAuthzConfig>,
    /// How tokens are checked, for type `oidc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<IncomingOidcConfig>,
    /// Whether callers prove who they are: `oidc`, `local` or `anonymous`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// What callers may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IncomingAuthzConfig {
    /// The Cedar entities that policies refer to, as a JSON array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entities_json: Option<String>,
    /// The claim of a token that lists the caller's groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_claim_name: Option<String>,
    /// The Cedar entity type that groups become in policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_entity_type: Option<String>,
    /// The Cedar policies, one statement each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<Vec<String>>,
    /// Whose claims policies see when there are several upstream providers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_upstream_provider: Option<String>,
    /// The claim of a token that lists the caller's roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_claim_name: Option<String>,
    /// What decides: `cedar` or `none`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// How the tokens of callers are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IncomingOidcConfig {
    /// The audience that a token must be issued for.
    pub audience: String,
    /// A file with the authorities that the provider's certificate may come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_path: Option<String>,
    /// The name under which the virtual server is known to the provider, for introspection.
    pub client_id: String,
    /// The environment variable with the secret that goes with `clientId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_env: Option<String>,
    /// Allows http in the addresses of the provider. For development only: anyone on the path can forge its keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_allow_http: Option<bool>,
    /// Where tokens that are no JWTs are checked (RFC 7662). Without it, such tokens are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub introspection_url: Option<String>,
    /// The issuer of the tokens, exactly as their `iss` claim has it.
    #[schemars(regex(pattern = "^https?://"))]
    pub issuer: String,
    /// Allows the provider's addresses to resolve to private ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_allow_private_ip: Option<bool>,
    /// Where the provider publishes its keys. Found through its discovery document when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// Allows the address of the protected resource to resolve to a private one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protected_resource_allow_private_ip: Option<bool>,
    /// The address of the virtual server as its protected-resource metadata (RFC 9728) states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The scopes that the protected-resource metadata offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
}
