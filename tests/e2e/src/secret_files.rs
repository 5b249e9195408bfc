//! What the kubelet does for a pod, done for a process beside the cluster: the Secrets that a Deployment mounts become files.

use std::path::Path;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, SecretVolumeSource};
use kube::{Api, Client};

/// Writes every Secret volume of the first container of `deployment` below `root`, at the mount paths of the pod. Files whose content is the same
/// are left alone, as the kubelet leaves them.
pub async fn write_secret_mounts(client: &Client, deployment: &Deployment, root: &Path) -> Result<usize> {
    let namespace = deployment.metadata.namespace.as_deref().context("the Deployment has no namespace")?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).context("no pod template")?;
    let mounts = pod.containers.first().and_then(|container| container.volume_mounts.as_deref()).unwrap_or_default();
    let mut written = 0;
    for mount in mounts {
        let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name);
        let Some(source) = volume.and_then(|volume| volume.secret.as_ref()) else { continue };
        let secret = secrets.get(source.secret_name.as_deref().unwrap_or_default()).await?;
        let folder = root.join(mount.mount_path.trim_start_matches('/'));
        written += write_secret(&secret, source, &folder)?;
    }
    Ok(written)
}

fn write_secret(secret: &Secret, source: &SecretVolumeSource, folder: &Path) -> Result<usize> {
    std::fs::create_dir_all(folder)?;
    let items = source.items.as_deref().unwrap_or_default();
    for item in items {
        let content = secret.data.as_ref().and_then(|data| data.get(&item.key));
        let content = content.with_context(|| format!("Secret {:?} has no key {}", source.secret_name, item.key))?;
        let file = folder.join(&item.path);
        if std::fs::read(&file).ok().as_deref() != Some(&content.0) {
            std::fs::write(&file, &content.0)?;
        }
    }
    Ok(items.len())
}
