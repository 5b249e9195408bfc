//! MCPExternalAuthConfig: the credential that the server behind a proxy gets.
#![allow(clippy::duplicated_attributes, reason = "printer columns have the same type")]

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigStatus, auth_server::EmbeddedAuthServer};
use crate::reference::SecretKeyRef;

/// The credential of requests to a server, and where it comes from.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "toolhive.stacklok.dev",
    version = "v1beta1",
    kind = "MCPExternalAuthConfig",
    namespaced,
    status = "ConfigStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "extauth",
    shortname = "mcpextauth",
    category = "toolhive",
    doc = "MCPExternalAuthConfig says with which credential the servers behind the workloads that refer to it are called.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Valid", type_ = "string", json_path = ".status.conditions[?(@.type=='Valid')].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.type == 'tokenExchange' ? has(self.tokenExchange) : !has(self.tokenExchange)",
        "message": "tokenExchange configuration must be set if and only if type is 'tokenExchange'",
    },
    {
        "rule": "self.type == 'headerInjection' ? has(self.headerInjection) : !has(self.headerInjection)",
        "message": "headerInjection configuration must be set if and only if type is 'headerInjection'",
    },
    {
        "rule": "self.type == 'bearerToken' ? has(self.bearerToken) : !has(self.bearerToken)",
        "message": "bearerToken configuration must be set if and only if type is 'bearerToken'",
    },
    {
        "rule": "self.type == 'embeddedAuthServer' ? has(self.embeddedAuthServer) : !has(self.embeddedAuthServer)",
        "message": "embeddedAuthServer configuration must be set if and only if type is 'embeddedAuthServer'",
    },
    {
        "rule": "self.type == 'awsSts' ? has(self.awsSts) : !has(self.awsSts)",
        "message": "awsSts configuration must be set if and only if type is 'awsSts'",
    },
    {
        "rule": "self.type == 'upstreamInject' ? has(self.upstreamInject) : !has(self.upstreamInject)",
        "message": "upstreamInject configuration must be set if and only if type is 'upstreamInject'",
    },
    {
        "rule": "self.type == 'obo' ? has(self.obo) : !has(self.obo)",
        "message": "obo configuration must be set if and only if type is 'obo'",
    },
    {
        "rule": "self.type == 'xaa' ? has(self.xaa) : !has(self.xaa)",
        "message": "xaa configuration must be set if and only if type is 'xaa'",
    },
    {
        "rule": "self.type == 'unauthenticated' ? (!has(self.tokenExchange) && !has(self.headerInjection) && !has(self.bearerToken) && !has(self.embeddedAuthServer) && !has(self.awsSts) && !has(self.upstreamInject) && !has(self.obo) && !has(self.xaa)) : true",
        "message": "no configuration must be set when type is 'unauthenticated'",
    },
]))]
pub struct ExternalAuthSpec {
    /// Temporary credentials of AWS, for type `awsSts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_sts: Option<AwsSts>,
    /// A token that is the same for every caller, for type `bearerToken`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_token: Option<BearerToken>,
    /// An authorization server in the proxy itself, for type `embeddedAuthServer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedded_auth_server: Option<EmbeddedAuthServer>,
    /// A header with a secret value, for type `headerInjection`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_injection: Option<HeaderInjection>,
    /// Microsoft Entra's on-behalf-of flow, for type `obo`, which no build of this operator has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obo: Option<Obo>,
    /// A token for the caller's token, for type `tokenExchange`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_exchange: Option<TokenExchange>,
    /// The origin of the credential.
    #[serde(rename = "type")]
    pub kind: ExternalAuthType,
    /// The token of a provider at which the caller has logged in, for type `upstreamInject`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_inject: Option<UpstreamInject>,
    /// Cross-application access by identity assertions, for type `xaa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xaa: Option<Xaa>,
}

absent_spec_is_default!(ExternalAuthSpec);

string_enum! {
    /// Origins of a credential.
    #[derive(Default)]
    pub enum ExternalAuthType {
        /// The caller's token, exchanged (RFC 8693).
        #[default]
        TokenExchange = "tokenExchange",
        /// A header with a secret value.
        HeaderInjection = "headerInjection",
        /// A token that is the same for every caller.
        BearerToken = "bearerToken",
        /// No credential at all.
        Unauthenticated = "unauthenticated",
        /// An authorization server in the proxy itself.
        EmbeddedAuthServer = "embeddedAuthServer",
        /// Temporary credentials of AWS, by which requests are signed.
        AwsSts = "awsSts",
        /// The token of a provider at which the caller has logged in.
        UpstreamInject = "upstreamInject",
        /// Microsoft Entra's on-behalf-of flow.
        Obo = "obo",
        /// Cross-application access by identity assertions.
        Xaa = "xaa",
    }
}

/// A token that a provider gives for the caller's token (RFC 8693).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenExchange {
    /// The audience of the token that is asked for: the server behind the proxy.
    pub audience: String,
    /// The name under which the proxy is known to the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The secret that goes with `clientId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretKeyRef>,
    /// The header that gets the token, instead of `Authorization`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_token_header_name: Option<String>,
    /// The scopes that are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub scopes: Option<Vec<String>>,
    /// The provider of the embedded authorization server whose token is exchanged, on a VirtualMCPServer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_provider_name: Option<String>,
    /// The type of the caller's token, short or as a URN. An access token when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(
        pattern = "^(access_token|id_token|jwt|urn:ietf:params:oauth:token-type:(access_token|id_token|jwt))?$"
    ))]
    pub subject_token_type: Option<String>,
    /// The token endpoint of the provider.
    pub token_url: String,
}

/// A header with a secret value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderInjection {
    /// The name of the header.
    #[schemars(length(min = 1))]
    pub header_name: String,
    /// The Secret and the key with the value.
    pub value_secret_ref: SecretKeyRef,
}

/// A token that is the same for every caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BearerToken {
    /// The Secret and the key with the token.
    pub token_secret_ref: SecretKeyRef,
}

/// Temporary credentials of AWS, which STS gives for the caller's token, and by which requests are signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwsSts {
    /// The role of a caller whom no mapping fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^arn:(aws|aws-cn|aws-us-gov):iam::\d{12}:role/[\w+=,.@\-_/]+$"))]
    pub fallback_role_arn: Option<String>,
    /// The region of STS and of the signature.
    #[schemars(length(min = 1), regex(pattern = r"^[a-z]{2}(-[a-z]+)+-\d+$"))]
    pub region: String,
    /// The claim whose values mappings name.
    #[serde(default = "AwsSts::default_role_claim")]
    pub role_claim: String,
    /// The roles of callers. The lowest priority is looked at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub role_mappings: Option<Vec<RoleMapping>>,
    /// The service that the signature is for.
    #[serde(default = "AwsSts::default_service")]
    pub service: String,
    /// The seconds for which credentials are asked for.
    #[serde(default = "AwsSts::default_session_duration")]
    #[schemars(range(min = 900, max = 43200))]
    pub session_duration: i32,
    /// The claim that names the session.
    #[serde(default = "AwsSts::default_session_name_claim")]
    pub session_name_claim: String,
    /// The provider of the embedded authorization server whose token STS gets, on a VirtualMCPServer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_provider_name: Option<String>,
}

impl AwsSts {
    fn default_role_claim() -> String {
        "groups".into()
    }

    fn default_service() -> String {
        "aws-mcp".into()
    }

    const fn default_session_duration() -> i32 {
        3600
    }

    fn default_session_name_claim() -> String {
        "sub".into()
    }
}

/// The role of those callers whose token has a value in the role claim, or satisfies an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleMapping {
    /// A value of the role claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub claim: Option<String>,
    /// A CEL expression over `claims`, such as `"admins" in claims["groups"]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub matcher: Option<String>,
    /// The place of the mapping among the others, the lowest first. Last when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub priority: Option<i32>,
    /// The role that such callers get.
    #[schemars(regex(pattern = r"^arn:(aws|aws-cn|aws-us-gov):iam::\d{12}:role/[\w+=,.@\-_/]+$"))]
    pub role_arn: String,
}

/// The token of a provider at which the caller has logged in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamInject {
    /// The provider of the embedded authorization server whose token is sent.
    #[schemars(length(min = 1))]
    pub provider_name: String,
}

/// Microsoft Entra's on-behalf-of flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Obo {
    /// The audience of the token that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The address of the authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^https://[^\s?#@]+[^/\s?#@]$"))]
    pub authority: Option<String>,
    /// The time before its end at which a token is asked for anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_skew: Option<String>,
    /// The name under which the proxy is known to the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The secret that goes with `clientId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretKeyRef>,
    /// The scopes that are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub scopes: Option<Vec<String>>,
    /// The provider of the embedded authorization server whose token is exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub subject_token_provider_name: Option<String>,
    /// The tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 253),
        regex(
            pattern = r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,})$"
        )
    )]
    pub tenant_id: Option<String>,
}

/// Cross-application access: the caller's provider asserts who calls, and the target's provider gives a token for that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Xaa {
    /// The name under which the proxy is known to the caller's provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idp_client_id: Option<String>,
    /// The secret that goes with `idpClientId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idp_client_secret_ref: Option<SecretKeyRef>,
    /// The token endpoint of the caller's provider.
    #[schemars(regex(pattern = "^https://.*$"))]
    pub idp_token_url: String,
    /// Allows http in `targetTokenUrl`. For development only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_target_token_url: Option<bool>,
    /// The scopes that are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub scopes: Option<Vec<String>>,
    /// The provider of the embedded authorization server whose identity token is asserted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_provider_name: Option<String>,
    /// The type of that token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_token_type: Option<XaaTokenType>,
    /// The audience of the assertion: the target's provider.
    pub target_audience: String,
    /// The name under which the proxy is known to the target's provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_client_id: Option<String>,
    /// The secret that goes with `targetClientId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_client_secret_ref: Option<SecretKeyRef>,
    /// The resource that the token is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_resource: Option<String>,
    /// The token endpoint of the target's provider.
    pub target_token_url: String,
}

string_enum! {
    /// Types of tokens that are asserted.
    pub enum XaaTokenType {
        /// An identity token.
        IdToken = "urn:ietf:params:oauth:token-type:id_token",
    }
}
