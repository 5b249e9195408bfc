//! Sources of the `caBundle` by which the API server trusts the webhooks.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::cert_manager::INJECT_CA_FROM;

/// The writer of the `caBundle` of a webhook configuration or CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The operator: it publishes the bundle under a field manager of its own. Manifests have none, so applying them
    /// again does not remove it.
    Published,
    /// cert-manager: the annotation names the Certificate (`namespace/name`).
    Injected(String),
    /// The generated manifests: these PEM certificates.
    Given(String),
}

impl Trust {
    /// Writes the bundle or the annotation into a webhook configuration or a CRD with conversion; other objects stay as
    /// they are.
    pub fn add_to(&self, object: &mut Value) {
        let called = called(object);
        match self {
            _ if called.is_empty() => {}
            Self::Published => {}
            Self::Injected(certificate) => {
                let annotations = object.get_mut("metadata").and_then(Value::as_object_mut);
                let annotations = annotations.map(|data| data.entry("annotations").or_insert_with(|| json!({})));
                if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
                    annotations.insert(INJECT_CA_FROM.to_owned(), json!(certificate));
                }
            }
            Self::Given(pem) => {
                for client_config in called {
                    client_config["caBundle"] = json!(ByteString(pem.as_bytes().to_vec()));
                }
            }
        }
    }
}

/// Every `clientConfig` of the object.
fn called(object: &mut Value) -> Vec<&mut Value> {
    if object.get("webhooks").is_some() {
        let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
        return webhooks.into_iter().flatten().filter_map(|webhook| webhook.get_mut("clientConfig")).collect();
    }
    object.pointer_mut("/spec/conversion/webhook/clientConfig").into_iter().collect()
}
