use serde_json::json;

use super::{Block, Case};

pub(super) fn cases() -> Vec<Case> {
    vec![Block::spec("MCPWebhookConfig").case(
        "",
        "at least one validating or mutating webhook must be defined",
        json!({"validating": null, "mutating": [{"name": "policy", "url": "https://policy.example"}]}),
        json!({"validating": [], "mutating": []}),
    )]
}
