//! How the virtual server proves who it is to the servers behind it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the servers behind are called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutgoingAuthConfig {
    /// For single servers, by their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backends: Option<BTreeMap<String, BackendAuthStrategy>>,
    /// For all servers that `backends` does not name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<BackendAuthStrategy>,
    /// Where the other answers come from: `discovered` or `inline`.
    pub source: String,
}

/// How one server is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendAuthStrategy {
    /// Signs requests with credentials of AWS, for type `aws_sts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_sts: Option<AwsStsStrategy>,
    /// Adds a header, for type `header_injection`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_injection: Option<HeaderInjectionStrategy>,
    /// Exchanges the caller's token on behalf of the caller, for type `obo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obo: Option<OboStrategy>,
    /// Exchanges the caller's token (RFC 8693), for type `token_exchange`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_exchange: Option<TokenExchangeStrategy>,
    /// Which of these it is, or `unauthenticated`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Passes on the caller's token of an upstream provider, for type `upstream_inject`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_inject: Option<UpstreamInjectStrategy>,
    /// Asks the caller's identity provider for access (cross-app access), for type `xaa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xaa: Option<XaaStrategy>,
}

/// Credentials of AWS for a role that the caller's claims decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwsStsStrategy {
    /// The role of callers that no mapping fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_role_arn: Option<String>,
    /// The AWS region.
    pub region: String,
    /// The claim that mappings look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_claim: Option<String>,
    /// Which claims mean which role.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub role_mappings: Option<Vec<AwsRoleMapping>>,
    /// The AWS service that requests are signed for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// How many seconds the credentials are valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_duration: Option<i32>,
    /// The claim that names the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_name_claim: Option<String>,
    /// The upstream provider whose token is exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_provider_name: Option<String>,
}

/// The role of some callers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwsRoleMapping {
    /// The value of the claim. Not together with `matcher`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// A CEL expression over the claims. Not together with `claim`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matcher: Option<String>,
    /// The mapping with the lowest number counts where several fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::integer")]
    pub priority: Option<i64>,
    /// The role that they get.
    pub role_arn: String,
}

/// A header that is added to each request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderInjectionStrategy {
    /// The name of the header.
    pub header_name: String,
    /// The value, in clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_value: Option<String>,
    /// The environment variable with the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_value_env: Option<String>,
}

/// The on-behalf-of flow of Microsoft Entra.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OboStrategy {
    /// The audience that the new token is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// How many seconds before its end a token is no longer used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_skew_seconds: Option<i32>,
    /// The id of the virtual server at the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The secret that goes with `clientId`, in clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// The environment variable with the secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_env: Option<String>,
    /// The scopes that are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub scopes: Option<Vec<String>>,
    /// The upstream provider whose token is exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_token_provider_name: Option<String>,
    /// The token endpoint.
    pub token_url: String,
}

/// Token exchange (RFC 8693).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenExchangeStrategy {
    /// The audience that the new token is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The id of the virtual server at the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The secret that goes with `clientId`, in clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// The environment variable with the secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_env: Option<String>,
    /// The scopes that are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub scopes: Option<Vec<String>>,
    /// The upstream provider whose token is exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_provider_name: Option<String>,
    /// What the caller's token is. An access token when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_token_type: Option<String>,
    /// The token endpoint.
    pub token_url: String,
}

/// The caller's token of an upstream provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamInjectStrategy {
    /// The name of the provider.
    pub provider_name: String,
}

/// Cross-app access: the caller's identity provider grants access to another's resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct XaaStrategy {
    /// The id of the virtual server at the identity provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idp_client_id: Option<String>,
    /// The secret that goes with `idpClientId`, in clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idp_client_secret: Option<String>,
    /// The environment variable with that secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idp_client_secret_env: Option<String>,
    /// The token endpoint of the identity provider.
    pub idp_token_url: String,
    /// Allows http for `targetTokenUrl`. For development only: anyone on the path can read the tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_target_token_url: Option<bool>,
    /// The scopes that are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub scopes: Option<Vec<String>>,
    /// The upstream provider whose token is exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_provider_name: Option<String>,
    /// What the caller's token is. An ID token when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_token_type: Option<String>,
    /// The issuer of the target's authorization server.
    pub target_audience: String,
    /// The id of the virtual server at the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_client_id: Option<String>,
    /// The secret that goes with `targetClientId`, in clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_client_secret: Option<String>,
    /// The environment variable with that secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_client_secret_env: Option<String>,
    /// The resource (RFC 8707) that the token is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_resource: Option<String>,
    /// The token endpoint of the target's authorization server.
    pub target_token_url: String,
}
