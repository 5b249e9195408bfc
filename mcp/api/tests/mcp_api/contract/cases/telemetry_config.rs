use serde_json::json;

use super::{Block, Case, shared};

pub(super) fn cases() -> Vec<Case> {
    let collector = Block::spec("MCPTelemetryConfig").at(".openTelemetry");
    let secret = json!({"name": "collector", "key": "token"});
    let headers = |sensitive: &str| json!({"headers": {"x-tenant": "acme"}, "sensitiveHeaders": [{"name": sensitive, "secretKeyRef": secret}]});
    let rule = "a header name cannot appear in both headers and sensitiveHeaders";
    let mut cases = vec![collector.case("", rule, headers("x-api-key"), headers("x-tenant"))];
    cases.extend(shared::ca_bundle(&collector));
    cases
}
