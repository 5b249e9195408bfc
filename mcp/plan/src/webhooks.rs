//! Webhooks that are asked about requests: one of them, as a configuration says it.

use mcp_api::v1alpha1::{SecretKeyRef, Webhook, WebhookMatch, WebhookMode};
use mcp_runconfig::{chain::WEBHOOK_MATCH, webhook::Match};

use crate::{
    digest::short_hash,
    reference::{Content, MountedFile, Reference, Source},
    settings::Settings,
};

/// Where the files of webhooks are mounted.
const ROOT: &str = "/etc/toolhive/webhooks";

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
pub fn selected(lists: Option<&WebhookMatch>) -> Match {
    let WebhookMatch { methods, principals, tools } = lists.cloned().unwrap_or_default();
    Match { methods, tools, principals }
}

/// A file with the upper-case identifier that ToolHive gives it, unique per webhook, purpose, Secret and key. The
/// identifier names directory and volume. A trial takes no proxy down: a shadow's file may be missing, and is another one than that of
/// the webhook of its name that decides.
pub fn file_of(
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
        WebhookMode::Shadow => Reference::to_tried(field, &secret.name),
        WebhookMode::Enforce => Reference::to_source(field, &Source::Secret(secret.name.clone())),
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
