//! Who may call a server, and what they may do there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How tokens of callers are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcConfigRef {
    /// The audience a token must be issued for. Give each server its own, or a token for one opens the other.
    #[schemars(length(min = 1))]
    pub audience: String,
    /// The name of the MCPOIDCConfig.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The address of this server as its protected-resource metadata (RFC 9728) states it. The proxy Service's when
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_url: Option<String>,
    /// The scopes that the protected-resource metadata offers. `openid` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub scopes: Option<Vec<String>>,
}

/// Which configuration of an authorization server applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["kind", "name"]))] // the default comes first, so `kind` may still be left out
pub struct AuthServerRef {
    /// The kind of the referenced object.
    #[serde(default)]
    pub kind: AuthServerKind,
    /// The name of the referenced object.
    #[schemars(length(min = 1))]
    pub name: String,
}

string_enum! {
    /// Kinds that can describe an authorization server.
    #[derive(Default)]
    pub enum AuthServerKind {
        /// An MCPExternalAuthConfig of type `embeddedAuthServer`.
        #[default]
        McpExternalAuthConfig = "MCPExternalAuthConfig",
    }
}

/// Policies on what callers may do, written here or in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["type"], "x-kubernetes-validations" = [
    {
        "rule": "self.type == 'configMap' ? has(self.configMap) : !has(self.configMap)",
        "message": "configMap must be set when type is 'configMap', and must not be set otherwise",
    },
    {
        "rule": "self.type == 'inline' ? has(self.inline) : !has(self.inline)",
        "message": "inline must be set when type is 'inline', and must not be set otherwise",
    },
]))]
pub struct AuthzConfig {
    /// The ConfigMap with the policies, for type `configMap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<AuthzConfigMapRef>,
    /// The claim of a token that lists the caller's groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub group_claim_name: Option<String>,
    /// The Cedar entity type that groups become in policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub group_entity_type: Option<String>,
    /// The policies themselves, for type `inline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<InlineAuthzConfig>,
    /// The claim of a token that lists the caller's roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub role_claim_name: Option<String>,
    /// Where the policies are.
    #[serde(default, rename = "type")]
    pub kind: AuthzConfigType,
}

string_enum! {
    /// Where policies are written.
    #[derive(Default)]
    pub enum AuthzConfigType {
        /// In a ConfigMap.
        #[default]
        ConfigMap = "configMap",
        /// In the object itself.
        Inline = "inline",
    }
}

/// A ConfigMap with policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthzConfigMapRef {
    /// The key of the ConfigMap that holds the document.
    #[serde(default = "AuthzConfigMapRef::default_key")]
    pub key: String,
    /// The name of the ConfigMap.
    pub name: String,
}

impl AuthzConfigMapRef {
    fn default_key() -> String {
        "authz.json".into()
    }
}

/// Cedar policies and entities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlineAuthzConfig {
    /// The Cedar entities that policies refer to, as a JSON array.
    #[serde(default = "InlineAuthzConfig::default_entities")]
    pub entities_json: String,
    /// The Cedar policies, one statement each.
    #[schemars(length(min = 1), extend("x-kubernetes-list-type" = "atomic"))]
    pub policies: Vec<String>,
    /// Whose claims policies see when the embedded authorization server has several upstream providers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub primary_upstream_provider: Option<String>,
}

impl InlineAuthzConfig {
    fn default_entities() -> String {
        "[]".into()
    }
}
