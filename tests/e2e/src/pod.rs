//! Plays the kubelet for a process beside the cluster: mounted objects become files, and a container's environment
//! becomes the process's.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, KeyToPath, PodSpec, Secret, ServiceAccount, Volume};
use kube::api::PostParams;
use kube::{Api, Client};

/// Where a container finds the token of its ServiceAccount, and the authority of the API server.
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";
/// Where kube-controller-manager publishes that authority, in each namespace.
const ROOT_CA: &str = "kube-root-ca.crt";

/// A pod of a Deployment, as far as its first container sees it.
pub struct Pod<'a> {
    client: &'a Client,
    namespace: &'a str,
    annotations: Option<&'a BTreeMap<String, String>>,
    spec: &'a PodSpec,
    container: &'a Container,
}

impl std::fmt::Debug for Pod<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pod").field("namespace", &self.namespace).field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl<'a> Pod<'a> {
    /// The pod that `deployment` asks for.
    pub fn of(client: &'a Client, deployment: &'a Deployment) -> Result<Self> {
        let namespace = deployment.metadata.namespace.as_deref().context("the Deployment has no namespace")?;
        let template = &deployment.spec.as_ref().context("no pod template")?.template;
        let annotations = template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
        let spec = template.spec.as_ref().context("the pod template has no spec")?;
        let container = spec.containers.first().context("no container")?;
        Ok(Self { client, namespace, annotations, spec, container })
    }

    /// Writes every Secret and ConfigMap that is mounted below `root`, at the mount paths, and the ServiceAccount's token. Files whose content is
    /// the same are left alone, as the kubelet leaves them. A ConfigMap that is missing gives no files, as it is one that a proxy can do without.
    pub async fn write_files(&self, root: &Path) -> Result<()> {
        for mount in self.container.volume_mounts.iter().flatten() {
            let volume = self.spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
            let volume = volume.with_context(|| format!("there is no volume {}", mount.name))?;
            let folder = root.join(mount.mount_path.trim_start_matches('/'));
            for (file, content) in self.files(volume).await? {
                write(&folder, &file, &content)?;
            }
        }
        self.write_account(root).await
    }

    async fn files(&self, volume: &Volume) -> Result<BTreeMap<String, Vec<u8>>> {
        if let Some(source) = &volume.secret {
            let data = self.secret(source.secret_name.as_deref().unwrap_or_default()).await?;
            return picked(data.into_iter().map(|(key, value)| (key, value.0)).collect(), source.items.as_deref());
        }
        let Some(source) = &volume.config_map else { return Ok(BTreeMap::new()) };
        let Some(data) = self.config_map(&source.name).await? else { return Ok(BTreeMap::new()) };
        picked(data.into_iter().map(|(key, value)| (key, value.into_bytes())).collect(), source.items.as_deref())
    }

    /// The token that the kubelet asks for, and keeps new, and the API server's authority.
    async fn write_account(&self, root: &Path) -> Result<()> {
        let Some(account) = &self.spec.service_account_name else { return Ok(()) };
        if self.spec.automount_service_account_token == Some(false) {
            return Ok(());
        }
        let token = account_token(self.client, self.namespace, account, &[]).await?;
        let authority = self.config_map(ROOT_CA).await?.unwrap_or_default().remove("ca.crt");
        let authority = authority.with_context(|| format!("ConfigMap {ROOT_CA} has no ca.crt"))?;
        write(&root.join(ACCOUNT), "token", token.as_bytes())?;
        write(&root.join(ACCOUNT), "ca.crt", authority.as_bytes())
    }

    /// The environment variables of the container: plain ones, and those from Secrets and annotations.
    pub async fn environment(&self) -> Result<Vec<(String, String)>> {
        let mut all = Vec::new();
        for variable in self.container.env.iter().flatten() {
            all.push((variable.name.clone(), self.value(variable).await?));
        }
        Ok(all)
    }

    async fn value(&self, variable: &EnvVar) -> Result<String> {
        let Some(from) = &variable.value_from else { return Ok(variable.value.clone().unwrap_or_default()) };
        if let Some(field) = &from.field_ref {
            let name = field.field_path.strip_prefix("metadata.annotations['").and_then(|path| path.strip_suffix("']"));
            let name = name.with_context(|| format!("{} comes from {}", variable.name, field.field_path))?;
            return Ok(self.annotations.and_then(|all| all.get(name)).cloned().unwrap_or_default());
        }
        let source = from.secret_key_ref.as_ref().with_context(|| format!("{} comes from elsewhere", variable.name))?;
        let value = self.secret(&source.name).await?.remove(&source.key);
        let value = value.with_context(|| format!("Secret {} has no key {}", source.name, source.key))?;
        Ok(String::from_utf8(value.0)?)
    }

    async fn secret(&self, name: &str) -> Result<BTreeMap<String, ByteString>> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        Ok(secrets.get(name).await?.data.unwrap_or_default())
    }

    async fn config_map(&self, name: &str) -> Result<Option<BTreeMap<String, String>>> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.namespace);
        Ok(maps.get_opt(name).await?.map(|map| map.data.unwrap_or_default()))
    }
}

/// A token of a ServiceAccount for these audiences; for the API server's own when there are none.
pub async fn account_token(client: &Client, namespace: &str, account: &str, audiences: &[&str]) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let audiences = audiences.iter().map(ToString::to_string).collect();
    let spec = TokenRequestSpec { audiences, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    Ok(answer.status.context("the API server gave no token")?.token)
}

/// The files that a volume has: one for each key, or for each of `items`.
fn picked(mut data: BTreeMap<String, Vec<u8>>, items: Option<&[KeyToPath]>) -> Result<BTreeMap<String, Vec<u8>>> {
    let Some(items) = items.filter(|items| !items.is_empty()) else { return Ok(data) };
    let file = |item: &KeyToPath| {
        let content = data.remove(&item.key).with_context(|| format!("key {} is not there", item.key))?;
        Ok((item.path.clone(), content))
    };
    items.iter().map(file).collect()
}

fn write(folder: &Path, file: &str, content: &[u8]) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let file = folder.join(file);
    if std::fs::read(&file).ok().as_deref() != Some(content) {
        std::fs::write(&file, content)?;
    }
    Ok(())
}
