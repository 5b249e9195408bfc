//! Objects in the cluster, written and read.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use portcullis_e2e::apply::apply;
use serde_json::Value;
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) async fn expect_taken(client: &Client, object: &Value) -> Result<()> {
    let refused = apply(client, object).await?.err();
    refused.map_or(Ok(()), |refusal| {
        Err(anyhow::anyhow!("{} is refused: {}", object["metadata"]["name"], refusal.message))
    })
}

pub(crate) fn dynamic(client: &Client, namespace: &str, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

pub(crate) fn servers(client: &Client, namespace: &str) -> Api<DynamicObject> {
    dynamic(client, namespace, "toolhive.stacklok.dev", "v1beta1", "MCPServer")
}

/// The RunConfig that the operator wrote for a server.
pub(crate) async fn run_config(client: &Client, namespace: &str, server: &str) -> Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = maps.get(&format!("{server}-runconfig")).await?;
    map.data.and_then(|mut data| data.remove("runconfig.json")).context("no runconfig.json")
}
