//! Our own kinds in the stores, and the writes to them: status by server-side apply, finalizers by a JSON patch that
//! tests what it replaces.

use std::{fmt::Debug, time::Duration};

use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    core::{DeserializeGuard, NamespaceResourceScope},
};
use mcp_api::{v1alpha1::MCPWebhookConfig, v1beta1::MCPServer};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::ReconcileError;
use crate::{
    apply::{StatusState, names, prune, status_needs_apply, version_number},
    cache::Stored,
    plan::{Finalizer, references},
};

/// Deadline of one request.
const DEADLINE: Duration = Duration::from_secs(40);

/// An object of one of our kinds, as it was delivered.
#[derive(Debug)]
pub struct Custom<K> {
    namespace: String,
    name: String,
    version: u64,
    tokens: Vec<String>,
    /// Its status, and what of it is ours.
    pub status: StatusState,
    /// The object without `managedFields`; or, when it does not decode, why.
    pub object: Result<K, String>,
    /// Its finalizers, decoded or not.
    pub finalizers: Vec<String>,
    /// Whether it is being deleted, decoded or not.
    pub deleting: bool,
}

/// Writes to objects of one kind.
pub(super) struct Writer<K> {
    client: Client,
    manager: &'static str,
    read: fn(DeserializeGuard<K>) -> Custom<K>,
}

// === impl Custom ===

impl Custom<MCPServer> {
    /// Keeps an MCPServer.
    pub fn server(guard: DeserializeGuard<MCPServer>) -> Self {
        Self::of(
            guard,
            names::SERVER_STATUS,
            |server| serde_json::to_value(&server.status),
            |server| {
                let references = references(server, None);
                let config = references.webhook_config.into_iter().map(|name| token("webhook", &name));
                let secrets = references.secrets.iter().map(|name| token("secret", name));
                let maps = references.config_maps.iter().map(|name| token("configmap", name));
                config.chain(secrets).chain(maps).collect()
            },
        )
    }
}

impl Custom<MCPWebhookConfig> {
    /// Keeps an MCPWebhookConfig.
    pub fn webhook_config(guard: DeserializeGuard<MCPWebhookConfig>) -> Self {
        Self::of(
            guard,
            names::WEBHOOK_CONFIG_STATUS,
            |config| serde_json::to_value(&config.status),
            |config| {
                let references = references(&MCPServer::default(), Some(config));
                references.secrets.iter().map(|name| token("secret", name)).collect()
            },
        )
    }
}

impl<K: Resource<DynamicType = ()>> Custom<K> {
    fn of(
        DeserializeGuard(object): DeserializeGuard<K>,
        manager: &str,
        status: fn(&K) -> serde_json::Result<Value>,
        tokens: fn(&K) -> Vec<String>,
    ) -> Self {
        let metadata = match &object {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        };
        let value = object.as_ref().ok().and_then(|object| status(object).ok()).unwrap_or_default();
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            version: version_number(metadata),
            tokens: object.as_ref().map(tokens).unwrap_or_default(),
            status: StatusState::read(metadata, value, manager),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            object: object.map_err(|invalid| invalid.error).map(|mut object| {
                object.meta_mut().managed_fields = None;
                object
            }),
        }
    }
}

/// A token by which objects of our kinds are found: what they refer to.
pub(super) fn token(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

impl<K: Send + Sync + 'static> Stored for Custom<K> {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn tokens(&self) -> Vec<String> {
        self.tokens.clone()
    }
}

// === impl Writer ===

impl<K> Writer<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static,
{
    pub(super) fn new(client: Client, manager: &'static str, read: fn(DeserializeGuard<K>) -> Custom<K>) -> Self {
        Self { client, manager, read }
    }

    /// Applies `status` when it differs from what `live` has; returns what the API server made of it.
    pub(super) async fn status(
        &self,
        live: &Custom<K>,
        object: &K,
        status: &impl Serialize,
    ) -> Result<Option<Custom<K>>, ReconcileError> {
        let mut status =
            serde_json::to_value(status).map_err(|source| ReconcileError::Status { object: describe(live), source })?;
        prune(&mut status);
        if !status_needs_apply(&live.status, &status) {
            return Ok(None);
        }
        // The uid keeps the status of a deleted object off its successor.
        let document = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {"name": live.name, "namespace": live.namespace, "uid": object.uid()},
            "status": status,
        });
        let params = PatchParams::apply(self.manager).force();
        let (api, patch) = (self.api(&live.namespace), Patch::Apply(&document));
        let write = api.patch_status(&live.name, &params, &patch);
        match within("apply the status of", live, write).await {
            Ok(written) => Ok(Some((self.read)(written))),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds or removes `name`; returns what the API server made of it, `None` when there was nothing to do.
    pub(super) async fn finalizer(
        &self,
        live: &Custom<K>,
        name: &str,
        wish: Finalizer,
    ) -> Result<Option<Custom<K>>, ReconcileError> {
        let held = live.finalizers.iter().any(|finalizer| finalizer == name);
        let patch = match wish {
            Finalizer::Add if !held && live.finalizers.is_empty() => {
                // Nobody has added one since: otherwise this would erase it.
                json!([
                    {"op": "test", "path": "/metadata/finalizers", "value": null},
                    {"op": "add", "path": "/metadata/finalizers", "value": [name]},
                ])
            }
            Finalizer::Add if !held => json!([
                {"op": "test", "path": "/metadata/finalizers", "value": live.finalizers},
                {"op": "add", "path": "/metadata/finalizers/-", "value": name},
            ]),
            Finalizer::Remove if held => {
                let rest: Vec<&String> = live.finalizers.iter().filter(|finalizer| *finalizer != name).collect();
                json!([
                    {"op": "test", "path": "/metadata/finalizers", "value": live.finalizers},
                    {"op": "replace", "path": "/metadata/finalizers", "value": rest},
                ])
            }
            _ => return Ok(None),
        };
        let patch: json_patch::Patch = serde_json::from_value(patch)
            .map_err(|source| ReconcileError::Status { object: describe(live), source })?;
        let params = PatchParams { field_manager: Some(names::FINALIZERS.to_owned()), ..PatchParams::default() };
        let (api, patch) = (self.api(&live.namespace), Patch::Json::<()>(patch));
        let write = api.patch(&live.name, &params, &patch);
        match within("patch the finalizers of", live, write).await {
            Ok(written) => Ok(Some((self.read)(written))),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn api(&self, namespace: &str) -> Api<DeserializeGuard<K>> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

fn is_gone(error: &ReconcileError) -> bool {
    matches!(error, ReconcileError::Request { source, .. }
        if matches!(&**source, kube::Error::Api(status) if status.code == 404))
}

fn describe<K: Resource<DynamicType = ()>>(live: &Custom<K>) -> String {
    format!("{} {}/{}", K::kind(&()), live.namespace, live.name)
}

async fn within<K: Resource<DynamicType = ()>, T>(
    verb: &'static str,
    live: &Custom<K>,
    write: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ReconcileError> {
    match tokio::time::timeout(DEADLINE, write).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(ReconcileError::Request { verb, object: describe(live), source: Box::new(source) }),
        Err(_) => Err(ReconcileError::Deadline { verb, object: describe(live), seconds: DEADLINE.as_secs() }),
    }
}
