use serde_json::{Value, json};

use super::{Block, Case, auth_server, shared, with};

const KIND: &str = "VirtualMCPServer";

pub(super) fn cases() -> Vec<Case> {
    let spec = Block::spec(KIND);
    let mut cases = rules(&spec);
    cases.extend(config(&spec));
    cases.extend(shared::authz(&spec.at(".incomingAuth")));
    cases.extend(shared::session_storage(&spec));
    cases.extend(shared::rate_limiting(KIND, ".spec.config.rateLimiting"));
    cases.extend(auth_server::cases(KIND, ".spec.authServerConfig"));
    cases
}

fn rules(spec: &Block) -> Vec<Case> {
    let redis = json!({"provider": "redis", "address": "redis:6379"});
    let bucket = json!({"maxTokens": 10, "refillPeriod": "1m0s"});
    let limited = |limits: Value| json!({"config": {"rateLimiting": limits}, "sessionStorage": redis});
    let oidc = json!({"type": "oidc", "oidcConfigRef": {"name": "oidc", "audience": "virtual"}});
    let per_user = limited(json!({"perUser": bucket}));
    let per_tool = limited(json!({"tools": [{"name": "fetch", "perUser": bucket}]}));
    let provider = |name: &str| {
        let config = json!({"clientId": "server", "issuerUrl": "https://idp.example"});
        json!({"name": name, "type": "oidc", "oidcConfig": config})
    };
    let filtered = |providers: &[&str]| {
        let providers: Vec<Value> = providers.iter().map(|name| provider(name)).collect();
        json!({
            "authServerConfig": {"issuer": "https://auth.example", "upstreamProviders": providers},
            "authServerUpstreamFilter": {"rules": [{"groups": ["staff"], "upstreamProviders": ["first"]}]},
        })
    };
    let embeddings = |provider: &str| {
        json!({
            "embeddingServerRef": {"name": "embeddings"}, "config": {"optimizer": {"embeddingProvider": provider}},
        })
    };
    let stored = |storage: Value| json!({"config": {"sessionStorage": storage}});
    vec![
        spec.case(
            "",
            "config.rateLimiting requires sessionStorage with provider 'redis'",
            limited(json!({"shared": bucket})),
            json!({"config": {"rateLimiting": {"shared": bucket}}, "sessionStorage": {"provider": "memory"}}),
        ),
        spec.case(
            "",
            "config.rateLimiting.perUser requires incomingAuth.type oidc",
            with(&per_user, "incomingAuth", oidc.clone()),
            per_user,
        ),
        spec.case(
            "",
            "per-tool perUser rate limiting requires incomingAuth.type oidc",
            with(&per_tool, "incomingAuth", oidc.clone()),
            per_tool,
        ),
        spec.case(
            "",
            "config.sessionStorage.tls is ignored by the operator; set sessionStorage.tls instead",
            stored(json!({"provider": "redis"})),
            stored(json!({"provider": "redis", "tls": {}})),
        ),
        spec.case(
            "",
            "embeddingServerRef provisions a managed TEI server and cannot be combined with optimizer.embeddingProvider 'openai'; openai mode uses embeddingService directly",
            embeddings("tei"),
            embeddings("openai"),
        ),
        spec.case(
            "",
            "authServerUpstreamFilter requires authServerConfig to be set",
            filtered(&["first", "second"]),
            with(&filtered(&[]), "authServerConfig", Value::Null),
        ),
        spec.case(
            "",
            "authServerUpstreamFilter requires at least two configured upstream providers",
            filtered(&["first", "second"]),
            filtered(&["first"]),
        ),
        spec.at(".incomingAuth").case(
            "",
            "spec.incomingAuth.oidcConfigRef is required when type is oidc",
            oidc,
            json!({"type": "oidc"}),
        ),
    ]
}

fn config(spec: &Block) -> Vec<Case> {
    let optimizer = spec.at(".config.optimizer");
    let headers = |name: &str| json!({"embeddingProvider": "openai", "embeddingHeaders": {name: "value"}});
    let breaker = spec.at(".config.operational.failureHandling.circuitBreaker");
    vec![
        optimizer.case(
            "",
            "embeddingHeaders is only supported when embeddingProvider is 'openai'",
            headers("X-Team"),
            with(&headers("X-Team"), "embeddingProvider", "tei"),
        ),
        optimizer.case(
            "",
            "embeddingHeaders names must be valid HTTP header names and must not include Authorization or Content-Type",
            headers("X-Team"),
            headers("AUTHORIZATION"),
        ),
        breaker.case(".timeout", "timeout must be >= 1s", json!({"timeout": "1s"}), json!({"timeout": "999ms"})),
    ]
}
