//! The contents of referenced Secrets and ConfigMaps, read once for each version, and the key of their digests.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use mcp_plan::{
    digest::DigestKey,
    reference::{Data, Entry, Reference, Source},
    workload::ChildKind,
};
use portcullis::{controller::ControllerError, operator::Runtime};
use tokio_util::sync::CancellationToken;

use super::{Stores, request::in_time};
use crate::rights;

/// Key of the Secret that holds the digests' key.
const KEY: &str = "key";
/// Fewest bytes of that key.
const KEY_LENGTH: usize = 32;

/// Reads what workloads refer to.
#[derive(Clone)]
pub(super) struct Contents {
    client: Client,
    stores: Arc<Stores>,
    key: DigestKey,
}

impl Contents {
    /// Returns the digests of the Secrets in `stores`, once their key is known; `None` when the controller has to end
    /// before that.
    pub(super) async fn of(runtime: &Runtime, stores: Arc<Stores>) -> Option<Self> {
        let name = rights::digest_secret(&runtime.release);
        let key = digest_key(&runtime.client, &runtime.namespace, &name, &runtime.stop).await?;
        Some(Self { client: runtime.client.clone(), stores, key })
    }

    /// The Secrets and ConfigMaps among `references` that exist: what their values are good for, and the first failure to
    /// read one. The values themselves are dropped at once, but for texts of ConfigMaps that a reference asks for.
    pub(super) async fn data(
        &self,
        namespace: &str,
        references: impl Iterator<Item = &Reference>,
    ) -> (Data, Option<ControllerError>) {
        let (mut data, mut failed) = (Data::default(), None);
        let mut wanted: BTreeMap<Source, bool> = BTreeMap::new();
        for (source, is_text) in references.filter_map(|it| Some((it.source()?, it.is_text))) {
            *wanted.entry(source).or_default() |= is_text;
        }
        for (source, is_text) in wanted {
            match self.content(namespace, &source, is_text).await {
                Ok(None) => {}
                Ok(Some(content)) => {
                    _ = match source {
                        Source::Secret(name) => data.secrets.insert(name, content),
                        Source::ConfigMap(name) => data.config_maps.insert(name, content),
                    }
                }
                Err(error) => _ = failed.get_or_insert(error),
            }
        }
        (data, failed)
    }

    async fn content(
        &self,
        namespace: &str,
        source: &Source,
        is_text: bool,
    ) -> Result<Option<BTreeMap<String, Entry>>, ControllerError> {
        let (store, name) = match source {
            Source::Secret(name) => (self.stores.secrets(), name),
            Source::ConfigMap(name) => (self.stores.children(ChildKind::ConfigMap), name),
        };
        let Some(trace) = store.get(namespace, name) else { return Ok(None) };
        let (cell, entry): (_, fn(&[u8], &DigestKey) -> Entry) = match source {
            Source::ConfigMap(_) if is_text => (&trace.texts, Entry::of_text),
            _ => (&trace.content, Entry::of),
        };
        let content = cell.get_or_try_init(|| async {
            let object = || format!("{} {namespace}/{name}", source.kind());
            match source {
                Source::Secret(_) => {
                    let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
                    let secret = in_time("read", object, api.get_opt(name)).await?;
                    Ok(secret.map(|secret| {
                        self.entries(secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)), Entry::of)
                    }))
                }
                Source::ConfigMap(_) => {
                    let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
                    let map = in_time("read", object, api.get_opt(name)).await?;
                    Ok(map.map(|map| {
                        let text = map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
                        let bytes = map.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
                        self.entries(text.chain(bytes), entry)
                    }))
                }
            }
        });
        content.await.cloned()
    }

    fn entries(
        &self,
        values: impl Iterator<Item = (String, Vec<u8>)>,
        entry: fn(&[u8], &DigestKey) -> Entry,
    ) -> BTreeMap<String, Entry> {
        values.map(|(key, value)| (key, entry(&value, &self.key))).collect()
    }
}

/// The key of the digests of Secret values: that of the Secret `name` in our own namespace, which is made once. Whoever
/// loses it rolls the pods that have such a digest, once. `None` when it has to end before that is done.
async fn digest_key(client: &Client, namespace: &str, name: &str, stop: &CancellationToken) -> Option<DigestKey> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mut pause = Duration::from_millis(200);
    loop {
        match kept_key(&api, namespace, name).await {
            Ok(key) => return Some(key),
            Err(error) => {
                tracing::warn!(
                    namespace,
                    name,
                    %error,
                    "cannot read or create the Secret that keys the hashes of referenced Secrets, so nothing is \
                     reconciled (if it exists without a key of 32 bytes, delete it); retrying"
                );
            }
        }
        stop.run_until_cancelled(tokio::time::sleep(pause)).await?;
        pause = (2 * pause).min(Duration::from_secs(30));
    }
}

async fn kept_key(api: &Api<Secret>, namespace: &str, name: &str) -> Result<DigestKey, ControllerError> {
    let object = || format!("Secret {namespace}/{name}");
    let find = async || -> Result<Option<DigestKey>, ControllerError> {
        let secret = in_time("read", object, api.get_opt(name)).await?;
        let key = secret.and_then(|secret| secret.data?.remove(KEY)).filter(|key| key.0.len() >= KEY_LENGTH);
        Ok(key.map(|key| DigestKey::new(&key.0)))
    };
    if let Some(key) = find().await? {
        return Ok(key);
    }
    // 244 random bits.
    let bytes = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(uuid::Uuid::into_bytes).concat();
    let made = Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([(KEY.to_owned(), ByteString(bytes.clone()))].into()),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    match in_time("create", object, api.create(&PostParams::default(), &made)).await {
        Ok(_) => Ok(DigestKey::new(&bytes)),
        // The process does not run in the cluster: there is nowhere to keep the key, and nobody to share it with.
        Err(ControllerError::Request { source, .. }) if is_not_found(&source) => {
            tracing::warn!(
                namespace,
                name,
                "the operator's namespace does not exist, so the key for hashes of referenced Secrets is lost with this \
                 process: the next one rolls the pods that use such Secrets"
            );
            Ok(DigestKey::new(&bytes))
        }
        // Another replica was faster, or the Secret holds no key that can be used.
        Err(error) => find().await?.ok_or(error),
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
