//! Webhooks in front of a namespace of a real API server.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::{Client, CustomResourceExt};
use portcullis::server::Limits;
use portcullis::webhooks::{Context, Mutate, Mutation, Validate, Verdict, Webhooks};
use portcullis_manifest::{ServiceRef, Webhook, mutating_configuration, validating_configuration};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};

use crate::fixture::{Entity, Serving, serve};

const SERVICE: &str = "entity-operator";

/// A namespace whose objects go through webhooks that this process serves.
pub(crate) struct Gate {
    pub(crate) namespace: String,
    pub(crate) client: Client,
    pub(crate) serving: Serving,
}

impl Gate {
    /// Serves the webhooks, registers their generated configurations for one fresh namespace alone, and returns when
    /// they are in force: `probe` is the username of an Entity that they refuse or change.
    pub(crate) async fn open(webhooks: Webhooks, change: impl Fn(&mut Webhook), probe: &str) -> Self {
        let gate = Self::install(webhooks, change, &[Entity::crd()]).await;
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let object = gate.object("probe", json!({"username": probe}));
        wait_until("the webhooks to be in force", Duration::from_mins(1), || async {
            match gate.api().create(&dry, &object).await {
                Ok(made) => (made.data["spec"]["username"] != probe).then_some(()),
                Err(_) => Some(()),
            }
        })
        .await;
        gate
    }

    /// As [`open`](Self::open), for webhooks of any kinds: one of each configuration is for ConfigMaps named `probe`.
    pub(crate) async fn over(webhooks: Webhooks, crds: &[CustomResourceDefinition]) -> Self {
        let is_probe = |map: &ConfigMap| map.metadata.name.as_deref() == Some("probe");
        let webhooks = webhooks
            .validate(Validate::<ConfigMap>::new("probe").on_create(
                move |new: Arc<ConfigMap>, _: Context| async move {
                    match new.data {
                        Some(_) if is_probe(&new) => Verdict::deny("both are in force"),
                        _ => Verdict::allow(),
                    }
                },
            ))
            .mutate(Mutate::<ConfigMap>::new("probe").on_create(move |mut new: ConfigMap, _: Context| async move {
                if !is_probe(&new) {
                    return Mutation::unchanged();
                }
                new.data = Some([("seen".to_owned(), String::new())].into());
                Mutation::modified(new)
            }));
        let gate = Self::install(webhooks, |_| {}, crds).await;
        let maps: Api<ConfigMap> = Api::namespaced(gate.client.clone(), &gate.namespace);
        let probe = ConfigMap {
            metadata: ObjectMeta { name: Some("probe".into()), ..ObjectMeta::default() },
            ..ConfigMap::default()
        };
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        wait_until("both configurations to be in force", Duration::from_mins(1), || async {
            maps.create(&dry, &probe).await.err().filter(|error| error.to_string().contains("both are in force"))
        })
        .await;
        gate
    }

    async fn install(webhooks: Webhooks, change: impl Fn(&mut Webhook), crds: &[CustomResourceDefinition]) -> Self {
        let cluster = ControlPlane::shared().await;
        cluster.install_crds(crds).await;
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
        Self { namespace, client: cluster.admin(), serving }
    }

    /// The objects of a kind in this namespace.
    pub(crate) fn of<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Sends JSON to a path below the namespace, and returns the status, the warnings and the body of the answer.
    pub(crate) async fn send(&self, method: &str, path: &str, media: &str, body: &Value) -> (u16, Vec<String>, Value) {
        let group = if path.starts_with("pods/") { "/api/v1" } else { "/apis/demo.example/v1" };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{group}/namespaces/{}/{path}", self.namespace))
            .header("content-type", media)
            .body(kube::client::Body::from(body.to_string().into_bytes()))
            .unwrap();
        let (head, body) = self.client.send(request).await.unwrap().into_parts();
        let warnings = head
            .headers
            .get_all("warning")
            .iter()
            .map(|w| String::from_utf8_lossy(w.as_bytes()).into_owned())
            .collect();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), warnings, serde_json::from_slice(&body).unwrap_or(Value::Null))
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

pub(crate) fn status(error: &kube::Error) -> Value {
    let kube::Error::Api(status) = error else { panic!("no answer from the API server: {error}") };
    serde_json::to_value(status).unwrap()
}
