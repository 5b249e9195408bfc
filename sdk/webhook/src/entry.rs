//! Registrations as entries of webhook configurations.

use portcullis_manifest::{Webhook, WebhookKind};
use portcullis_review::Operation;

use super::settings::Settings;
use super::target::Subject;

/// The webhook's entry in its configuration, for these operations.
pub(super) fn webhook(settings: &Settings, subject: &Subject, operations: Vec<Operation>) -> Webhook {
    let full_name = settings.full_name.clone();
    let path = settings.path.clone().unwrap_or_else(|| match settings.entry.kind {
        WebhookKind::Validating => format!("/validate/{}", settings.name),
        WebhookKind::Mutating => format!("/mutate/{}", settings.name),
    });
    Webhook {
        name: full_name.unwrap_or_else(|| format!("{}.{}", settings.name, subject.domain())),
        path,
        rules: vec![subject.rule(settings.scope, operations)],
        timeout_seconds: u8::try_from(settings.timeout.as_secs()).unwrap_or(u8::MAX),
        ..settings.entry.clone()
    }
}
