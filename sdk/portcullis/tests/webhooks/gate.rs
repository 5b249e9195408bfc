//! Webhooks in front of a namespace of a real API server.

use std::time::Duration;

use base64::Engine as _;
use kube::api::{Api, DeleteParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::{Client, CustomResourceExt};
use portcullis::server::Limits;
use portcullis::webhooks::Webhooks;
use portcullis_manifest::{ServiceRef, Webhook, mutating_configuration, validating_configuration};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};

use crate::fixture::{Entity, Serving, serve};

const SERVICE: &str = "entity-operator";

/// A namespace whose Entities go through webhooks that this process serves.
pub(crate) struct Gate {
    pub(crate) namespace: String,
    pub(crate) client: Client,
    _serving: Serving,
}

impl Gate {
    /// Serves the webhooks, registers their generated configurations for one fresh namespace alone, and returns when
    /// they are in force: `probe` is the username of an Entity that they refuse or change.
    pub(crate) async fn open(webhooks: Webhooks, change: impl Fn(&mut Webhook), probe: &str) -> Self {
        let cluster = ControlPlane::shared().await;
        cluster.install_crds(&[Entity::crd()]).await;
        let namespace = cluster.namespace("gate").await;
        let name = format!("{SERVICE}.{namespace}.svc");
        let serving = serve(webhooks.routes().unwrap(), Limits::default(), &[&name]).await;

        let mut manifests = webhooks.manifests().unwrap();
        for manifest in &mut manifests {
            let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
            manifest.namespace_selector = Some(serde_json::from_value(selector).unwrap());
            change(manifest);
        }
        let service = ServiceRef { namespace: namespace.clone(), name: SERVICE.into(), port: 443 };
        let bundle = base64::engine::general_purpose::STANDARD.encode(serving.ca.cert_pem());
        let mut configurations = [
            serde_json::to_value(validating_configuration(&namespace, &manifests, &service)).unwrap(),
            serde_json::to_value(mutating_configuration(&namespace, &manifests, &service)).unwrap(),
        ];
        for webhook in configurations.iter_mut().filter_map(|c| c["webhooks"].as_array_mut()).flatten() {
            webhook["clientConfig"]["caBundle"] = json!(bundle);
        }
        cluster.install_webhooks(&configurations, serving.address.port()).await;

        let gate = Self { namespace, client: cluster.admin(), _serving: serving };
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let object = gate.object("probe", json!({"username": probe}));
        wait_until("the webhooks to be in force", Duration::from_secs(20), || async {
            match gate.api().create(&dry, &object).await {
                Ok(made) => (made.data["spec"]["username"] != probe).then_some(()),
                Err(_) => Some(()),
            }
        })
        .await;
        gate
    }

    pub(crate) fn api(&self) -> Api<DynamicObject> {
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("demo.example", "v1", "Entity"), "entities");
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    pub(crate) fn object(&self, name: &str, spec: Value) -> DynamicObject {
        serde_json::from_value(json!({"apiVersion": "demo.example/v1", "kind": "Entity",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec}))
        .unwrap()
    }

    /// Creates an Entity, or returns the Status that says why not.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> Result<DynamicObject, Value> {
        self.api().create(&PostParams::default(), &self.object(name, spec)).await.map_err(|error| status(&error))
    }

    /// Merges a change into an Entity, or returns the Status that says why not.
    pub(crate) async fn change(&self, name: &str, change: Value) -> Result<DynamicObject, Value> {
        let patch = kube::api::Patch::Merge(change);
        self.api().patch(name, &kube::api::PatchParams::default(), &patch).await.map_err(|error| status(&error))
    }

    pub(crate) async fn delete(&self, name: &str, how: &DeleteParams) -> Result<(), Value> {
        self.api().delete(name, how).await.map(drop).map_err(|error| status(&error))
    }
}

fn status(error: &kube::Error) -> Value {
    let kube::Error::Api(status) = error else { panic!("no answer from the API server: {error}") };
    serde_json::to_value(status).unwrap()
}
