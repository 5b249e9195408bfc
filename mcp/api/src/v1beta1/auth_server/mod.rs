//! The authorization server that runs inside of a proxy.

mod inbound;
mod storage;
mod trust;
mod upstream;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    inbound::{
        DelegateClient, InboundGrants, JwtBearerGrants, JwtBearerIssuerPolicy, SpiffeClient, SpiffeMethod,
        SubjectBinding, TokenExchangeGrants, TokenExchangeIssuerPolicy,
    },
    storage::{
        AuthServerRedis, AuthServerStorage, AuthServerStorageType, RedisAclUser, RedisSentinel, RedisSentinelService,
        RedisTls,
    },
    trust::{
        JwtBearerGrant, SpiffeBundleEndpoint, SpiffeBundleFile, SpiffeBundleProfile, SpiffeBundleSource,
        SpiffeBundleType, SpiffeTrustDomain, SpiffeWorkloadApi, TrustedIssuer,
    },
    upstream::{
        DynamicRegistration, IdentityFromToken, OAuth2Upstream, OidcUpstream, RegistrationProbe,
        TokenEndpointAuthMethod, TokenResponseMapping, UpstreamProvider, UpstreamProviderType, UserInfo,
        UserInfoMapping, UserInfoMethod,
    },
};
use crate::reference::SecretKeyRef;

/// An OAuth 2.1 authorization server for the callers of the proxy it runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "(has(self.upstreamProviders) && size(self.upstreamProviders) > 0) || (has(self.delegateClients) && size(self.delegateClients) > 0) || (has(self.trustedIssuers) && self.trustedIssuers.exists(issuer, has(issuer.jwtBearerGrant))) || (has(self.inboundGrants) && (has(self.inboundGrants.tokenExchange) || has(self.inboundGrants.jwtBearer) || (has(self.inboundGrants.spiffeClientAuth) && size(self.inboundGrants.spiffeClientAuth) > 0)))",
        "message": "at least one upstream provider or inbound grant family is required",
    },
    {
        "rule": "((has(self.spiffeTrustDomains) && size(self.spiffeTrustDomains) > 0) == (has(self.inboundGrants) && has(self.inboundGrants.spiffeClientAuth) && size(self.inboundGrants.spiffeClientAuth) > 0))",
        "message": "spiffeTrustDomains and inboundGrants.spiffeClientAuth must be configured together",
    },
    {
        "rule": "!has(self.spiffeTrustDomains) || self.spiffeTrustDomains.all(domain, self.spiffeTrustDomains.filter(other, other.name == domain.name).size() == 1)",
        "message": "spiffeTrustDomains must not contain duplicate names",
    },
    {
        "rule": "!has(self.spiffeTrustDomains) || self.spiffeTrustDomains.all(domain, self.spiffeTrustDomains.filter(other, other.trustDomain == domain.trustDomain).size() == 1)",
        "message": "spiffeTrustDomains must not contain duplicate trust domains",
    },
    {
        "rule": "!has(self.spiffeTrustDomains) || self.spiffeTrustDomains.all(domain, has(self.inboundGrants) && has(self.inboundGrants.spiffeClientAuth) && self.inboundGrants.spiffeClientAuth.exists(client, client.trustDomainRef == domain.name))",
        "message": "every SPIFFE trust domain must be referenced by a SPIFFE client",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.spiffeClientAuth) || self.inboundGrants.spiffeClientAuth.all(client, has(self.spiffeTrustDomains) && self.spiffeTrustDomains.exists(domain, domain.name == client.trustDomainRef))",
        "message": "every SPIFFE client trustDomainRef must reference a declared trust domain",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.spiffeClientAuth) || self.inboundGrants.spiffeClientAuth.all(client, !has(self.spiffeTrustDomains) || !self.spiffeTrustDomains.exists(domain, domain.name == client.trustDomainRef) || self.spiffeTrustDomains.exists(domain, domain.name == client.trustDomainRef && client.methods.all(method, method in domain.methods)))",
        "message": "spiffeClientAuth methods must be enabled by the referenced trust domain",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.spiffeClientAuth) || self.inboundGrants.spiffeClientAuth.all(client, !has(self.spiffeTrustDomains) || !self.spiffeTrustDomains.exists(domain, domain.name == client.trustDomainRef) || self.spiffeTrustDomains.exists(domain, domain.name == client.trustDomainRef && client.principalPattern.startsWith('spiffe://' + domain.trustDomain + '/')))",
        "message": "spiffeClientAuth principalPattern trust domain must match the referenced trust domain",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.spiffeClientAuth) || self.inboundGrants.spiffeClientAuth.all(client, self.inboundGrants.spiffeClientAuth.filter(other, other.clientId == client.clientId).size() == 1)",
        "message": "spiffeClientAuth must not contain duplicate client IDs",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.spiffeClientAuth) || self.inboundGrants.spiffeClientAuth.all(client, self.inboundGrants.spiffeClientAuth.filter(other, other.principalPattern == client.principalPattern).size() == 1)",
        "message": "spiffeClientAuth must not contain duplicate principal patterns",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.spiffeClientAuth) || self.inboundGrants.spiffeClientAuth.all(client, !client.clientId.startsWith('synthetic:'))",
        "message": "spiffeClientAuth clientId must not use the reserved synthetic: prefix",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.spiffeClientAuth) || self.inboundGrants.spiffeClientAuth.all(client, !client.clientId.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+'))",
        "message": "spiffeClientAuth clientId must not be an absolute URL",
    },
    {
        "rule": "!(has(self.insecureAllowHTTP) && self.insecureAllowHTTP && ((has(self.allowConfidentialClientRegistration) && self.allowConfidentialClientRegistration) || (has(self.delegateClients) && size(self.delegateClients) > 0) || (has(self.inboundGrants) && has(self.inboundGrants.tokenExchange) && has(self.inboundGrants.tokenExchange.delegateClients) && size(self.inboundGrants.tokenExchange.delegateClients) > 0)))",
        "message": "insecureAllowHTTP cannot be combined with confidential client registration or delegateClients; client secrets would be issued or used in cleartext over an unauthenticated endpoint",
    },
    {
        "rule": "(!has(self.forceConfidentialRedirectUris) || size(self.forceConfidentialRedirectUris) == 0) || (has(self.allowConfidentialClientRegistration) && self.allowConfidentialClientRegistration)",
        "message": "forceConfidentialRedirectUris requires allowConfidentialClientRegistration to be true",
    },
    {
        "rule": "!self.issuer.startsWith('http://') || (has(self.insecureAllowConfidentialOverLoopbackHTTP) && self.insecureAllowConfidentialOverLoopbackHTTP) || ((!has(self.allowConfidentialClientRegistration) || !self.allowConfidentialClientRegistration) && (!has(self.delegateClients) || size(self.delegateClients) == 0) && (!has(self.inboundGrants) || !has(self.inboundGrants.tokenExchange) || !has(self.inboundGrants.tokenExchange.delegateClients) || size(self.inboundGrants.tokenExchange.delegateClients) == 0))",
        "message": "confidential client registration or delegateClients with an HTTP issuer require insecureAllowConfidentialOverLoopbackHTTP to be explicitly enabled; the issuer must still be loopback",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.tokenExchange) || ((!has(self.delegateClients) || size(self.delegateClients) == 0) && (!has(self.trustedIssuers) || !self.trustedIssuers.exists(issuer, has(issuer.expectedAudience) || has(issuer.actorClaim) || has(issuer.allowedActors) || has(issuer.actorMatcher) || has(issuer.allowedDelegateClients) || (has(issuer.allowMayAct) && issuer.allowMayAct))))",
        "message": "canonical tokenExchange conflicts with legacy delegateClients or RFC 8693 trusted issuer policy",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.jwtBearer) || !has(self.trustedIssuers) || !self.trustedIssuers.exists(issuer, has(issuer.jwtBearerGrant))",
        "message": "canonical jwtBearer conflicts with legacy jwtBearerGrant",
    },
    {
        "rule": "!has(self.trustedIssuers) || self.trustedIssuers.all(issuer, !has(issuer.name) || self.trustedIssuers.filter(other, has(other.name) && other.name == issuer.name).size() == 1)",
        "message": "trustedIssuers must not contain duplicate names",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.tokenExchange) || !has(self.inboundGrants.tokenExchange.issuerPolicies) || self.inboundGrants.tokenExchange.issuerPolicies.all(policy, has(self.trustedIssuers) && self.trustedIssuers.exists(issuer, has(issuer.name) && issuer.name == policy.issuerRef))",
        "message": "every tokenExchange issuerRef must reference a named trusted issuer",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.tokenExchange) || !has(self.inboundGrants.tokenExchange.issuerPolicies) || self.inboundGrants.tokenExchange.issuerPolicies.all(policy, self.inboundGrants.tokenExchange.issuerPolicies.filter(other, other.issuerRef == policy.issuerRef).size() == 1)",
        "message": "tokenExchange issuerPolicies must not contain duplicate issuerRef values",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.jwtBearer) || !has(self.inboundGrants.jwtBearer.issuerPolicies) || self.inboundGrants.jwtBearer.issuerPolicies.all(policy, has(self.trustedIssuers) && self.trustedIssuers.exists(issuer, has(issuer.name) && issuer.name == policy.issuerRef))",
        "message": "every jwtBearer issuerRef must reference a named trusted issuer",
    },
    {
        "rule": "!has(self.inboundGrants) || !has(self.inboundGrants.jwtBearer) || !has(self.inboundGrants.jwtBearer.issuerPolicies) || self.inboundGrants.jwtBearer.issuerPolicies.all(policy, self.inboundGrants.jwtBearer.issuerPolicies.filter(other, other.issuerRef == policy.issuerRef).size() == 1)",
        "message": "jwtBearer issuerPolicies must not contain duplicate issuerRef values",
    },
]))]
#[expect(clippy::struct_excessive_bools, reason = "its members are the contract's")]
pub struct EmbeddedAuthServer {
    /// Allows clients that register themselves (RFC 7591) to get a client secret.
    #[serde(default)]
    pub allow_confidential_client_registration: bool,
    /// Allows clients that register themselves to authenticate with a key of their own (`private_key_jwt`).
    #[serde(rename = "allowPrivateKeyJWTRegistration", default)]
    pub allow_private_key_jwt_registration: bool,
    /// The base of the authorization endpoint, where browsers reach it under another address. `issuer` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^https?://[^\\s?#]+[^/\\s?#]$"))]
    pub authorization_endpoint_base_url: Option<String>,
    /// The scopes that every client has which registers itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10), inner(length(min = 1), regex(pattern = "^[\\x21\\x23-\\x5B\\x5D-\\x7E]+$")), extend("x-kubernetes-list-type" = "atomic"))]
    pub baseline_client_scopes: Option<Vec<String>>,
    /// Whether a client may use the URL of its metadata document as its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cimd: Option<Cimd>,
    /// Deprecated: use `inboundGrants.tokenExchange.delegateClients`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub delegate_clients: Option<Vec<DelegateClient>>,
    /// Keeps the tokens of upstream providers from the servers behind the proxy.
    #[serde(default)]
    pub disable_upstream_token_injection: bool,
    /// Redirect URIs whose clients are registered with a client secret whether they ask for one or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10), inner(regex(pattern = "^https://[^\\s?#]+$")), extend("x-kubernetes-list-type" = "atomic"))]
    pub force_confidential_redirect_uris: Option<Vec<String>>,
    /// The secrets that sign authorization codes and refresh tokens. The first signs; the others still verify. Absent,
    /// a random one that ends with the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub hmac_secret_refs: Option<Vec<SecretKeyRef>>,
    /// Grants by which a caller gets a token without a browser.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbound_grants: Option<InboundGrants>,
    /// Allows client secrets with an http issuer on a loopback address. For development only.
    #[serde(rename = "insecureAllowConfidentialOverLoopbackHTTP", default)]
    pub insecure_allow_confidential_over_loopback_http: bool,
    /// Allows an http issuer that is no loopback address. For development only: anyone on the path can read codes and
    /// tokens.
    #[serde(rename = "insecureAllowHTTP", default)]
    pub insecure_allow_http: bool,
    /// The issuer of the tokens, which is the address that clients reach the server under.
    #[schemars(regex(pattern = "^https?://[^\\s?#]+[^/\\s?#]$"))]
    pub issuer: String,
    /// The upstream provider whose claims policies see. The first when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub primary_upstream_provider: Option<String>,
    /// How many clients may register themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registration_rate_limit: Option<RegistrationRateLimit>,
    /// The private keys that sign access tokens. The first signs; the others still verify. Absent, one that ends with
    /// the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "atomic"))]
    pub signing_key_secret_refs: Option<Vec<SecretKeyRef>>,
    /// SPIFFE trust domains whose workloads may authenticate as clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 50), extend("x-kubernetes-list-type" = "atomic"))]
    pub spiffe_trust_domains: Option<Vec<SpiffeTrustDomain>>,
    /// Where sessions and registered clients are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<AuthServerStorage>,
    /// A second listener with a certificate of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_listener: Option<TlsListener>,
    /// How long codes and tokens are valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_lifespans: Option<TokenLifespans>,
    /// Other issuers whose tokens can be exchanged here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub trusted_issuers: Option<Vec<TrustedIssuer>>,
    /// The identity providers that users sign in with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub upstream_providers: Option<Vec<UpstreamProvider>>,
}

/// Client ID metadata documents: the id of a client is the URL of a document about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["enabled"]))]
pub struct Cimd {
    /// How long a document is kept that does not say how long it may be, as a duration such as `5m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub cache_fallback_ttl: Option<String>,
    /// How many documents are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::integer", range(min = 1))]
    pub cache_max_size: Option<i64>,
    /// Whether such clients are accepted.
    #[serde(default)]
    pub enabled: bool,
}

/// A bucket that registrations draw from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "duration(self.refillPeriod) > duration('0s')",
    "message": "registrationRateLimit.refillPeriod must be positive",
}]))]
pub struct RegistrationRateLimit {
    /// How many registrations a full bucket allows at once.
    #[schemars(range(min = 1))]
    pub max_tokens: i32,
    /// How long an empty bucket takes to fill up, as a duration such as `1m0s`.
    pub refill_period: String,
}

/// The certificate of the second listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsListener {
    /// The PEM certificate chain.
    pub certificate_secret_ref: SecretKeyRef,
    /// The PEM private key of the certificate.
    pub private_key_secret_ref: SecretKeyRef,
}

/// How long codes and tokens are valid, as durations such as `1h`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenLifespans {
    /// How long an access token is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub access_token_lifespan: Option<String>,
    /// How long an authorization code is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub auth_code_lifespan: Option<String>,
    /// How long a refresh token is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub refresh_token_lifespan: Option<String>,
}
