//! The identity providers that users sign in with.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::{CaBundleRef, SecretKeyRef};

/// One identity provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.type == 'oidc' ? (has(self.oidcConfig) && !has(self.oauth2Config)) : self.type == 'oauth2' ? (has(self.oauth2Config) && !has(self.oidcConfig)) : false",
    "message": "type must be 'oidc' or 'oauth2'; oidcConfig must be set when type is 'oidc' and oauth2Config must be set when type is 'oauth2' (and the other must not be set)",
}]))]
pub struct UpstreamProvider {
    /// The name of the provider, unique within the list.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,
    /// The provider, for type `oauth2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth2_config: Option<OAuth2Upstream>,
    /// The provider, for type `oidc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config: Option<OidcUpstream>,
    /// What the provider speaks.
    #[serde(rename = "type")]
    pub kind: UpstreamProviderType,
}

string_enum! {
    /// Protocols of identity providers.
    pub enum UpstreamProviderType {
        /// OpenID Connect, with a discovery document.
        Oidc = "oidc",
        /// OAuth 2.0 alone.
        OAuth2 = "oauth2",
    }
}

/// A provider that speaks OAuth 2.0 alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "(has(self.clientId) && size(self.clientId) > 0) ? !has(self.dcrConfig) : has(self.dcrConfig)",
        "message": "exactly one of clientId or dcrConfig must be set",
    },
    {
        "rule": "!has(self.dcrConfig) || (has(self.dcrConfig.discoveryUrl) != has(self.dcrConfig.registrationEndpoint))",
        "message": "exactly one of discoveryUrl or registrationEndpoint must be set when dcrConfig is set",
    },
    {
        "rule": "!(has(self.dcrConfig) && has(self.clientSecretRef))",
        "message": "clientSecretRef must not be set when dcrConfig is set; the client_secret is obtained at runtime via Dynamic Client Registration",
    },
]))]
pub struct OAuth2Upstream {
    /// Parameters that are added to authorization requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub additional_authorization_params: Option<BTreeMap<String, String>>,
    /// Parameters that are added to token requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub additional_token_params: Option<BTreeMap<String, String>>,
    /// Allows the provider's addresses to resolve to private ones.
    #[serde(rename = "allowPrivateIPs", skip_serializing_if = "Option::is_none")]
    pub allow_private_ips: Option<bool>,
    /// Where users sign in.
    #[schemars(regex(pattern = "^https?://.*$"))]
    pub authorization_endpoint: String,
    /// The authorities that the provider's certificate may come from, instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
    /// The id of the authorization server at the provider. Not together with `dcrConfig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The secret that goes with `clientId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretKeyRef>,
    /// How the authorization server registers itself at the provider, instead of `clientId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcr_config: Option<DynamicRegistration>,
    /// Where the token response says who the user is, instead of `userInfo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_from_token: Option<IdentityFromToken>,
    /// Allows http in the provider's addresses. For development only: anyone on the path can sign in as others.
    #[serde(rename = "insecureAllowHTTP", skip_serializing_if = "Option::is_none")]
    pub insecure_allow_http: Option<bool>,
    /// Leaves the scope out of refresh requests, for providers that refuse it there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omit_scope_on_refresh: Option<bool>,
    /// Where the provider sends users back to. The callback below the issuer when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    /// The scopes that are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub scopes: Option<Vec<String>>,
    /// Where codes become tokens.
    #[schemars(regex(pattern = "^https?://.*$"))]
    pub token_endpoint: String,
    /// How the authorization server authenticates at the token endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_endpoint_auth_method: Option<TokenEndpointAuthMethod>,
    /// Where the token response has its members, for providers that do not follow RFC 6749.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_response_mapping: Option<TokenResponseMapping>,
    /// Where the provider says who the user is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_info: Option<UserInfo>,
}

/// A provider that speaks OpenID Connect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "(has(self.clientId) && size(self.clientId) > 0) ? !has(self.dcrConfig) : has(self.dcrConfig)",
        "message": "exactly one of clientId or dcrConfig must be set",
    },
    {
        "rule": "!(has(self.dcrConfig) && has(self.clientSecretRef))",
        "message": "clientSecretRef must not be set when dcrConfig is set; the client_secret is obtained at runtime via Dynamic Client Registration",
    },
    {
        "rule": "!(has(self.dcrConfig) && has(self.dcrConfig.discoveryUrl) && has(self.dcrConfig.registrationEndpoint))",
        "message": "at most one of discoveryUrl or registrationEndpoint may be set",
    },
]))]
pub struct OidcUpstream {
    /// Parameters that are added to authorization requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub additional_authorization_params: Option<BTreeMap<String, String>>,
    /// Parameters that are added to token requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub additional_token_params: Option<BTreeMap<String, String>>,
    /// Allows the provider's addresses to resolve to private ones.
    #[serde(rename = "allowPrivateIPs", skip_serializing_if = "Option::is_none")]
    pub allow_private_ips: Option<bool>,
    /// The authorities that the provider's certificate may come from, instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
    /// The id of the authorization server at the provider. Not together with `dcrConfig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The secret that goes with `clientId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretKeyRef>,
    /// How the authorization server registers itself at the provider, instead of `clientId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcr_config: Option<DynamicRegistration>,
    /// The provider's issuer, below which its discovery document is.
    #[schemars(regex(pattern = "^https://.*$"))]
    pub issuer_url: String,
    /// Leaves the scope out of refresh requests, for providers that refuse it there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omit_scope_on_refresh: Option<bool>,
    /// Where the provider sends users back to. The callback below the issuer when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    /// The scopes that are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub scopes: Option<Vec<String>>,
    /// The claim of the ID token that identifies the user. `sub` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), regex(pattern = "^([a-zA-Z_][a-zA-Z0-9_]*)?$"))]
    pub subject_claim: Option<String>,
    /// Where the provider says who the user is, instead of the endpoint of its discovery document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_info_override: Option<UserInfo>,
}

/// How the authorization server registers itself at a provider (RFC 7591).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.discoveryUrl) && has(self.registrationEndpoint))",
    "message": "at most one of discoveryUrl or registrationEndpoint may be set",
}]))]
pub struct DynamicRegistration {
    /// The metadata document (RFC 8414) that names the registration endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = "^https://[^\\s?#]+[^/\\s?#]$"))]
    pub discovery_url: Option<String>,
    /// The token that the provider wants with a registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_access_token_ref: Option<SecretKeyRef>,
    /// Where clients are registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = "^https://[^\\s?#]+[^/\\s?#]$"))]
    pub registration_endpoint: Option<String>,
    /// How it is found out whether the provider still knows the registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registration_probe: Option<RegistrationProbe>,
    /// How often that is done, as a duration such as `1h`; at least 1m.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"), extend("x-kubernetes-validations" = [{
    "rule": "duration(self) >= duration('1m')",
    "message": "registrationProbeInterval must be at least 1m",
}]))]
    pub registration_probe_interval: Option<String>,
    /// Any text; a change of it registers anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = "^[A-Za-z0-9._-]+$"))]
    pub rotation_key: Option<String>,
    /// What identifies the software to the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub software_id: Option<String>,
    /// A signed statement about the software (RFC 7591 section 2.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub software_statement: Option<String>,
}

string_enum! {
    /// How it is found out whether a provider still knows a registration.
    pub enum RegistrationProbe {
        /// By a request to the token endpoint.
        TokenEndpoint = "tokenEndpoint",
        /// By a request to the authorization endpoint.
        AuthorizationEndpoint = "authorizationEndpoint",
        /// Not at all.
        None = "none",
    }
}

string_enum! {
    /// How a client authenticates at a token endpoint.
    pub enum TokenEndpointAuthMethod {
        /// Not at all.
        None = "none",
        /// With its secret in the `Authorization` header.
        ClientSecretBasic = "client_secret_basic",
        /// With its secret in the body.
        ClientSecretPost = "client_secret_post",
    }
}

/// Where a token response says who the user is, as paths with dots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityFromToken {
    /// The user's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub email_path: Option<String>,
    /// The user's name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub name_path: Option<String>,
    /// What identifies the user.
    #[schemars(length(min = 1, max = 256))]
    pub subject_path: String,
}

/// Where a token response has its members, as paths with dots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenResponseMapping {
    /// The access token.
    #[schemars(length(min = 1))]
    pub access_token_path: String,
    /// How many seconds it is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_path: Option<String>,
    /// The refresh token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token_path: Option<String>,
    /// The scope that was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope_path: Option<String>,
}

/// An endpoint that says who the owner of a token is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserInfo {
    /// Headers that are added to the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_headers: Option<BTreeMap<String, String>>,
    /// The address of the endpoint.
    #[schemars(regex(pattern = "^https?://.*$"))]
    pub endpoint_url: String,
    /// Where the answer has what is known about the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_mapping: Option<UserInfoMapping>,
    /// The method of the request. GET when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_method: Option<UserInfoMethod>,
}

string_enum! {
    /// Methods of a request to the endpoint.
    pub enum UserInfoMethod {
        /// GET.
        Get = "GET",
        /// POST.
        Post = "POST",
    }
}

/// Members of the answer; of each list, the first that is there counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserInfoMapping {
    /// The user's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub email_fields: Option<Vec<String>>,
    /// The user's name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub name_fields: Option<Vec<String>>,
    /// What identifies the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub subject_fields: Option<Vec<String>>,
}
