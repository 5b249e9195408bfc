use serde_json::json;

use super::{Block, Case, with};

pub(super) fn cases() -> Vec<Case> {
    let spec = Block::spec("MCPWebhookConfig");
    let webhook =
        |member: &str, value: &str| with(&json!({"name": "policy", "url": "https://policy.example"}), member, value);
    vec![
        spec.case(
            "",
            "at least one validating or mutating webhook must be defined",
            json!({"validating": null, "mutating": [webhook("name", "policy")]}),
            json!({"validating": [], "mutating": []}),
        ),
        spec.case(
            ".mutating[].timeout",
            "duration",
            json!({"mutating": [webhook("timeout", "1500ms")]}),
            json!({"mutating": [webhook("timeout", "soon")]}),
        ),
        spec.case(
            ".mutating[].url",
            "uri",
            json!({"mutating": [webhook("url", "https://policy.example:8443/check?x=y")]}),
            json!({"mutating": [webhook("url", "policy.example")]}),
        ),
        spec.case(
            ".validating[].timeout",
            "duration",
            json!({"validating": [webhook("timeout", "30s")]}),
            json!({"validating": [webhook("timeout", "soon")]}),
        ),
        spec.case(
            ".validating[].url",
            "uri",
            json!({"validating": [webhook("url", "https://policy.example/check")]}),
            json!({"validating": [webhook("url", "policy.example")]}),
        ),
    ]
}
