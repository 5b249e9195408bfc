//! Webhook configurations of `admissionregistration.k8s.io/v1`.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{MatchCondition, Rule, Webhook, WebhookKind};

/// The Service through which the API server calls the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The port of the Service (not of the pods behind it).
    pub port: u16,
}

impl ServiceRef {
    /// The default port of the Service.
    pub const PORT: u16 = 443;

    /// The DNS name by which the API server calls it, and which the certificate must name.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

/// Makes an entry of a configuration. The two kinds of entries have the same fields, but for those named here.
macro_rules! entry {
    ($Entry:ident { $($field:ident),* }, $webhook:ident, $service:ident) => {
        $Entry {
            admission_review_versions: vec!["v1".to_owned()],
            client_config: client_config($webhook, $service),
            failure_policy: Some($webhook.failure_policy.to_string()),
            match_conditions: match_conditions($webhook),
            match_policy: Some($webhook.match_policy.to_string()),
            name: $webhook.name.clone(),
            namespace_selector: $webhook.namespace_selector.clone(),
            object_selector: $webhook.object_selector.clone(),
            $($field: Some($webhook.$field.to_string()),)*
            rules: Some($webhook.rules.iter().map(rule).collect()),
            side_effects: $webhook.side_effects.to_string(),
            timeout_seconds: Some($webhook.timeout_seconds.into()),
        }
    };
}

/// The configuration of the validating webhooks among `webhooks`. It has no CA bundle: its owner applies it by
/// webhook name.
pub fn validating_configuration(
    name: &str,
    webhooks: &[Webhook],
    service: &ServiceRef,
) -> ValidatingWebhookConfiguration {
    let of_kind = webhooks.iter().filter(|webhook| webhook.kind == WebhookKind::Validating);
    let entries = of_kind.map(|webhook| entry!(ValidatingWebhook {}, webhook, service));
    ValidatingWebhookConfiguration { metadata: metadata(name), webhooks: Some(entries.collect()) }
}

/// The configuration of the mutating webhooks among `webhooks`, without CA bundle.
pub fn mutating_configuration(name: &str, webhooks: &[Webhook], service: &ServiceRef) -> MutatingWebhookConfiguration {
    let of_kind = webhooks.iter().filter(|webhook| webhook.kind == WebhookKind::Mutating);
    let entries = of_kind.map(|webhook| entry!(MutatingWebhook { reinvocation_policy }, webhook, service));
    MutatingWebhookConfiguration { metadata: metadata(name), webhooks: Some(entries.collect()) }
}

pub(crate) fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn client_config(webhook: &Webhook, service: &ServiceRef) -> WebhookClientConfig {
    let service = ServiceReference {
        name: service.name.clone(),
        namespace: service.namespace.clone(),
        path: Some(webhook.path.clone()),
        port: Some(service.port.into()),
    };
    WebhookClientConfig { service: Some(service), ..WebhookClientConfig::default() }
}

/// All match conditions, as manifests have them: an empty list is left out.
pub(crate) fn match_conditions(webhook: &Webhook) -> Option<Vec<MatchCondition>> {
    Some(webhook.all_match_conditions()).filter(|conditions| !conditions.is_empty())
}

fn rule(rule: &Rule) -> RuleWithOperations {
    RuleWithOperations {
        api_groups: Some(rule.groups.clone()),
        api_versions: Some(rule.versions.clone()),
        operations: Some(rule.operations.iter().map(ToString::to_string).collect()),
        resources: Some(rule.resources.clone()),
        scope: Some(rule.scope.to_string()),
    }
}
