//! Rules of MCPWebhookConfig, and its translation into what the proxy reads.

use std::collections::BTreeMap;

use mcp_api::v1alpha1::{FailurePolicy, MCPWebhookConfigSpec, SecretKeyRef, Webhook};
use mcp_runconfig::{
    duration,
    webhook::{self, Timeout, TlsConfig, WebhookConfig},
};

use super::Problem;
use crate::plan::gate::{Purpose, SecretFile};

/// The two lists of a configuration.
const LISTS: [&str; 2] = ["validating", "mutating"];

/// Every rule the configuration breaks; empty when servers may refer to it.
pub fn check_webhook_config(spec: &MCPWebhookConfigSpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut files = BTreeMap::new();
    for kind in LISTS {
        for (at, webhook) in list(spec, kind).iter().enumerate() {
            let mut broken = |field: &str, message: &str| {
                let field_name = field.rsplit('.').next().unwrap_or(field);
                problems.push(Problem::new(
                    format!("spec.{kind}[{at}].{field}"),
                    format!("{kind} webhook[{at}] {:?}: {field_name} {message}", webhook.name),
                ));
            };
            let (config, named) = match translate(kind, webhook) {
                Ok(translated) => translated,
                Err(problem) => {
                    broken("timeout", &problem);
                    continue;
                }
            };
            for problem in config.problems() {
                broken(field(problem.field), &problem.message);
            }
            for (field, reference) in references(webhook) {
                if reference.name.is_empty() || reference.key.is_empty() {
                    broken(field, "names no Secret or no key of it; set both");
                }
            }
            for file in named {
                let identifier = file.identifier.clone();
                if files.entry(identifier).or_insert_with(|| file.clone()) != &file {
                    broken("name", "collides with another webhook's files; choose another name");
                }
            }
        }
    }
    if LISTS.iter().all(|kind| list(spec, kind).is_empty()) {
        problems.push(Problem::new("spec", "at least one validating or mutating webhook must be defined"));
    }
    problems
}

/// What the proxy reads of one webhook, and the files it needs for it.
///
/// # Errors
/// A timeout that is not a duration.
pub(in crate::plan) fn translate(kind: &str, webhook: &Webhook) -> Result<(WebhookConfig, Vec<SecretFile>), String> {
    let nanos = match webhook.timeout.as_deref().filter(|timeout| !timeout.is_empty()) {
        None => 0,
        Some(text) => duration::parse(text).map_err(|error| error.to_string())?,
    };
    let mut files = Vec::new();
    let mut file = |purpose, reference: Option<&SecretKeyRef>| match reference {
        None => String::new(),
        Some(reference) => {
            let file = SecretFile::new(kind, &webhook.name, purpose, reference);
            let path = file.path();
            files.push(file);
            path
        }
    };
    let tls = webhook.tls_config.as_ref().map(|tls| TlsConfig {
        ca_bundle_path: file(Purpose::Ca, tls.ca_secret_ref.as_ref()),
        client_cert_path: file(Purpose::ClientCert, tls.client_cert_secret_ref.as_ref()),
        client_key_path: file(Purpose::ClientKey, tls.client_key_secret_ref.as_ref()),
        insecure_skip_verify: tls.insecure_skip_verify.unwrap_or_default(),
        ..TlsConfig::default()
    });
    let config = WebhookConfig {
        name: webhook.name.clone(),
        url: webhook.url.clone(),
        timeout: Timeout::from_nanos(nanos),
        failure_policy: match webhook.failure_policy {
            FailurePolicy::Fail => webhook::FailurePolicy::Fail,
            FailurePolicy::Ignore => webhook::FailurePolicy::Ignore,
        },
        tls_config: tls,
        hmac_secret_ref: file(Purpose::Hmac, webhook.hmac_secret_ref.as_ref()),
        extra: serde_json::Map::new(),
    };
    Ok((config, files))
}

fn list<'a>(spec: &'a MCPWebhookConfigSpec, kind: &str) -> &'a [Webhook] {
    let list = if kind == "validating" { &spec.validating } else { &spec.mutating };
    list.as_deref().unwrap_or_default()
}

fn references(webhook: &Webhook) -> impl Iterator<Item = (&'static str, &SecretKeyRef)> {
    let tls = webhook.tls_config.as_ref();
    [
        ("hmacSecretRef", webhook.hmac_secret_ref.as_ref()),
        ("tlsConfig.caSecretRef", tls.and_then(|tls| tls.ca_secret_ref.as_ref())),
        ("tlsConfig.clientCertSecretRef", tls.and_then(|tls| tls.client_cert_secret_ref.as_ref())),
        ("tlsConfig.clientKeySecretRef", tls.and_then(|tls| tls.client_key_secret_ref.as_ref())),
    ]
    .into_iter()
    .filter_map(|(field, reference)| Some((field, reference?)))
}

/// The manifest's name of a member of the proxy's document.
fn field(member: &'static str) -> &'static str {
    match member {
        "tls_config.client_key_path" => "tlsConfig.clientKeySecretRef",
        "tls_config.client_cert_path" => "tlsConfig.clientCertSecretRef",
        other => other,
    }
}
