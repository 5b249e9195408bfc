//! Registrations as entries of webhook configurations.

use portcullis_manifest::{Webhook, WebhookKind};
use portcullis_review::Operation;

use super::settings::Settings;
use super::target::Subject;

/// The webhook's entry in its configuration, for these operations.
pub(super) fn webhook(
    kind: WebhookKind,
    settings: &Settings,
    subject: &Subject,
    operations: Vec<Operation>,
) -> Webhook {
    let full_name = settings.full_name.clone();
    let name = full_name.unwrap_or_else(|| format!("{}.{}", settings.name, subject.domain()));
    let path = settings.path.clone().unwrap_or_else(|| match kind {
        WebhookKind::Validating => format!("/validate/{}", settings.name),
        WebhookKind::Mutating => format!("/mutate/{}", settings.name),
    });
    Webhook {
        failure_policy: settings.failure_policy,
        timeout_seconds: u8::try_from(settings.timeout.as_secs()).unwrap_or(u8::MAX),
        side_effects: settings.side_effects,
        match_policy: settings.match_policy,
        reinvocation: settings.reinvocation,
        namespace_selector: settings.namespace_selector.clone(),
        object_selector: settings.object_selector.clone(),
        match_conditions: settings.match_conditions.clone(),
        ..Webhook::new(name, kind, path, vec![subject.rule(settings.scope, operations)])
    }
}
