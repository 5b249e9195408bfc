//! The rules of webhook configurations, and their translation into what the proxy reads.

use std::collections::BTreeMap;

use mcp_api::v1alpha1::{FailurePolicy, MCPWebhookConfigSpec, SecretKeyRef, Webhook, WebhookMatch, WebhookMode};
use mcp_runconfig::{
    chain::WEBHOOK_MATCH,
    duration,
    webhook::{self, Match, Mode, Timeout, TlsConfig, WebhookAdditions, WebhookConfig},
};

use crate::{
    digest::short_hash,
    problem::Problem,
    reference::{Content, MountedFile, Reference, Source, incomplete_key},
    settings::Settings,
};

/// Where the files of webhooks are mounted.
const ROOT: &str = "/etc/toolhive/webhooks";

/// The two lists of a configuration.
const LISTS: [&str; 2] = ["validating", "mutating"];

/// Every rule the configuration breaks; empty when workloads may refer to it.
pub fn problems(spec: &MCPWebhookConfigSpec) -> Vec<Problem> {
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
                if let Some(message) = incomplete_key(&reference.name, &reference.key) {
                    broken(field, message);
                }
            }
            for file in named {
                let directory = file.directory.clone();
                if files.entry(directory).or_insert_with(|| file.clone()) != &file {
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

/// The fields that the proxies' image would not heed: it would ask a webhook about everything, and do as it says.
pub fn image_problems(spec: &MCPWebhookConfigSpec, settings: &Settings) -> Vec<Problem> {
    if settings.can_run(&[WEBHOOK_MATCH]) {
        return Vec::new();
    }
    let each = each(spec).flat_map(|(kind, at, webhook)| {
        let fields = [
            ("match", !selected(webhook.matches.as_ref()).is_all()),
            ("mode", webhook.mode == WebhookMode::Shadow),
        ];
        fields.into_iter().filter(|(_, is_set)| *is_set).map(move |(field, _)| {
            let message = format!(
                "the image of the proxies does not have {WEBHOOK_MATCH}: it would ask this webhook about every message and do as it \
                 says; remove the field, or set --runner-image and --runner-middleware to an image that has it"
            );
            Problem::new(format!("spec.{kind}[{at}].{field}"), message)
        })
    });
    each.collect()
}

/// The configuration of one webhook for the proxy, and the files that it needs.
///
/// # Errors
/// A timeout that is not a duration.
fn translate(kind: &str, webhook: &Webhook) -> Result<(WebhookConfig, Vec<MountedFile>), String> {
    let nanos = match webhook.timeout.as_deref().filter(|timeout| !timeout.is_empty()) {
        None => 0,
        Some(text) => duration::parse(text).map_err(|error| error.to_string())?,
    };
    let mut files = Vec::new();
    let mut file = |purpose: &str, name: &'static str, content: Content, reference: Option<&SecretKeyRef>| {
        let Some(reference) = reference else { return String::new() };
        let file = secret_file(&format!("{kind}_{}_{purpose}", webhook.name), name, content, reference);
        let path = file.path();
        files.push(file);
        path
    };
    let tls = webhook.tls_config.as_ref().map(|tls| {
        let certificate = tls.client_cert_secret_ref.as_ref();
        let key = certificate.map_or(Content::Bytes, |certificate| Content::KeyOf {
            secret: certificate.name.clone(),
            key: certificate.key.clone(),
        });
        TlsConfig {
            ca_bundle_path: file("tls_ca", "ca.crt", Content::Authorities, tls.ca_secret_ref.as_ref()),
            client_cert_path: file("tls_client_cert", "tls.crt", Content::Certificate, certificate),
            client_key_path: file("tls_client_key", "tls.key", key, tls.client_key_secret_ref.as_ref()),
            insecure_skip_verify: tls.insecure_skip_verify.unwrap_or_default(),
        }
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
        hmac_secret_ref: file("hmac", "hmac", Content::Bytes, webhook.hmac_secret_ref.as_ref()),
        portcullis: WebhookAdditions {
            r#match: selected(webhook.matches.as_ref()),
            mode: match webhook.mode {
                WebhookMode::Enforce => Mode::Enforce,
                WebhookMode::Shadow => Mode::Shadow,
            },
        },
    };
    Ok((config, files))
}

/// The selector of the proxy's document.
fn selected(lists: Option<&WebhookMatch>) -> Match {
    let WebhookMatch { methods, principals, tools } = lists.cloned().unwrap_or_default();
    Match { methods, tools, principals }
}

/// Both lists translated, as far as they can be: the mutating webhooks, the validating ones, and their files.
pub fn translated(spec: &MCPWebhookConfigSpec) -> (Vec<WebhookConfig>, Vec<WebhookConfig>, Vec<MountedFile>) {
    let mut all = Vec::new();
    let mut each = |kind: &str| -> Vec<WebhookConfig> {
        let translated = list(spec, kind).iter().filter_map(|webhook| translate(kind, webhook).ok());
        translated
            .map(|(webhook, files)| {
                all.extend(files);
                webhook
            })
            .collect()
    };
    let (mutating, validating) = (each("mutating"), each("validating"));
    (mutating, validating, all)
}

/// The Secrets that it names.
pub fn secrets(spec: &MCPWebhookConfigSpec) -> Vec<Reference> {
    let each = each(spec).flat_map(|(kind, at, webhook)| {
        let reference = move |(field, it): (&str, &SecretKeyRef)| {
            Reference::to_source(format!("spec.{kind}[{at}].{field}"), &Source::Secret(it.name.clone()))
        };
        references(webhook).map(reference)
    });
    each.collect()
}

/// A file with the upper-case identifier that ToolHive gives it, unique per webhook, purpose, Secret and key. The
/// identifier names directory and volume.
fn secret_file(purpose: &str, file: &'static str, content: Content, reference: &SecretKeyRef) -> MountedFile {
    let hash = short_hash(&format!("{}/{}", reference.name, reference.key));
    let identifier: String = format!("WEBHOOK_{purpose}_{hash}")
        .to_ascii_uppercase()
        .chars()
        .map(|c| if c.is_ascii_uppercase() || c.is_ascii_digit() { c } else { '_' })
        .collect();
    MountedFile {
        source: Source::Secret(reference.name.clone()),
        key: reference.key.clone(),
        content,
        volume: format!("whsec-{}", short_hash(&identifier)),
        directory: format!("{ROOT}/{}", identifier.to_ascii_lowercase()),
        file: file.into(),
    }
}

/// Every webhook, with its list and its place there.
fn each(spec: &MCPWebhookConfigSpec) -> impl Iterator<Item = (&'static str, usize, &Webhook)> {
    LISTS.into_iter().flat_map(|kind| list(spec, kind).iter().enumerate().map(move |(at, webhook)| (kind, at, webhook)))
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
        "portcullis.match.methods" => "match.methods",
        "portcullis.match.principals" => "match.principals",
        "portcullis.match.tools" => "match.tools",
        "tls_config.client_key_path" => "tlsConfig.clientKeySecretRef",
        "tls_config.client_cert_path" => "tlsConfig.clientCertSecretRef",
        other => other,
    }
}
