//! Webhook configurations of both kinds as one.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use portcullis_manifest::{NAMESPACE_NAME, WebhookKind, exempts_finalizer_removal};

const DEFAULT_PORT: i32 = 443;
/// Stands for the name of a webhook: a CRD has no more than one.
const CONVERSION: &str = "conversion";

/// A webhook configuration.
#[derive(Clone, Debug)]
pub(super) struct Configuration {
    /// Validating or mutating.
    pub(super) kind: WebhookKind,
    /// Its metadata.
    pub(super) metadata: ObjectMeta,
    /// Its webhooks.
    pub(super) entries: Vec<Entry>,
}

/// One webhook of a configuration, or the conversion of a CRD.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    /// The webhook's name.
    pub(super) name: String,
    /// The Service or URL that the API server calls, and the CA bundle.
    pub(super) client: WebhookClientConfig,
    /// Requests that it is called for.
    pub(super) rules: Vec<RuleWithOperations>,
    /// Whether a call that fails refuses the request.
    pub(super) fails_closed: bool,
    /// Whether it exempts the removal of finalizers from objects that are being deleted.
    pub(super) exempts_finalizers: bool,
    /// Whether its `matchPolicy` is `Exact`.
    pub(super) exact: bool,
    /// Its namespace selector.
    pub(super) namespaces: Option<LabelSelector>,
}

macro_rules! from {
    ($configuration:ty, $kind:expr) => {
        impl From<$configuration> for Configuration {
            fn from(read: $configuration) -> Self {
                let entries = read.webhooks.into_iter().flatten().map(|webhook| Entry {
                    name: webhook.name,
                    client: webhook.client_config,
                    rules: webhook.rules.unwrap_or_default(),
                    fails_closed: webhook.failure_policy.as_deref() != Some("Ignore"),
                    exempts_finalizers: webhook
                        .match_conditions
                        .iter()
                        .flatten()
                        .any(|condition| exempts_finalizer_removal(&condition.name, &condition.expression)),
                    exact: webhook.match_policy.as_deref() == Some("Exact"),
                    namespaces: webhook.namespace_selector,
                });
                Self { kind: $kind, entries: entries.collect(), metadata: read.metadata }
            }
        }
    };
}
from!(ValidatingWebhookConfiguration, WebhookKind::Validating);
from!(MutatingWebhookConfiguration, WebhookKind::Mutating);

impl Configuration {
    /// Its name.
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The word for it on a command line.
    pub(super) fn resource(&self) -> &'static str {
        match self.kind {
            WebhookKind::Validating => "validatingwebhookconfiguration",
            WebhookKind::Mutating => "mutatingwebhookconfiguration",
        }
    }
}

/// The conversion of a CRD, where it has one by webhook.
pub(super) fn conversion(crd: &CustomResourceDefinition) -> Option<Entry> {
    let conversion = crd.spec.conversion.as_ref().filter(|conversion| conversion.strategy == "Webhook")?;
    let client = conversion.webhook.as_ref()?.client_config.as_ref()?;
    let convert = |value| serde_json::from_value(serde_json::to_value(value).ok()?).ok();
    // The two kinds have the same members under two names.
    let client: WebhookClientConfig = convert(client)?;
    Some(Entry { name: CONVERSION.to_owned(), client, fails_closed: true, ..Entry::default() })
}

impl Entry {
    /// Whether it is the conversion of a CRD: names of webhooks have dots.
    pub(super) fn is_conversion(&self) -> bool {
        self.name == CONVERSION
    }

    /// The bundle, when it holds anything.
    pub(super) fn bundle(&self) -> Option<&[u8]> {
        self.client.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()).filter(|bundle| !bundle.is_empty())
    }

    /// Namespace and name of the Service that it calls.
    pub(super) fn service(&self) -> Option<(String, String)> {
        self.client.service.as_ref().map(|service| (service.namespace.clone(), service.name.clone()))
    }

    /// The port of that Service.
    pub(super) fn port(&self) -> i32 {
        self.client.service.as_ref().and_then(|service| service.port).unwrap_or(DEFAULT_PORT)
    }

    /// The path that it calls.
    pub(super) fn path(&self) -> &str {
        self.client.service.as_ref().and_then(|service| service.path.as_deref()).unwrap_or("/")
    }

    /// The namespace that it is restricted to, when its selector names exactly one.
    pub(super) fn restricted_to(&self) -> Option<&str> {
        let selector = self.namespaces.as_ref()?;
        let label = selector.match_labels.as_ref().and_then(|labels| labels.get(NAMESPACE_NAME));
        let expression = selector.match_expressions.iter().flatten().find_map(|expression| {
            let only = expression.key == NAMESPACE_NAME && expression.operator == "In";
            only.then_some(expression.values.as_deref().unwrap_or_default()).filter(|values| values.len() == 1)?.first()
        });
        label.or(expression).map(String::as_str)
    }
}

/// Whether an object with these labels is selected. No selector selects everything.
pub(super) fn selects(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = selector else { return true };
    let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
    selector.match_labels.iter().flatten().all(equal)
        && selector.match_expressions.iter().flatten().all(|expression| {
            let value = labels.get(&expression.key);
            let listed = value.is_some_and(|value| expression.values.iter().flatten().any(|one| one == value));
            match expression.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// A selector the way that people write it.
pub(super) fn shown(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "everything".to_owned() };
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let values = expression.values.as_deref().unwrap_or_default().join(", ");
        let values = if values.is_empty() { values } else { format!(" ({values})") };
        format!("{} {}{values}", expression.key, expression.operator)
    });
    let parts: Vec<_> = labels.chain(expressions).collect();
    if parts.is_empty() { "everything".to_owned() } else { parts.join(", ") }
}
