use serde_json::json;

use super::{Block, Case, shared};

pub(super) fn cases() -> Vec<Case> {
    let spec = Block::spec("MCPServer");
    let bucket = json!({"maxTokens": 10, "refillPeriod": "1m0s"});
    let redis = json!({"provider": "redis", "address": "redis:6379"});
    let per_tool = json!({"tools": [{"name": "fetch", "perUser": bucket}]});
    let mut cases = vec![
        spec.case(
            "",
            "rateLimiting requires sessionStorage with provider 'redis'",
            json!({"rateLimiting": {"shared": bucket}, "sessionStorage": redis}),
            json!({"rateLimiting": {"shared": bucket}, "sessionStorage": {"provider": "memory"}}),
        ),
        spec.case(
            "",
            "rateLimiting.perUser requires authentication (oidcConfigRef or externalAuthConfigRef)",
            json!({
                "rateLimiting": {"perUser": bucket}, "sessionStorage": redis,
                "oidcConfigRef": {"name": "oidc", "audience": "server"},
            }),
            json!({"rateLimiting": {"perUser": bucket}, "sessionStorage": redis}),
        ),
        spec.case(
            "",
            "per-tool perUser rate limiting requires authentication (oidcConfigRef or externalAuthConfigRef)",
            json!({"rateLimiting": per_tool, "sessionStorage": redis, "externalAuthConfigRef": {"name": "external"}}),
            json!({"rateLimiting": per_tool, "sessionStorage": redis}),
        ),
        spec.case(
            ".proxyReadTimeout",
            "proxyReadTimeout must be non-negative",
            json!({"proxyReadTimeout": "0s"}),
            json!({"proxyReadTimeout": "-1ns"}),
        ),
    ];
    cases.extend(shared::authz(&spec));
    cases.extend(shared::rate_limiting("MCPServer", ".spec.rateLimiting"));
    cases.extend(shared::session_storage(&spec));
    cases
}
