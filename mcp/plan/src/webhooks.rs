//! Webhooks that are asked about requests, as a configuration says them.

use std::collections::BTreeMap;

use mcp_api::v1alpha1::{SecretKeyRef, Webhook, WebhookMatch, WebhookMode};
use mcp_runconfig::{
    chain::WEBHOOK_MATCH,
    webhook::{Match, Mode, TlsConfig, WebhookAdditions},
};
use mcp_wire::is_method;

use crate::{
    digest::short_hash,
    reference::{Content, MountedFile, Reference, Source},
    settings::Settings,
};

/// Where the files of webhooks are mounted.
const ROOT: &str = "/etc/toolhive/webhooks";

/// Warnings about webhooks, each with its list and its place there, that are valid and that their author may not mean: two of one name, which
/// ToolHive allows, and methods that MCP does not have.
pub fn warnings<'a>(webhooks: impl Iterator<Item = (&'static str, usize, &'a Webhook)>) -> Vec<String> {
    let (mut names, mut warnings) = (BTreeMap::new(), Vec::new());
    for (kind, at, webhook) in webhooks {
        let (field, name) = (format!("spec.{kind}[{at}]"), &webhook.name);
        if let Some(other) = names.get(name) {
            warnings.push(format!(
                "{field}.name: {name:?} is the name of {other} as well: logs, metrics and denied_by of audit events do not tell them \
                 apart; choose another name"
            ));
        } else {
            names.insert(name, field.clone());
        }
        let methods = webhook.matches.iter().flat_map(|lists| lists.methods.iter().flatten());
        warnings.extend(methods.filter(|text| !text.contains('*') && !is_method(text)).map(|method| {
            // A client of the API server sees the first 256 characters of a warning.
            let method: String = method.chars().take(64).collect();
            format!(
                "{field}.match.methods: {method:?} is none of MCP's methods, so no message of MCP matches it; write one such as \
                 tools/call, or a glob such as tools/*"
            )
        }));
    }
    warnings
}

/// The fields that the proxies' image would not heed, each with the problem: it would ask the webhook about everything, and do as it says.
pub fn unheeded(webhook: &Webhook, settings: &Settings) -> impl Iterator<Item = (&'static str, String)> + use<> {
    let fields =
        [("match", !selected(webhook.matches.as_ref()).is_all()), ("mode", webhook.mode == WebhookMode::Shadow)];
    let is_heeded = settings.can_run(&[WEBHOOK_MATCH]);
    fields.into_iter().filter(move |(_, is_set)| *is_set && !is_heeded).map(|(field, _)| {
        let message = format!(
            "the image of the proxies does not have {WEBHOOK_MATCH}: it would ask this webhook about every message and do as it says; \
             remove the field, or set --runner-image and --runner-middleware to an image that has it"
        );
        (field, message)
    })
}

/// The selector of the proxy's document.
fn selected(lists: Option<&WebhookMatch>) -> Match {
    let WebhookMatch { methods, principals, tools } = lists.cloned().unwrap_or_default();
    Match { methods, tools, principals }
}

/// The files of a webhook: its TLS settings with their paths, the path of its HMAC key, and the files themselves.
pub fn files_of(kind: &str, webhook: &Webhook) -> (Option<TlsConfig>, String, Vec<MountedFile>) {
    let mut files = Vec::new();
    let mut file = |purpose: &str, name: &'static str, content: Content, reference: Option<&SecretKeyRef>| {
        let Some(reference) = reference else { return String::new() };
        let file = file_of((kind, webhook, purpose), name, content, reference);
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
    let hmac = file("hmac", "hmac", Content::Bytes, webhook.hmac_secret_ref.as_ref());
    (tls, hmac, files)
}

/// The selector and the mode of a webhook.
pub fn additions(webhook: &Webhook) -> WebhookAdditions {
    let mode = match webhook.mode {
        WebhookMode::Enforce => Mode::Enforce,
        WebhookMode::Shadow => Mode::Shadow,
    };
    WebhookAdditions { r#match: selected(webhook.matches.as_ref()), mode }
}

/// A file with the upper-case identifier that ToolHive gives it, unique per webhook, purpose, Secret and key. The
/// identifier names directory and volume. A trial takes no proxy down: a shadow's file may be missing, and is another one than that of
/// the webhook of its name that decides.
fn file_of(
    (kind, webhook, purpose): (&str, &Webhook, &str),
    file: &'static str,
    content: Content,
    reference: &SecretKeyRef,
) -> MountedFile {
    let optional = webhook.mode == WebhookMode::Shadow;
    let hash = short_hash(&format!("{}/{}", reference.name, reference.key));
    let mode = if optional { "SHADOW_" } else { "" };
    let identifier: String = format!("WEBHOOK_{mode}{kind}_{}_{purpose}_{hash}", webhook.name)
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
        optional,
    }
}

/// The reference of a webhook at `path` to a Secret.
pub fn reference_of(webhook: &Webhook, path: &str, (field, secret): (&str, &SecretKeyRef)) -> Reference {
    let field = format!("{path}.{field}");
    match webhook.mode {
        WebhookMode::Shadow => Reference::to_tried(field, secret),
        WebhookMode::Enforce => Reference::to_key(field, secret),
    }
}

/// The Secrets that a webhook names, each after its field.
pub fn references(webhook: &Webhook) -> impl Iterator<Item = (&'static str, &SecretKeyRef)> {
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
pub fn field(member: &'static str) -> &'static str {
    match member {
        "portcullis.match.methods" => "match.methods",
        "portcullis.match.principals" => "match.principals",
        "portcullis.match.tools" => "match.tools",
        "tls_config.client_key_path" => "tlsConfig.clientKeySecretRef",
        "tls_config.client_cert_path" => "tlsConfig.clientCertSecretRef",
        other => other,
    }
}
