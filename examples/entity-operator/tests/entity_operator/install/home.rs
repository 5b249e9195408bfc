//! A cluster with the operator installed in it.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use portcullis_testing::{CertManager, ControlPlane, free_address, wait_until};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::install::pod::{PATIENCE, Running, generate};

/// CRDs have one name in the whole cluster, so one test at a time has the operator.
pub(crate) struct Home {
    pub(crate) cluster: &'static ControlPlane,
    /// Where the operator lives.
    pub(crate) namespace: String,
    /// Port of the Service, and of the process.
    port: u16,
    _alone: MutexGuard<'static, ()>,
}

impl Home {
    /// A namespace in which nothing runs that the `restricted` Pod security standard forbids.
    pub(crate) async fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let (alone, cluster) = (ALONE.lock().await, ControlPlane::shared_with_controller_manager().await);
        let namespace = cluster.namespace("operator").await;
        let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
        let namespaces: Api<Namespace> = Api::all(cluster.admin());
        let strict = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        namespaces.patch(&namespace, &PatchParams::default(), &strict).await.unwrap();
        Self { cluster, namespace, port: free_address().port(), _alone: alone }
    }

    pub(crate) async fn cert_manager(&self) {
        static SHARED: OnceCell<CertManager> = OnceCell::const_new();
        SHARED.get_or_init(|| async { CertManager::start(self.cluster).await.unwrap() }).await;
    }

    /// Generates manifests for this installation.
    pub(crate) async fn generate(&self, what: &str, flags: &[&str]) -> Vec<Value> {
        let port = self.port.to_string();
        let place = ["--namespace", &self.namespace, "--service-port", &port, "--image", "entity-operator:test"];
        generate(what, &[&place[..], flags].concat()).await
    }

    /// Applies all of `generate operator`, unmodified, and starts one of the Pods that come of it.
    pub(crate) async fn install(&self, flags: &[&str]) -> Running {
        let objects = self.generate("operator", flags).await;
        self.cluster.apply(&objects).await;
        // The way to a Pod's address ends on this machine.
        for service in objects.iter().filter(|object| object["kind"] == "Service") {
            self.cluster.route_service(&self.namespace, service["metadata"]["name"].as_str().unwrap()).await;
        }
        let pods = self.pods(2).await;
        Running::start(self.cluster, &pods[0], self.port)
    }

    /// Removes the conversion, which users of a converted kind do before `generate --webhooks off`.
    pub(crate) async fn ends_conversion(&self) {
        use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
        let crds: Api<CustomResourceDefinition> = Api::all(self.cluster.admin());
        let replace = json!([{ "op": "replace", "path": "/spec/conversion", "value": { "strategy": "None" } }]);
        let patch = Patch::Json::<()>(serde_json::from_value(replace).unwrap());
        match crds.patch("entities.demo.example", &PatchParams::default(), &patch).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// The Pods that the Deployment's controller made, when there are so many.
    async fn pods(&self, count: usize) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.admin(), &self.namespace);
        let of_operator = ListParams::default().labels("app.kubernetes.io/name=entity-operator");
        wait_until("the Pods of the Deployment", PATIENCE, || async {
            let found = pods.list(&of_operator).await.unwrap().items;
            (found.len() == count).then_some(found)
        })
        .await
    }

    pub(crate) fn entities(&self, version: &str, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("demo.example", version, "Entity");
        let resource = ApiResource::from_gvk_with_plural(&kind, "entities");
        Api::namespaced_with(self.cluster.admin(), namespace, &resource)
    }

    /// Creates an entity for real or for show; an error is the message that the user gets.
    pub(crate) async fn create(&self, namespace: &str, entity: &Value, dry_run: bool) -> Result<DynamicObject, String> {
        let version = entity["apiVersion"].as_str().unwrap().split('/').nth(1).unwrap();
        let parameters = PostParams { dry_run, ..PostParams::default() };
        let object = serde_json::from_value(entity.clone()).unwrap();
        match self.entities(version, namespace).create(&parameters, &object).await {
            Ok(object) => Ok(object),
            Err(kube::Error::Api(status)) => Err(status.message.clone()),
            Err(error) => panic!("no answer from the API server: {error}"),
        }
    }

    /// Waits until an entity named forbidden is refused in this namespace, by this rule.
    pub(crate) async fn refuses_forbidden(&self, namespace: &str, running: &Running) {
        let refused = || async {
            let said = self.create(namespace, &person("probe", "forbidden"), true).await.err();
            said.filter(|said| said.contains("name may not be 'forbidden'."))
        };
        let waited = tokio::time::timeout(PATIENCE, wait_until("a refusal", PATIENCE * 2, refused)).await;
        assert!(
            waited.is_ok(),
            "{:?}\n{}",
            self.create(namespace, &person("probe", "forbidden"), true).await,
            running.log()
        );
    }

    /// Removes the operator's kind from the cluster, with all objects, while they can be converted.
    pub(crate) async fn clean(self, people: &str, configurations: &[&str]) {
        use k8s_openapi::api::admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
        };
        let everything = (DeleteParams::default(), ListParams::default());
        self.entities("v3", people).delete_collection(&everything.0, &everything.1).await.unwrap();
        for name in configurations {
            let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.cluster.admin());
            let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.cluster.admin());
            let _ = validating.delete(&name.replace('?', "validating"), &everything.0).await;
            let _ = mutating.delete(&name.replace('?', "mutating"), &everything.0).await;
        }
    }
}

/// An entity in the stored version.
pub(crate) fn person(name: &str, username: &str) -> Value {
    json!({
        "apiVersion": "demo.example/v3", "kind": "Entity", "metadata": { "name": name },
        "spec": { "firstname": "Ada", "lastname": "Lovelace", "username": username },
    })
}
