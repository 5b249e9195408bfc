//! The request gate of one server: which webhooks it calls and which files they need.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{KeyToPath, SecretVolumeSource, Volume, VolumeMount};
use mcp_api::v1alpha1::{MCPWebhookConfig, SecretKeyRef, Webhook};
use mcp_runconfig::webhook::WebhookConfig;

use super::{config_hash, rules};

/// Where webhook secrets are mounted.
const ROOT: &str = "/etc/toolhive/webhooks";

/// The guard that `spec.webhookConfigRef` asks for.
#[derive(Clone, Debug)]
pub(super) enum Gate {
    /// None is asked for.
    Open,
    /// It can be enforced.
    Ready(ReadyGate),
    /// It cannot be enforced.
    Broken(BrokenGate),
}

#[derive(Clone, Debug)]
pub(super) struct ReadyGate {
    pub(super) config: String,
    pub(super) hash: String,
    pub(super) validating: Vec<WebhookConfig>,
    pub(super) mutating: Vec<WebhookConfig>,
    /// By identifier.
    pub(super) files: BTreeMap<String, SecretFile>,
}

#[derive(Clone, Debug)]
pub(super) struct BrokenGate {
    pub(super) config: String,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What a Secret's value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Hmac,
    Ca,
    ClientCert,
    ClientKey,
}

/// A Secret's value as a file of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretFile {
    /// Upper-case name, unique per webhook, purpose, Secret and key; it names directory and volume.
    pub(super) identifier: String,
    pub(super) reference: SecretKeyRef,
    file: &'static str,
}

impl Gate {
    /// The gate that the configuration named `config` makes; `found` is that configuration where it exists.
    pub(super) fn of(
        config: &str,
        found: Option<&MCPWebhookConfig>,
        secrets: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> Self {
        let broken = |reason, message| Self::Broken(BrokenGate { config: config.to_owned(), reason, message });
        let Some(found) = found else {
            return broken("WebhookConfigNotFound", format!("MCPWebhookConfig {config:?} does not exist"));
        };
        let problems = rules::check_webhook_config(&found.spec);
        if !problems.is_empty() {
            let problems = rules::sentences(&problems, |problem| problem.message.clone());
            let message = format!("MCPWebhookConfig {config:?} is not valid: {problems}");
            return broken("WebhookConfigNotValid", message);
        }
        let mut files = BTreeMap::new();
        let mut translate = |kind, list: &Option<Vec<Webhook>>| -> Vec<WebhookConfig> {
            let translated = list.iter().flatten().filter_map(|webhook| rules::translate(kind, webhook).ok());
            translated
                .map(|(webhook, needed)| {
                    files.extend(needed.into_iter().map(|file| (file.identifier.clone(), file)));
                    webhook
                })
                .collect()
        };
        let mutating = translate("mutating", &found.spec.mutating);
        let validating = translate("validating", &found.spec.validating);
        let missing = missing_keys(files.values().map(|file| &file.reference), secrets);
        if !missing.is_empty() {
            let message = format!("MCPWebhookConfig {config:?} needs what does not exist: {}", missing.join(", "));
            return broken("WebhookSecretNotFound", message);
        }
        Self::Ready(ReadyGate {
            config: config.to_owned(),
            hash: config_hash(&found.spec),
            validating,
            mutating,
            files,
        })
    }
}

impl ReadyGate {
    /// The value of [`names::GATE`](super::names::GATE) on a proxy with this gate.
    pub(super) fn annotation(&self) -> String {
        format!("{}/{}", self.config, self.hash)
    }
}

impl SecretFile {
    pub(super) fn new(kind: &str, webhook: &str, purpose: Purpose, reference: &SecretKeyRef) -> Self {
        let (purpose, file) = match purpose {
            Purpose::Hmac => ("hmac", "hmac"),
            Purpose::Ca => ("tls_ca", "ca.crt"),
            Purpose::ClientCert => ("tls_client_cert", "tls.crt"),
            Purpose::ClientKey => ("tls_client_key", "tls.key"),
        };
        let hash = short_hash(&format!("{}/{}", reference.name, reference.key));
        let identifier: String = format!("WEBHOOK_{kind}_{webhook}_{purpose}_{hash}")
            .to_ascii_uppercase()
            .chars()
            .map(|c| if c.is_ascii_uppercase() || c.is_ascii_digit() { c } else { '_' })
            .collect();
        Self { identifier, reference: reference.clone(), file }
    }

    /// Absolute path of the file.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.directory(), self.file)
    }

    /// Mounted as a directory of its own, never as a subPath: that is what keeps it current in a running pod.
    pub(super) fn volume(&self) -> (Volume, VolumeMount) {
        let name = format!("whsec-{}", short_hash(&self.identifier));
        let item = KeyToPath { key: self.reference.key.clone(), path: self.file.to_owned(), mode: None };
        let secret = SecretVolumeSource {
            secret_name: Some(self.reference.name.clone()),
            items: Some(vec![item]),
            ..SecretVolumeSource::default()
        };
        let mount = VolumeMount {
            name: name.clone(),
            mount_path: self.directory(),
            read_only: Some(true),
            ..VolumeMount::default()
        };
        (Volume { name, secret: Some(secret), ..Volume::default() }, mount)
    }

    fn directory(&self) -> String {
        format!("{ROOT}/{}", self.identifier.to_ascii_lowercase())
    }
}

/// `SECRET/KEY` of every reference that does not exist, sorted, each once.
pub(super) fn missing_keys<'a>(
    references: impl Iterator<Item = &'a SecretKeyRef>,
    secrets: &BTreeMap<String, BTreeMap<String, String>>,
) -> Vec<String> {
    let exists =
        |reference: &SecretKeyRef| secrets.get(&reference.name).is_some_and(|keys| keys.contains_key(&reference.key));
    let mut missing: Vec<_> = references
        .filter(|reference| !exists(reference))
        .map(|reference| format!("Secret {}/{}", reference.name, reference.key))
        .collect();
    missing.sort();
    missing.dedup();
    missing
}

/// FNV-1a over the text as Go's dump of a string shows it: the names upstream gives to the same files.
fn short_hash(text: &str) -> String {
    let hash = "(string)"
        .bytes()
        .chain(text.bytes())
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:x}")
}
