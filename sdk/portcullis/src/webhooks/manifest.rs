//! Registrations as manifests.

use portcullis_manifest::{Operation, Rule, Webhook, WebhookKind};

use super::admit::{AdmissionObject, KnownScope};
use super::settings::Settings;

/// The operations that have a handler.
pub(super) fn operations(create: bool, update: bool, delete: bool) -> Vec<Operation> {
    [(create, Operation::Create), (update, Operation::Update), (delete, Operation::Delete)]
        .into_iter()
        .filter_map(|(handled, operation)| handled.then_some(operation))
        .collect()
}

/// The webhook's entry in its configuration.
pub(super) fn webhook<K: AdmissionObject>(
    kind: WebhookKind,
    settings: &Settings,
    operations: Vec<Operation>,
) -> Webhook {
    let group = K::group(&());
    // Kubernetes wants three labels at least, and the core group has no name of its own.
    let domain = if group.is_empty() { "core" } else { &group };
    let name = format!("{}.{}.{domain}", settings.name, K::plural(&()));
    let path = settings.path.clone().unwrap_or_else(|| match kind {
        WebhookKind::Validating => format!("/validate/{}", settings.name),
        WebhookKind::Mutating => format!("/mutate/{}", settings.name),
    });
    let rule = Rule {
        groups: vec![group.to_string()],
        versions: vec![K::version(&()).into_owned()],
        resources: vec![K::plural(&()).into_owned()],
        scope: <K::Scope as KnownScope>::SCOPE,
        operations,
    };
    Webhook {
        failure_policy: settings.failure_policy,
        timeout_seconds: u8::try_from(settings.timeout.as_secs()).unwrap_or(u8::MAX),
        namespace_selector: settings.namespace_selector.clone(),
        object_selector: settings.object_selector.clone(),
        match_conditions: settings.match_conditions.clone(),
        ..Webhook::new(name, kind, path, vec![rule])
    }
}
