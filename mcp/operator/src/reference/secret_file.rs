//! A Secret's value as a file of the proxy.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{KeyToPath, SecretVolumeSource, Volume, VolumeMount};

use super::{Content, Secrets};

/// A Secret's value as a file of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFile {
    /// The Secret.
    pub secret: String,
    /// The key of its data.
    pub key: String,
    /// What the value is used as.
    pub content: Content,
    /// Name of the volume.
    pub volume: String,
    /// Absolute path of the directory that holds this file alone.
    pub directory: String,
    /// Name of the file.
    pub file: &'static str,
}

impl SecretFile {
    /// Absolute path of the file.
    pub fn path(&self) -> String {
        format!("{}/{}", self.directory, self.file)
    }

    /// Mounted as a directory of its own, never as a subPath: that is what keeps it current in a running pod.
    pub fn mount(&self) -> (Volume, VolumeMount) {
        let item = KeyToPath { key: self.key.clone(), path: self.file.to_owned(), mode: None };
        let secret = SecretVolumeSource {
            secret_name: Some(self.secret.clone()),
            items: Some(vec![item]),
            ..SecretVolumeSource::default()
        };
        let mount = VolumeMount {
            name: self.volume.clone(),
            mount_path: self.directory.clone(),
            read_only: Some(true),
            ..VolumeMount::default()
        };
        (Volume { name: self.volume.clone(), secret: Some(secret), ..Volume::default() }, mount)
    }

    /// What keeps the value from being used, if it exists and anything does.
    pub fn problem(&self, secrets: &Secrets) -> Option<String> {
        let at = |secret: &str, key: &str| secrets.get(secret).and_then(|keys| keys.get(key));
        let problem = at(&self.secret, &self.key)?.problem(&self.content, at)?;
        Some(format!("Secret {}/{} {problem}", self.secret, self.key))
    }
}

/// `Secret NAME/KEY` of every pair that does not exist, sorted, each once.
pub fn missing_keys<'a>(wanted: impl Iterator<Item = (&'a str, &'a str)>, secrets: &Secrets) -> Vec<String> {
    let exists = |secret: &str, key: &str| secrets.get(secret).is_some_and(|keys| keys.contains_key(key));
    let missing: BTreeSet<_> = wanted
        .filter(|(secret, key)| !exists(secret, key))
        .map(|(secret, key)| format!("Secret {secret}/{key}"))
        .collect();
    missing.into_iter().collect()
}
