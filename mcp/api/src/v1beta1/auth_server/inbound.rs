//! Grants by which a caller gets a token without a browser.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::SecretKeyRef;

/// The grants that are offered, with who may use them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InboundGrants {
    /// JWTs as authorization grants (RFC 7523).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt_bearer: Option<JwtBearerGrants>,
    /// Workloads that authenticate as clients with their SPIFFE identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub spiffe_client_auth: Option<Vec<SpiffeClient>>,
    /// Token exchange (RFC 8693).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_exchange: Option<TokenExchangeGrants>,
}

/// Who may exchange which tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenExchangeGrants {
    /// Clients that act on behalf of users, with a secret each.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub delegate_clients: Option<Vec<DelegateClient>>,
    /// What tokens of other issuers are exchanged for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub issuer_policies: Option<Vec<TokenExchangeIssuerPolicy>>,
}

/// A client that acts on behalf of users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.clientSecretRef) && size(self.clientSecretRef.name) > 0 && size(self.clientSecretRef.key) > 0",
    "message": "clientSecretRef.name and clientSecretRef.key are required and must be non-empty",
}]))]
pub struct DelegateClient {
    /// The audiences that it may ask tokens for.
    #[schemars(length(min = 1, max = 10), inner(length(min = 1, max = 2048)), extend("x-kubernetes-list-type" = "atomic"))]
    pub audiences: Vec<String>,
    /// The id of the client.
    #[schemars(length(min = 1, max = 256))]
    pub client_id: String,
    /// The secret of the client.
    pub client_secret_ref: SecretKeyRef,
    /// The scopes that it may ask for.
    #[schemars(length(min = 1, max = 10), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub scopes: Vec<String>,
}

/// Which tokens of one issuer are exchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!('*' in self.allowedDelegateClients) || size(self.allowedDelegateClients) == 1",
        "message": "allowedDelegateClients must not combine the wildcard \"*\" with specific client IDs",
    },
    {
        "rule": "!(has(self.allowMayAct) && self.allowMayAct && '*' in self.allowedDelegateClients)",
        "message": "allowMayAct must not be enabled when allowedDelegateClients contains the wildcard \"*\"",
    },
    {
        "rule": "!has(self.actorClaim) || !(self.actorClaim in ['sub', 'iss', 'aud', 'exp', 'iat', 'nbf', 'jti', 'name', 'email', 'scope', 'scp', 'may_act'])",
        "message": "actorClaim must name a readable claim; use client_id or a non-reserved claim such as azp, appid, or cid",
    },
]))]
pub struct TokenExchangeIssuerPolicy {
    /// The claim that names the client a token was issued to. `client_id` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub actor_claim: Option<String>,
    /// A CEL expression over the claims that decides whether the actor may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub actor_matcher: Option<String>,
    /// Whether the `may_act` claim of a token (RFC 8693 section 4.4) allows the actor that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_may_act: Option<bool>,
    /// The actors that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub allowed_actors: Option<Vec<String>>,
    /// The clients that may exchange tokens of this issuer; `*` alone is all of them.
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub allowed_delegate_clients: Vec<String>,
    /// The audience that a token has to be issued for.
    #[schemars(length(min = 1, max = 2048))]
    pub expected_audience: String,
    /// The name of the issuer in `trustedIssuers`.
    #[schemars(length(min = 1, max = 253))]
    pub issuer_ref: String,
}

/// Whose JWTs are authorization grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwtBearerGrants {
    /// What JWTs of other issuers grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub issuer_policies: Option<Vec<JwtBearerIssuerPolicy>>,
}

/// What JWTs of one issuer grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "duration(self.maxAssertionAge) > duration('0s')",
        "message": "maxAssertionAge must be greater than zero",
    },
    {
        "rule": "self.subjectBindings.all(binding, self.subjectBindings.filter(other, other.subject == binding.subject).size() == 1)",
        "message": "subjectBindings must not contain duplicate subjects",
    },
]))]
pub struct JwtBearerIssuerPolicy {
    /// The audiences that a JWT may be issued for. The token endpoint when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 2048), regex(pattern = "^https?://[^[:space:]]+$")), extend("x-kubernetes-list-type" = "atomic"))]
    pub accepted_audiences: Option<Vec<String>>,
    /// The name of the issuer in `trustedIssuers`.
    #[schemars(length(min = 1, max = 253))]
    pub issuer_ref: String,
    /// How old a JWT may be, as a duration such as `5m`.
    pub max_assertion_age: String,
    /// The subjects whose JWTs are accepted, with what each may reach.
    #[schemars(length(min = 1, max = 50), extend("x-kubernetes-list-type" = "atomic"))]
    pub subject_bindings: Vec<SubjectBinding>,
}

/// What one subject may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectBinding {
    /// The resources (RFC 8707) that its tokens may be for.
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 2048), regex(pattern = "^https?://[^[:space:]]+$")), extend("x-kubernetes-list-type" = "atomic"))]
    pub allowed_resources: Vec<String>,
    /// The `sub` claim.
    #[schemars(length(min = 1, max = 256), regex(pattern = "^[^*]+$"))]
    pub subject: String,
}

/// Workloads that authenticate as one client with their SPIFFE identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.principalPattern.split('/').all(segment, segment != '.' && segment != '..')",
    "message": "principalPattern path must not contain . or .. segments",
}]))]
pub struct SpiffeClient {
    /// The audiences that the client may ask tokens for.
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 2048)), extend("x-kubernetes-list-type" = "set"))]
    pub audiences: Vec<String>,
    /// The id of the client.
    #[schemars(length(min = 1, max = 253))]
    pub client_id: String,
    /// How the workloads prove who they are.
    #[schemars(length(min = 1, max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub methods: Vec<SpiffeMethod>,
    /// The SPIFFE ids of the workloads. `/*` at the end stands for any path below.
    #[schemars(length(max = 2048), regex(pattern = "^spiffe://[a-z0-9._-]+((/[a-zA-Z0-9._-]+)+(/\\*)?|/\\*)$"))]
    pub principal_pattern: String,
    /// The resources (RFC 8707) that its tokens may be for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 2048), regex(pattern = "^https?://[^@#[:space:]]+$")), extend("x-kubernetes-list-type" = "set"))]
    pub resources: Option<Vec<String>>,
    /// The scopes that the client may ask for.
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "set"))]
    pub scopes: Vec<String>,
    /// The name of the trust domain in `spiffeTrustDomains`.
    #[schemars(length(min = 1, max = 253))]
    pub trust_domain_ref: String,
}

string_enum! {
    /// SPIFFE documents that prove an identity.
    pub enum SpiffeMethod {
        /// An X.509-SVID as the client certificate.
        X509 = "spiffe_x509",
        /// A JWT-SVID as the client assertion.
        Jwt = "spiffe_jwt",
    }
}
