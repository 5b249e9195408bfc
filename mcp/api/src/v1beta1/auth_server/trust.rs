//! Whom the authorization server trusts: other issuers, and SPIFFE trust domains.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SpiffeMethod, SubjectBinding};
use crate::reference::CaBundleRef;

/// An issuer whose tokens can be exchanged. Its policies are in `inboundGrants`, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.allowedDelegateClients) || !('*' in self.allowedDelegateClients) || size(self.allowedDelegateClients) == 1",
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
    {
        "rule": "!(has(self.allowPrivateIPs) && self.allowPrivateIPs) || (has(self.jwksUrl) && self.jwksUrl != \"\")",
        "message": "allowPrivateIPs requires jwksUrl to be set explicitly",
    },
    {
        "rule": "!((has(self.actorClaim) && size(self.actorClaim) > 0) || (has(self.actorMatcher) && size(self.actorMatcher) > 0) || (has(self.allowMayAct) && self.allowMayAct) || (has(self.allowedActors) && size(self.allowedActors) > 0) || (has(self.allowedDelegateClients) && size(self.allowedDelegateClients) > 0)) || (has(self.expectedAudience) && size(self.expectedAudience) > 0)",
        "message": "expectedAudience is required when legacy RFC 8693 policy is configured",
    },
    {
        "rule": "!((has(self.expectedAudience) && size(self.expectedAudience) > 0) || (has(self.actorClaim) && size(self.actorClaim) > 0) || (has(self.actorMatcher) && size(self.actorMatcher) > 0) || (has(self.allowMayAct) && self.allowMayAct) || (has(self.allowedActors) && size(self.allowedActors) > 0)) || (has(self.allowedDelegateClients) && size(self.allowedDelegateClients) > 0)",
        "message": "allowedDelegateClients is required when legacy RFC 8693 policy is configured",
    },
]))]
pub struct TrustedIssuer {
    /// Deprecated: use `inboundGrants.tokenExchange.issuerPolicies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub actor_claim: Option<String>,
    /// Deprecated: use `inboundGrants.tokenExchange.issuerPolicies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub actor_matcher: Option<String>,
    /// Deprecated: use `inboundGrants.tokenExchange.issuerPolicies`.
    #[serde(default)]
    pub allow_may_act: bool,
    /// Allows `jwksUrl` to resolve to a private address.
    #[serde(rename = "allowPrivateIPs", skip_serializing_if = "Option::is_none")]
    pub allow_private_ips: Option<bool>,
    /// Deprecated: use `inboundGrants.tokenExchange.issuerPolicies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub allowed_actors: Option<Vec<String>>,
    /// Deprecated: use `inboundGrants.tokenExchange.issuerPolicies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub allowed_delegate_clients: Option<Vec<String>>,
    /// The authorities that the issuer's certificate may come from, instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
    /// Deprecated: use `inboundGrants.tokenExchange.issuerPolicies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub expected_audience: Option<String>,
    /// Allows http in the issuer's addresses. For development only: anyone on the path can forge its keys.
    #[serde(rename = "insecureAllowHTTP", skip_serializing_if = "Option::is_none")]
    pub insecure_allow_http: Option<bool>,
    /// The issuer of the tokens, exactly as their `iss` claim has it.
    #[schemars(length(min = 1, max = 2048))]
    pub issuer_url: String,
    /// Where the issuer publishes its keys. Found through its discovery document when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub jwks_url: Option<String>,
    /// Deprecated: use `inboundGrants.jwtBearer.issuerPolicies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt_bearer_grant: Option<JwtBearerGrant>,
    /// The name by which policies refer to this issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
}

/// What JWTs of the issuer grant.
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
pub struct JwtBearerGrant {
    /// The audiences that a JWT may be issued for. The token endpoint when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 2048), regex(pattern = "^https?://[^[:space:]]+$")), extend("x-kubernetes-list-type" = "atomic"))]
    pub accepted_audiences: Option<Vec<String>>,
    /// How old a JWT may be, as a duration such as `5m`.
    pub max_assertion_age: String,
    /// The subjects whose JWTs are accepted, with what each may reach.
    #[schemars(length(min = 1, max = 50), extend("x-kubernetes-list-type" = "atomic"))]
    pub subject_bindings: Vec<SubjectBinding>,
}

/// A SPIFFE trust domain whose workloads may authenticate as clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpiffeTrustDomain {
    /// Where the keys of the trust domain come from.
    pub bundle_source: SpiffeBundleSource,
    /// How its workloads may prove who they are.
    #[schemars(length(min = 1, max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub methods: Vec<SpiffeMethod>,
    /// The name by which clients refer to this trust domain.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The trust domain, without `spiffe://`.
    #[schemars(
        length(min = 1, max = 255),
        regex(pattern = "^([a-z0-9_]|[a-z0-9_]([a-z0-9_-]|\\.[a-z0-9_-])*[a-z0-9_])$")
    )]
    pub trust_domain: String,
}

/// Where the keys of a trust domain come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.type == 'bundle_endpoint' ? has(self.endpoint) : !has(self.endpoint)",
        "message": "endpoint configuration must be set if and only if type is 'bundle_endpoint'",
    },
    {
        "rule": "self.type == 'file' ? has(self.file) : !has(self.file)",
        "message": "file configuration must be set if and only if type is 'file'",
    },
    {
        "rule": "self.type == 'workload_api' ? has(self.workloadAPI) : !has(self.workloadAPI)",
        "message": "workloadAPI configuration must be set if and only if type is 'workload_api'",
    },
]))]
pub struct SpiffeBundleSource {
    /// The endpoint, for type `bundle_endpoint`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<SpiffeBundleEndpoint>,
    /// The ConfigMap, for type `file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<SpiffeBundleFile>,
    /// What kind of source this is.
    #[serde(rename = "type")]
    pub kind: SpiffeBundleType,
    /// The Workload API, for type `workload_api`.
    #[serde(rename = "workloadAPI", skip_serializing_if = "Option::is_none")]
    pub workload_api: Option<SpiffeWorkloadApi>,
}

string_enum! {
    /// Kinds of sources.
    pub enum SpiffeBundleType {
        /// A SPIFFE bundle endpoint.
        BundleEndpoint = "bundle_endpoint",
        /// A document in a ConfigMap.
        File = "file",
        /// The Workload API on the proxy's node.
        WorkloadApi = "workload_api",
    }
}

/// A SPIFFE bundle endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpiffeBundleEndpoint {
    /// How the endpoint proves who it is.
    pub profile: SpiffeBundleProfile,
    /// The address of the endpoint.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
}

string_enum! {
    /// How a bundle endpoint proves who it is.
    pub enum SpiffeBundleProfile {
        /// With a certificate of a public authority.
        HttpsWeb = "https_web",
        /// With an X.509-SVID of the trust domain.
        HttpsSpiffe = "https_spiffe",
    }
}

/// A SPIFFE bundle in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpiffeBundleFile {
    /// The key of the ConfigMap that holds the bundle.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[A-Za-z0-9._-]+$"), extend("x-kubernetes-validations" = [{
    "rule": "self != '.' && !self.startsWith('..')",
}]))]
    pub config_map_key: String,
    /// The name of the ConfigMap.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub config_map_name: String,
}

/// The Workload API on the proxy's node. It has nothing to choose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpiffeWorkloadApi {}
