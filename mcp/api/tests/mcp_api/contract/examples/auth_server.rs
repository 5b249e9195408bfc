//! `$EmbeddedAuth`: one with the canonical grants, one with the deprecated ones, and one for what is left to choose.

use serde_json::{Value, json};

use super::secret_key;

/// With one provider, canonical grants and a Redis at an address.
pub(super) fn canonical() -> Value {
    let mut config = json!({
        "allowConfidentialClientRegistration": true,
        "allowPrivateKeyJWTRegistration": true,
        "authorizationEndpointBaseUrl": "https://login.example",
        "baselineClientScopes": ["openid"],
        "cimd": {"cacheFallbackTtl": "5m", "cacheMaxSize": 100, "enabled": true},
        "disableUpstreamTokenInjection": true,
        "forceConfidentialRedirectUris": ["https://client.example/callback"],
        "hmacSecretRefs": [secret_key()],
        "insecureAllowConfidentialOverLoopbackHTTP": true,
        "insecureAllowHTTP": false,
        "issuer": "https://auth.example",
        "primaryUpstreamProvider": "idp",
        "registrationRateLimit": {"maxTokens": 10, "refillPeriod": "1m0s"},
        "signingKeySecretRefs": [secret_key()],
        "storage": {
            "maxDCRClients": 100,
            "type": "redis",
            "redis": {
                "aclUserConfig": {"passwordSecretRef": secret_key(), "usernameSecretRef": secret_key()},
                "addr": "redis:6379", "clusterMode": true,
                "dialTimeout": "1s", "readTimeout": "2s", "writeTimeout": "4s",
                "tls": {"caCertSecretRef": secret_key(), "insecureSkipVerify": false},
            },
        },
        "tlsListener": {"certificateSecretRef": secret_key(), "privateKeySecretRef": secret_key()},
        "tokenLifespans": {"accessTokenLifespan": "1h", "authCodeLifespan": "10m", "refreshTokenLifespan": "168h"},
        "trustedIssuers": [{
            "name": "partner", "issuerUrl": "https://partner.example", "jwksUrl": "https://partner.example/keys",
            "allowMayAct": false, "allowPrivateIPs": true, "insecureAllowHTTP": true, "caBundleRef": ca_bundle(),
        }],
        "upstreamProviders": [provider("idp", "oidcConfig", oidc_by_id())],
    });
    config["inboundGrants"] = json!({
        "jwtBearer": {"issuerPolicies": [with_issuer(jwt_bearer())]},
        "spiffeClientAuth": [spiffe_client("spiffe_x509")],
        "tokenExchange": {
            "delegateClients": [delegate_client()],
            "issuerPolicies": [with_issuer(exchange_policy())],
        },
    });
    let endpoint = json!({"profile": "https_web", "url": "https://bundle.example"});
    config["spiffeTrustDomains"] =
        spiffe_trust_domains("spiffe_x509", json!({"type": "bundle_endpoint", "endpoint": endpoint}));
    config
}

/// With a provider for each other way to register, deprecated grants and a Redis behind sentinels.
pub(super) fn deprecated() -> Value {
    let mut issuer = exchange_policy();
    issuer["issuerUrl"] = json!("https://partner.example");
    issuer["jwtBearerGrant"] = jwt_bearer();
    let file = json!({"configMapKey": "bundle.json", "configMapName": "bundles"});
    json!({
        "delegateClients": [delegate_client()],
        "inboundGrants": {"spiffeClientAuth": [spiffe_client("spiffe_jwt")]},
        "issuer": "https://auth.example",
        "spiffeTrustDomains": spiffe_trust_domains("spiffe_jwt", json!({"type": "file", "file": file})),
        "storage": {
            "redis": {
                "aclUserConfig": {"passwordSecretRef": secret_key()},
                "sentinelConfig": {
                    "db": 1, "masterName": "main", "sentinelAddrs": ["sentinel:26379"],
                    "sentinelService": {"name": "sentinels", "namespace": "redis", "port": 26380},
                },
                "sentinelTls": {"caCertSecretRef": secret_key(), "insecureSkipVerify": false},
            },
        },
        "trustedIssuers": [issuer],
        "upstreamProviders": [
            provider("first", "oauth2Config", oauth2_by_id()),
            provider("second", "oauth2Config", oauth2(&registration("discoveryUrl"))),
            provider("third", "oauth2Config", oauth2(&registration("registrationEndpoint"))),
            provider("fourth", "oidcConfig", oidc(&registration("discoveryUrl"))),
            provider("fifth", "oidcConfig", oidc(&registration("registrationEndpoint"))),
        ],
    })
}

/// With no provider, and the Workload API.
pub(super) fn without_users() -> Value {
    json!({
        "inboundGrants": {"spiffeClientAuth": [spiffe_client("spiffe_x509")]},
        "issuer": "https://auth.example",
        "spiffeTrustDomains": spiffe_trust_domains("spiffe_x509", json!({"type": "workload_api", "workloadAPI": {}})),
    })
}

pub(super) fn ca_bundle() -> Value {
    json!({"configMapRef": {"name": "provider-ca", "key": "ca.crt", "optional": false}})
}

/// A provider whose configuration is `config`, under the member for its type.
pub(super) fn provider(name: &str, member: &str, config: Value) -> Value {
    json!({"name": name, "type": member.trim_end_matches("Config"), member: config})
}

fn oidc_by_id() -> Value {
    oidc(&json!({"clientId": "server", "clientSecretRef": secret_key()}))
}

/// An OpenID Connect provider with every member but those of `client`, which are added.
fn oidc(client: &Value) -> Value {
    let mut config = json!({
        "additionalAuthorizationParams": {"prompt": "login"},
        "additionalTokenParams": {"resource": "a"},
        "allowPrivateIPs": true,
        "caBundleRef": ca_bundle(),
        "issuerUrl": "https://idp.example",
        "omitScopeOnRefresh": true,
        "redirectUri": "https://auth.example/oauth/callback",
        "scopes": ["openid"],
        "subjectClaim": "oid",
        "userInfoOverride": user_info(),
    });
    crate::contract::document::merge(&mut config, client);
    config
}

fn oauth2_by_id() -> Value {
    oauth2(&json!({"clientId": "server", "clientSecretRef": secret_key()}))
}

/// An OAuth 2.0 provider with every member but those of `client`, which are added.
fn oauth2(client: &Value) -> Value {
    let mut config = json!({
        "additionalAuthorizationParams": {"prompt": "login"},
        "additionalTokenParams": {"resource": "a"},
        "allowPrivateIPs": true,
        "authorizationEndpoint": "https://idp.example/authorize",
        "caBundleRef": ca_bundle(),
        "identityFromToken": {"emailPath": "user.email", "namePath": "user.name", "subjectPath": "user.id"},
        "insecureAllowHTTP": true,
        "omitScopeOnRefresh": true,
        "redirectUri": "https://auth.example/oauth/callback",
        "scopes": ["read"],
        "tokenEndpoint": "https://idp.example/token",
        "tokenEndpointAuthMethod": "client_secret_post",
        "tokenResponseMapping": {
            "accessTokenPath": "authed.token", "expiresInPath": "authed.expires", "refreshTokenPath": "authed.refresh",
            "scopePath": "authed.scope",
        },
        "userInfo": user_info(),
    });
    crate::contract::document::merge(&mut config, client);
    config
}

/// A dynamic registration that finds its endpoint through `member`.
fn registration(member: &str) -> Value {
    json!({"dcrConfig": {
        member: "https://idp.example/register",
        "initialAccessTokenRef": secret_key(),
        "registrationProbe": "tokenEndpoint",
        "registrationProbeInterval": "1h",
        "rotationKey": "one",
        "softwareId": "proxy",
        "softwareStatement": "signed",
    }})
}

fn user_info() -> Value {
    json!({
        "additionalHeaders": {"Accept": "application/json"},
        "endpointUrl": "https://idp.example/user",
        "fieldMapping": {"emailFields": ["email"], "nameFields": ["name"], "subjectFields": ["id"]},
        "httpMethod": "POST",
    })
}

pub(super) fn delegate_client() -> Value {
    json!({"clientId": "agent", "clientSecretRef": secret_key(), "audiences": ["tools"], "scopes": ["call"]})
}

fn exchange_policy() -> Value {
    json!({
        "actorClaim": "azp", "actorMatcher": "claims.azp != ''", "allowMayAct": true, "allowedActors": ["agent"],
        "allowedDelegateClients": ["agent"], "expectedAudience": "tools",
    })
}

fn jwt_bearer() -> Value {
    json!({
        "acceptedAudiences": ["https://auth.example/token"],
        "maxAssertionAge": "5m",
        "subjectBindings": [{"allowedResources": ["https://tools.example"], "subject": "robot"}],
    })
}

fn with_issuer(mut policy: Value) -> Value {
    policy["issuerRef"] = json!("partner");
    policy
}

pub(super) fn spiffe_client(method: &str) -> Value {
    json!({
        "audiences": ["tools"], "clientId": "robot", "methods": [method],
        "principalPattern": "spiffe://mesh.example/ns/demo", "resources": ["https://tools.example"],
        "scopes": ["call"], "trustDomainRef": "own-mesh",
    })
}

pub(super) fn spiffe_trust_domains(method: &str, source: Value) -> Value {
    json!([{"bundleSource": source, "methods": [method], "name": "own-mesh", "trustDomain": "mesh.example"}])
}
