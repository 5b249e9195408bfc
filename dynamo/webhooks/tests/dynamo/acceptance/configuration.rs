//! The webhook configurations.

use dynamo_webhooks::rules::RuleContext;
use dynamo_webhooks::webhooks;
use portcullis::manifest::{FailurePolicy, Webhook, WebhookKind};
use portcullis::webhooks::Operation;

use crate::acceptance::cases::FILES;

fn entries(kind: WebhookKind) -> Vec<Webhook> {
    let all = webhooks(RuleContext::default()).manifests().unwrap();
    all.into_iter().filter(|webhook| webhook.kind == kind).collect()
}

/// In the order of Dynamo's: its certificate hook fills in the CA by index.
#[test]
fn the_validating_configuration_has_dynamos_entries_in_order() {
    let entries = entries(WebhookKind::Validating);
    assert_eq!(entries.len(), 4);
    for (entry, kind) in entries.iter().zip(FILES) {
        assert_eq!(entry.name, format!("v{kind}.kb.io"));
        assert_eq!(entry.path, format!("/validate-nvidia-com-v1alpha1-{kind}"));
        assert_eq!((entry.failure_policy, entry.timeout_seconds), (FailurePolicy::Fail, 10));
        let rule = &entry.rules[0];
        assert_eq!([&rule.groups[..], &rule.versions], [["nvidia.com"], ["v1alpha1"]]);
        assert_eq!(rule.resources, [format!("{kind}s")]);
        assert_eq!(rule.operations, [Operation::Create, Operation::Update]);
    }
}

#[test]
fn warnings_neither_delay_nor_stop_the_start() {
    for entry in entries(WebhookKind::Mutating) {
        assert_eq!((entry.failure_policy, entry.timeout_seconds), (FailurePolicy::Ignore, 2), "{}", entry.name);
        assert_eq!(entry.rules[0].operations, [Operation::Update], "{}", entry.name);
    }
}
