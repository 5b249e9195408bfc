//! The request gate of the examples: a running request webhook, the Secret that lets callers trust and sign, and the manifests pointed at it.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::apply::documents;
use crate::certificates;
use crate::request_webhook::RequestWebhook;

/// Where the example says its webhook is; a run of its own has it on a loopback port.
const EXAMPLE_HOST: &str = "greeting-policy.example:8443";
const EXAMPLE: &str = include_str!("../../../examples/gated-server.yaml");

/// A running request webhook and what belongs to it.
#[derive(Debug)]
pub struct Gate {
    webhook: RequestWebhook,
    ca_pem: String,
    key: Vec<u8>,
}

impl Gate {
    /// Makes a CA, a certificate and a signing key, and serves the webhook.
    pub async fn start(key: &[u8]) -> Result<Self> {
        let (ca, pair) = certificates::localhost()?;
        let webhook = RequestWebhook::start(&pair, key).await?;
        Ok(Self { webhook, ca_pem: ca.cert_pem().to_owned(), key: key.to_vec() })
    }

    /// Signs, and expects signatures, with another key. Callers have it once the Secret is applied and its files are written.
    pub async fn rotate(&mut self, key: &[u8]) {
        self.key = key.to_vec();
        self.webhook.trust(key).await;
    }

    /// The Secret that the example names, in `namespace`.
    pub fn secret(&self, namespace: &str) -> Result<Value> {
        let hmac = std::str::from_utf8(&self.key).context("the signing key of the example is text")?;
        Ok(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "request-webhook", "namespace": namespace },
            "stringData": { "ca.crt": self.ca_pem, "hmac": hmac },
        }))
    }

    /// The manifests of examples/gated-server.yaml in `namespace`, with the webhook's real address.
    pub fn manifests(&self, namespace: &str) -> Result<Vec<Value>> {
        let here = format!("localhost:{}", self.webhook.address.port());
        in_namespace(&EXAMPLE.replace(EXAMPLE_HOST, &here), namespace)
    }
}

/// The documents of a YAML text, put into `namespace`.
pub fn in_namespace(yaml: &str, namespace: &str) -> Result<Vec<Value>> {
    let mut objects = documents(yaml)?;
    for object in &mut objects {
        object["metadata"]["namespace"] = json!(namespace);
    }
    Ok(objects)
}
