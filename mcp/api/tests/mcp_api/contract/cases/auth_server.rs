//! `$EmbeddedAuth`.

use serde_json::{Value, json};

use super::{Block, Case, shared, wrap};
use crate::contract::document::merge;

/// The cases of an `$EmbeddedAuth` that is at `path` of `kind`.
pub(super) fn cases(kind: &'static str, path: &str) -> Vec<Case> {
    let server = Server(Block { kind, path: path.into() });
    let mut cases = clients(&server);
    cases.extend(spiffe(&server));
    cases.extend(grants(&server));
    cases.extend(trusted_issuers(&server));
    cases.extend(redis(&server));
    cases.extend(oidc_provider(&server));
    cases.extend(oauth2_provider(&server));
    cases
}

/// Where the authorization server is.
struct Server(Block);

impl Server {
    /// A case at `path` below the authorization server. What its objects have there is laid over `base`.
    fn case(&self, base: &Value, path: &str, rule: &'static str, admitted: Value, refused: Value) -> Case {
        self.case_at(base, path, "", rule, admitted, refused)
    }

    /// The same, of a rule on what is `below` that.
    fn case_at(
        &self,
        base: &Value,
        path: &str,
        below: &str,
        rule: &'static str,
        admitted: Value,
        refused: Value,
    ) -> Case {
        let [admitted, refused] = [admitted, refused].map(|value| {
            let mut config = base.clone();
            merge(&mut config, &wrap(path, value));
            config
        });
        let Case { admitted, refused, .. } = self.0.case("", rule, admitted, refused);
        Case { kind: self.0.kind, path: format!("{}{path}{below}", self.0.path), rule, admitted, refused }
    }

    /// The cases of a shared block, whose objects are laid over `base`.
    fn shared(&self, base: &Value, path: &str, cases: impl FnOnce(&Block) -> Vec<Case>) -> Vec<Case> {
        let cases = cases(&self.0.at(path));
        let lay = |over: &Value| {
            let mut object = wrap(&self.0.path, base.clone());
            merge(&mut object, over);
            object
        };
        cases
            .into_iter()
            .map(|case| Case { admitted: lay(&case.admitted), refused: lay(&case.refused), ..case })
            .collect()
    }
}

/// With one provider and one trusted issuer.
fn base() -> Value {
    json!({
        "issuer": "https://auth.example",
        "trustedIssuers": [{"name": "partner", "issuerUrl": "https://partner.example"}],
        "upstreamProviders": [{
            "name": "idp", "type": "oidc", "oidcConfig": {"clientId": "server", "issuerUrl": "https://idp.example"},
        }],
    })
}

fn delegate(secret: &str) -> Value {
    json!({
        "clientId": "agent", "audiences": ["tools"], "scopes": ["call"],
        "clientSecretRef": {"name": secret, "key": "a-key"},
    })
}

fn clients(server: &Server) -> Vec<Case> {
    let base = base();
    let alone = json!({"issuer": "https://auth.example"});
    let secret = "clientSecretRef.name and clientSecretRef.key are required and must be non-empty";
    vec![
        server.case(
            &alone,
            "",
            "at least one upstream provider or inbound grant family is required",
            json!({"delegateClients": [delegate("a-secret")]}),
            json!({}),
        ),
        server.case(
            &base,
            "",
            "insecureAllowHTTP cannot be combined with confidential client registration or delegateClients; client secrets would be issued or used in cleartext over an unauthenticated endpoint",
            json!({"insecureAllowHTTP": true}),
            json!({"insecureAllowHTTP": true, "allowConfidentialClientRegistration": true}),
        ),
        server.case(
            &base,
            "",
            "forceConfidentialRedirectUris requires allowConfidentialClientRegistration to be true",
            json!({
                "forceConfidentialRedirectUris": ["https://client.example"], "allowConfidentialClientRegistration": true,
            }),
            json!({"forceConfidentialRedirectUris": ["https://client.example"]}),
        ),
        server.case(
            &base,
            "",
            "confidential client registration or delegateClients with an HTTP issuer require insecureAllowConfidentialOverLoopbackHTTP to be explicitly enabled; the issuer must still be loopback",
            json!({
                "issuer": "http://localhost:8080", "allowConfidentialClientRegistration": true,
                "insecureAllowConfidentialOverLoopbackHTTP": true,
            }),
            json!({"issuer": "http://localhost:8080", "allowConfidentialClientRegistration": true}),
        ),
        server.case(&base, ".delegateClients[]", secret, delegate("a-secret"), delegate("")),
        server.case(&base, ".inboundGrants.tokenExchange.delegateClients[]", secret, delegate("a-secret"), delegate("")),
        server.case(
            &base,
            ".registrationRateLimit",
            "registrationRateLimit.refillPeriod must be positive",
            json!({"maxTokens": 1, "refillPeriod": "1ns"}),
            json!({"maxTokens": 1, "refillPeriod": "0s"}),
        ),
    ]
}

/// Trust domains, by name and domain, and clients, by id, name of the domain and principal.
fn workloads(domains: &[(&str, &str)], clients: &[(&str, &str, &str)]) -> Value {
    let domains = domains.iter().map(|(name, domain)| {
        json!({
            "name": name, "trustDomain": domain, "methods": ["spiffe_x509"],
            "bundleSource": {"type": "workload_api", "workloadAPI": {}},
        })
    });
    let clients = clients.iter().map(|(id, domain, principal)| {
        json!({
            "clientId": id, "trustDomainRef": domain, "principalPattern": principal, "methods": ["spiffe_x509"],
            "audiences": ["tools"], "scopes": ["call"],
        })
    });
    json!({
        "spiffeTrustDomains": domains.collect::<Vec<_>>(),
        "inboundGrants": {"spiffeClientAuth": clients.collect::<Vec<_>>()},
    })
}

fn spiffe(server: &Server) -> Vec<Case> {
    let base = base();
    let (a, b) = (("a", "a.example"), ("b", "b.example"));
    let (x, y) = (("x", "a", "spiffe://a.example/x"), ("y", "b", "spiffe://b.example/y"));
    let both = workloads(&[a, b], &[x, y]);
    let mut one = base.clone();
    merge(&mut one, &workloads(&[a], &[x]));
    let rule = |rule, refused| server.case(&base, "", rule, both.clone(), refused);
    let source =
        |rule, admitted, refused| server.case(&one, ".spiffeTrustDomains[].bundleSource", rule, admitted, refused);
    let endpoint = json!({"profile": "https_web", "url": "https://bundle.example"});
    let file = json!({"configMapName": "bundles", "configMapKey": "bundle.json"});
    vec![
        rule("spiffeTrustDomains and inboundGrants.spiffeClientAuth must be configured together", workloads(&[], &[x])),
        rule("spiffeTrustDomains must not contain duplicate names", workloads(&[a, ("a", "b.example")], &[x])),
        rule(
            "spiffeTrustDomains must not contain duplicate trust domains",
            workloads(&[a, ("b", "a.example")], &[x, ("y", "b", "spiffe://a.example/y")]),
        ),
        rule("every SPIFFE trust domain must be referenced by a SPIFFE client", workloads(&[a, b], &[x])),
        rule("every SPIFFE client trustDomainRef must reference a declared trust domain", workloads(&[a], &[x, y])),
        server.case(
            &one,
            "",
            "spiffeClientAuth methods must be enabled by the referenced trust domain",
            json!({}),
            json!({"inboundGrants": {"spiffeClientAuth": [{"methods": ["spiffe_jwt"]}]}}),
        ),
        rule(
            "spiffeClientAuth principalPattern trust domain must match the referenced trust domain",
            workloads(&[a], &[("x", "a", "spiffe://a.example.org/x")]),
        ),
        rule(
            "spiffeClientAuth must not contain duplicate client IDs",
            workloads(&[a], &[x, ("x", "a", "spiffe://a.example/y")]),
        ),
        rule(
            "spiffeClientAuth must not contain duplicate principal patterns",
            workloads(&[a], &[x, ("y", "a", "spiffe://a.example/x")]),
        ),
        rule(
            "spiffeClientAuth clientId must not use the reserved synthetic: prefix",
            workloads(&[a], &[("synthetic:x", "a", "spiffe://a.example/x")]),
        ),
        rule(
            "spiffeClientAuth clientId must not be an absolute URL",
            workloads(&[a], &[("https://x.example", "a", "spiffe://a.example/x")]),
        ),
        server.case(
            &one,
            ".inboundGrants.spiffeClientAuth[]",
            "principalPattern path must not contain . or .. segments",
            json!({"principalPattern": "spiffe://a.example/ns/.../*"}),
            json!({"principalPattern": "spiffe://a.example/ns/../x"}),
        ),
        source(
            "endpoint configuration must be set if and only if type is 'bundle_endpoint'",
            json!({"type": "bundle_endpoint", "endpoint": endpoint, "workloadAPI": null}),
            json!({"endpoint": endpoint}),
        ),
        source(
            "file configuration must be set if and only if type is 'file'",
            json!({"type": "file", "file": file, "workloadAPI": null}),
            json!({"file": file}),
        ),
        source(
            "workloadAPI configuration must be set if and only if type is 'workload_api'",
            json!({}),
            json!({"workloadAPI": null}),
        ),
    ]
}

fn assertion(age: &str, subjects: &[&str]) -> Value {
    let bindings = subjects.iter().map(|it| json!({"subject": it, "allowedResources": ["https://tools.example"]}));
    json!({"maxAssertionAge": age, "subjectBindings": bindings.collect::<Vec<_>>()})
}

/// The rules of one issuer's JWTs, which are `policy` at `path`.
fn assertions(server: &Server, path: &str, policy: impl Fn(Value) -> Value) -> Vec<Case> {
    let case = |rule, refused| {
        server.case(&base(), path, rule, policy(assertion("1ns", &["robot", "other"])), policy(refused))
    };
    vec![
        case("maxAssertionAge must be greater than zero", assertion("0s", &["robot"])),
        case("subjectBindings must not contain duplicate subjects", assertion("1m", &["robot", "robot"])),
    ]
}

/// The rules of exchanging one issuer's tokens, whose policy is at `path`.
fn exchange(server: &Server, path: &str) -> Vec<Case> {
    let policy = |over: Value| {
        let mut policy =
            json!({"issuerRef": "partner", "expectedAudience": "tools", "allowedDelegateClients": ["agent"]});
        // A trusted issuer needs no reference to itself.
        if path.starts_with(".trusted") {
            policy["issuerRef"] = Value::Null;
        }
        merge(&mut policy, &over);
        policy
    };
    let case = |rule, admitted, refused| server.case(&base(), path, rule, policy(admitted), policy(refused));
    vec![
        case(
            r#"allowedDelegateClients must not combine the wildcard "*" with specific client IDs"#,
            json!({"allowedDelegateClients": ["*"]}),
            json!({"allowedDelegateClients": ["*", "agent"]}),
        ),
        case(
            r#"allowMayAct must not be enabled when allowedDelegateClients contains the wildcard "*""#,
            json!({"allowMayAct": true}),
            json!({"allowMayAct": true, "allowedDelegateClients": ["*"]}),
        ),
        case(
            "actorClaim must name a readable claim; use client_id or a non-reserved claim such as azp, appid, or cid",
            json!({"actorClaim": "azp"}),
            json!({"actorClaim": "may_act"}),
        ),
    ]
}

fn grants(server: &Server) -> Vec<Case> {
    let base = base();
    let (exchange_path, bearer_path) =
        (".inboundGrants.tokenExchange.issuerPolicies[]", ".inboundGrants.jwtBearer.issuerPolicies[]");
    let exchanges = |issuers: &[&str]| {
        let policy = |it: &&str| json!({"issuerRef": it, "expectedAudience": "a", "allowedDelegateClients": ["agent"]});
        json!({"inboundGrants": {"tokenExchange": {"issuerPolicies": issuers.iter().map(policy).collect::<Vec<_>>()}}})
    };
    let with_issuer = |issuer: &str, mut policy: Value| {
        policy["issuerRef"] = json!(issuer);
        policy
    };
    let bearers = |issuers: &[&str]| {
        let policy = |it: &&str| with_issuer(it, assertion("1m", &["robot"]));
        json!({"inboundGrants": {"jwtBearer": {"issuerPolicies": issuers.iter().map(policy).collect::<Vec<_>>()}}})
    };
    let mut cases = vec![
        server.case(
            &base,
            "",
            "canonical tokenExchange conflicts with legacy delegateClients or RFC 8693 trusted issuer policy",
            json!({"inboundGrants": {"tokenExchange": {}}}),
            json!({"inboundGrants": {"tokenExchange": {}}, "delegateClients": [delegate("a-secret")]}),
        ),
        server.case(
            &base,
            "",
            "canonical jwtBearer conflicts with legacy jwtBearerGrant",
            json!({"inboundGrants": {"jwtBearer": {}}}),
            json!({
                "inboundGrants": {"jwtBearer": {}},
                "trustedIssuers": [{"jwtBearerGrant": assertion("1m", &["robot"])}],
            }),
        ),
        server.case(
            &base,
            "",
            "every tokenExchange issuerRef must reference a named trusted issuer",
            exchanges(&["partner"]),
            exchanges(&["nobody"]),
        ),
        server.case(
            &base,
            "",
            "tokenExchange issuerPolicies must not contain duplicate issuerRef values",
            exchanges(&["partner"]),
            exchanges(&["partner", "partner"]),
        ),
        server.case(
            &base,
            "",
            "every jwtBearer issuerRef must reference a named trusted issuer",
            bearers(&["partner"]),
            bearers(&["nobody"]),
        ),
        server.case(
            &base,
            "",
            "jwtBearer issuerPolicies must not contain duplicate issuerRef values",
            bearers(&["partner"]),
            bearers(&["partner", "partner"]),
        ),
    ];
    cases.extend(exchange(server, exchange_path));
    cases.extend(assertions(server, bearer_path, |policy| with_issuer("partner", policy)));
    cases
}

fn trusted_issuers(server: &Server) -> Vec<Case> {
    let base = base();
    let issuers = |names: &[&str]| {
        let issuers = names.iter().map(|name| json!({"name": name, "issuerUrl": format!("https://{name}.example")}));
        json!({"trustedIssuers": issuers.collect::<Vec<_>>()})
    };
    let issuer = |rule, admitted, refused| server.case(&base, ".trustedIssuers[]", rule, admitted, refused);
    let policy = json!({"expectedAudience": "tools", "allowedDelegateClients": ["agent"]});
    let mut cases = vec![
        server.case(
            &base,
            "",
            "trustedIssuers must not contain duplicate names",
            issuers(&["one", "two"]),
            issuers(&["one", "one"]),
        ),
        issuer(
            "allowPrivateIPs requires jwksUrl to be set explicitly",
            json!({"allowPrivateIPs": true, "jwksUrl": "https://partner.example/keys"}),
            json!({"allowPrivateIPs": true}),
        ),
        issuer(
            "expectedAudience is required when legacy RFC 8693 policy is configured",
            policy.clone(),
            json!({"allowedDelegateClients": ["agent"]}),
        ),
        issuer(
            "allowedDelegateClients is required when legacy RFC 8693 policy is configured",
            policy,
            json!({"expectedAudience": "tools"}),
        ),
    ];
    cases.extend(exchange(server, ".trustedIssuers[]"));
    cases.extend(assertions(server, ".trustedIssuers[].jwtBearerGrant", |policy| policy));
    cases.extend(server.shared(&base, ".trustedIssuers[]", shared::ca_bundle));
    cases
}

fn redis(server: &Server) -> Vec<Case> {
    let case = |rule, admitted: Value, refused: Value| {
        let [admitted, refused] = [admitted, refused].map(|mut redis| {
            redis["aclUserConfig"] = json!({"passwordSecretRef": {"name": "a-secret", "key": "a-key"}});
            redis
        });
        server.case(&base(), ".storage.redis", rule, admitted, refused)
    };
    let sentinel = json!({"masterName": "main"});
    vec![
        case(
            "exactly one of addr or sentinelConfig must be set",
            json!({"sentinelConfig": sentinel}),
            json!({"sentinelConfig": sentinel, "addr": "redis:6379"}),
        ),
        case(
            "clusterMode requires addr to be set",
            json!({"clusterMode": true, "addr": "redis:6379"}),
            json!({"clusterMode": true, "sentinelConfig": sentinel}),
        ),
    ]
}

const ONE_OF_CLIENT_AND_REGISTRATION: &str = "exactly one of clientId or dcrConfig must be set";
const NO_SECRET_WITH_REGISTRATION: &str = "clientSecretRef must not be set when dcrConfig is set; the client_secret is obtained at runtime via Dynamic Client Registration";
const AT_MOST_ONE_ENDPOINT: &str = "at most one of discoveryUrl or registrationEndpoint may be set";
const ENDPOINT: &str = "https://idp.example/register";

fn oidc_provider(server: &Server) -> Vec<Case> {
    let base = base();
    let path = ".upstreamProviders[].oidcConfig";
    let case = |rule, admitted, refused| server.case(&base, path, rule, admitted, refused);
    let registered = |registration: Value| json!({"clientId": null, "dcrConfig": registration});
    let mut cases = vec![
        case(ONE_OF_CLIENT_AND_REGISTRATION, registered(json!({})), json!({"dcrConfig": {}})),
        case(
            NO_SECRET_WITH_REGISTRATION,
            registered(json!({})),
            json!({"clientId": null, "dcrConfig": {}, "clientSecretRef": {"name": "a-secret", "key": "a-key"}}),
        ),
        case(
            AT_MOST_ONE_ENDPOINT,
            registered(json!({"discoveryUrl": ENDPOINT})),
            registered(json!({"discoveryUrl": ENDPOINT, "registrationEndpoint": ENDPOINT})),
        ),
    ];
    cases.extend(registration(server, &base, path));
    cases.extend(server.shared(&base, path, shared::ca_bundle));
    cases
}

fn oauth2_provider(server: &Server) -> Vec<Case> {
    let mut base = base();
    let oauth2 = json!({
        "clientId": "server", "authorizationEndpoint": "https://idp.example/a", "tokenEndpoint": "https://idp.example/t",
    });
    base["upstreamProviders"] = json!([{"name": "idp", "type": "oauth2", "oauth2Config": oauth2}]);
    let path = ".upstreamProviders[].oauth2Config";
    let case = |rule, admitted, refused| server.case(&base, path, rule, admitted, refused);
    let registered = |registration: Value| json!({"clientId": null, "dcrConfig": registration});
    let discovered = registered(json!({"discoveryUrl": ENDPOINT}));
    let mut cases = vec![
        server.case(
            &base,
            ".upstreamProviders[]",
            "type must be 'oidc' or 'oauth2'; oidcConfig must be set when type is 'oidc' and oauth2Config must be set when type is 'oauth2' (and the other must not be set)",
            json!({}),
            json!({"type": "oidc"}),
        ),
        case(ONE_OF_CLIENT_AND_REGISTRATION, discovered.clone(), json!({"dcrConfig": {"discoveryUrl": ENDPOINT}})),
        case(
            "exactly one of discoveryUrl or registrationEndpoint must be set when dcrConfig is set",
            discovered.clone(),
            registered(json!({})),
        ),
        case(
            NO_SECRET_WITH_REGISTRATION,
            discovered,
            json!({
                "clientId": null, "dcrConfig": {"discoveryUrl": ENDPOINT},
                "clientSecretRef": {"name": "a-secret", "key": "a-key"},
            }),
        ),
    ];
    cases.extend(registration(server, &base, path));
    cases.extend(server.shared(&base, path, shared::ca_bundle));
    cases
}

/// The rules of `dcrConfig` in the provider at `path`.
fn registration(server: &Server, base: &Value, path: &str) -> Vec<Case> {
    let mut base = base.clone();
    merge(&mut base, &wrap(path, json!({"clientId": null, "dcrConfig": {"discoveryUrl": ENDPOINT}})));
    let path = format!("{path}.dcrConfig");
    let every = |interval: &str| json!({"registrationProbeInterval": interval});
    vec![
        server.case(&base, &path, AT_MOST_ONE_ENDPOINT, json!({}), json!({"registrationEndpoint": ENDPOINT})),
        server.case_at(
            &base,
            &path,
            ".registrationProbeInterval",
            "registrationProbeInterval must be at least 1m",
            every("60s"),
            every("59s"),
        ),
    ]
}
