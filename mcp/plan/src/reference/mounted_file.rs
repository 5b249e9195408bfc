//! A value of a Secret or ConfigMap as a file of the proxy.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, KeyToPath, SecretVolumeSource, Volume, VolumeMount};

use super::{Content, Source};

/// A value of a Secret or ConfigMap as a file of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedFile {
    /// Where the value is.
    pub source: Source,
    /// The key of its data.
    pub key: String,
    /// The use of the value.
    pub content: Content,
    /// Name of the volume.
    pub volume: String,
    /// Absolute path of the directory that holds this file alone.
    pub directory: String,
    /// Name of the file.
    pub file: Cow<'static, str>,
    /// Whether the proxy starts without it, and takes it up when it comes.
    pub optional: bool,
}

impl MountedFile {
    /// Absolute path of the file.
    pub fn path(&self) -> String {
        format!("{}/{}", self.directory, self.file)
    }

    /// Mounted as a directory of its own, never as a subPath: that is what keeps it current in a running pod.
    pub fn mount(&self) -> (Volume, VolumeMount) {
        let item = KeyToPath { key: self.key.clone(), path: self.file.clone().into_owned(), mode: None };
        let (items, optional) = (Some(vec![item]), self.optional.then_some(true));
        let mut volume = Volume { name: self.volume.clone(), ..Volume::default() };
        match &self.source {
            Source::Secret(name) => {
                let secret_name = Some(name.clone());
                volume.secret =
                    Some(SecretVolumeSource { secret_name, items, optional, ..SecretVolumeSource::default() });
            }
            Source::ConfigMap(name) => {
                let name = name.clone();
                volume.config_map =
                    Some(ConfigMapVolumeSource { name, items, optional, ..ConfigMapVolumeSource::default() });
            }
        }
        let mount = VolumeMount {
            name: self.volume.clone(),
            mount_path: self.directory.clone(),
            read_only: Some(true),
            ..VolumeMount::default()
        };
        (volume, mount)
    }
}
