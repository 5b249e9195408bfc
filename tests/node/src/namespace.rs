//! A namespace for one test.

use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt};
use portcullis_testing::{apply_manifests, wait_for_object, wait_until};
use serde_json::{Value, json};

use crate::node::{DEADLINE, Node, container, kubectl_in};

/// A namespace that says what is in it when its test fails, and goes when the test is done.
pub struct Namespace {
    /// Its name.
    pub name: String,
    pub(crate) client: Client,
}

impl std::fmt::Debug for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Namespace").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Node {
    /// A namespace for one test, named `prefix-` and eight letters and digits.
    ///
    /// # Panics
    /// When the API server refuses it.
    pub async fn namespace(&self, prefix: &str) -> Namespace {
        Namespace::create(self.client.clone(), prefix).await
    }
}

impl Namespace {
    async fn create(client: Client, prefix: &str) -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("{prefix}-{}", &id[..8]);
        apply_manifests(&client, &[json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })])
            .await;
        let namespace = Self { name, client };
        let accounts: Api<ServiceAccount> = namespace.api();
        wait_for_object(&accounts, "default", "the namespace's service account", DEADLINE, |_| true).await;
        namespace
    }

    /// The objects of a kind in it.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Applies objects into it.
    ///
    /// # Panics
    /// When the API server refuses one.
    pub async fn apply(&self, objects: impl IntoIterator<Item = Value>) {
        let mut objects: Vec<Value> = objects.into_iter().collect();
        for object in &mut objects {
            object["metadata"]["namespace"] = json!(self.name);
        }
        apply_manifests(&self.client, &objects).await;
    }

    /// Runs a server of one replica and a Service of the same name, and returns when it is ready.
    ///
    /// # Panics
    /// When it does not get ready.
    pub async fn serve(&self, name: &str, image: &str, arguments: &[&str], port: u16, readiness: Value) {
        self.serve_with(name, image, arguments, port, readiness, None).await;
    }

    /// [`serve`](Self::serve) with a Secret mounted at `/secret`.
    ///
    /// # Panics
    /// When it does not get ready.
    pub async fn serve_with(
        &self,
        name: &str,
        image: &str,
        arguments: &[&str],
        port: u16,
        readiness: Value,
        secret: Option<&str>,
    ) {
        let mut container = container(name, image, arguments);
        container["ports"] = json!([{ "containerPort": port }]);
        container["readinessProbe"] = readiness;
        container["readinessProbe"]["periodSeconds"] = json!(1);
        let volumes = secret.map(|secret| json!({ "name": "secret", "secret": { "secretName": secret } }));
        let mounts = secret.map(|_| json!({ "name": "secret", "mountPath": "/secret", "readOnly": true }));
        container["volumeMounts"] = json!(Vec::from_iter(mounts));
        let labels = json!({ "app": name });
        let pod = json!({ "containers": [container], "volumes": Vec::from_iter(volumes) });
        self.apply([
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
                "spec": {
                    "selector": { "matchLabels": labels },
                    "template": { "metadata": { "labels": labels }, "spec": pod },
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
                "spec": { "selector": labels, "ports": [{ "port": port }] },
            }),
        ])
        .await;
        self.available(name).await;
    }

    /// Returns when the Deployment's newest pods, and no others, serve.
    ///
    /// # Panics
    /// When that does not come about.
    pub async fn available(&self, deployment: &str) {
        let deployments: Api<Deployment> = self.api();
        wait_for_object(&deployments, deployment, "its pods to be available", DEADLINE, |deployment| {
            let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
            deployment.status.as_ref().is_some_and(|status| {
                status.observed_generation == deployment.metadata.generation
                    && [status.replicas, status.updated_replicas, status.available_replicas] == [wanted; 3]
            })
        })
        .await;
    }

    /// The names of a Deployment's pods that are not on their way out, sorted.
    ///
    /// # Panics
    /// When the API server does not answer.
    pub async fn pods(&self, deployment: &str) -> Vec<String> {
        pods_of(&self.client, &self.name, deployment).await
    }

    /// Returns a Deployment's pods when they are others than `before`, and they alone serve.
    ///
    /// # Panics
    /// When that does not come about.
    pub async fn replaced(&self, deployment: &str, before: &[String]) -> Vec<String> {
        // Read the pods themselves: for a while after one went, the Deployment's status is outdated.
        wait_until(&format!("the pods of {deployment} to be replaced"), DEADLINE, || async {
            let wanted = self.api::<Deployment>().get(deployment).await.ok()?.spec?.replicas?;
            let pods = staying(&self.client, &self.name, deployment).await;
            let serves = |pod: &Pod| !before.contains(&pod.name_any()) && is_ready(pod);
            (usize::try_from(wanted) == Ok(pods.len()) && pods.iter().all(serves)).then_some(())
        })
        .await;
        self.available(deployment).await;
        self.pods(deployment).await
    }

    /// Returns when none of these pods is left.
    ///
    /// # Panics
    /// When that does not come about.
    pub async fn gone(&self, pods: &[String]) {
        wait_until(&format!("{pods:?} to be gone"), DEADLINE, || async {
            let left = self.api::<Pod>().list_metadata(&ListParams::default()).await.ok()?;
            (!left.iter().any(|pod| pods.contains(&pod.name_any()))).then_some(())
        })
        .await;
    }

    /// The answer of the proxy in a pod to `GET /health`.
    ///
    /// # Panics
    /// When it does not answer 200 with JSON.
    pub fn health(&self, pod: &str) -> Value {
        let health = self.answer(pod, "health");
        serde_json::from_str(&health).unwrap_or_else(|error| panic!("{pod} says of its health '{health}': {error}"))
    }

    /// The answer of the proxy in a pod to a `GET` of this path below its root.
    ///
    /// # Panics
    /// When it does not answer 200.
    pub fn answer(&self, pod: &str, path: &str) -> String {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}:8080/proxy/{path}", self.name);
        kubectl_in(&self.name, &["get", "--raw", &path])
    }

    /// Reads a pod.
    ///
    /// # Panics
    /// When there is none.
    pub async fn pod(&self, name: &str) -> Pod {
        self.api().get(name).await.unwrap_or_else(|error| panic!("no pod {name}: {error}"))
    }

    /// The log of a pod's container.
    ///
    /// # Panics
    /// When the kubelet does not answer.
    pub async fn log(&self, pod: &str) -> String {
        let pods: Api<Pod> = self.api();
        let log = pods.logs(pod, &LogParams::default()).await;
        log.unwrap_or_else(|error| panic!("no log of {pod}: {error}"))
    }
}

/// The names of a Deployment's pods that are not on their way out, sorted.
///
/// # Panics
/// When the API server does not answer.
pub(crate) async fn pods_of(client: &Client, namespace: &str, deployment: &str) -> Vec<String> {
    let mut names: Vec<String> =
        staying(client, namespace, deployment).await.iter().map(ResourceExt::name_any).collect();
    names.sort();
    names
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A Deployment's pods that are not on their way out.
async fn staying(client: &Client, namespace: &str, deployment: &str) -> Vec<Pod> {
    let read = async {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let labels = deployments.get(deployment).await?.spec.and_then(|spec| spec.selector.match_labels);
        let selector: Vec<String> =
            labels.unwrap_or_default().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        pods.list(&ListParams::default().labels(&selector.join(","))).await
    };
    let list = read.await.unwrap_or_else(|error| panic!("no pods of {deployment}: {error}"));
    list.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let hack = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/node");
        if std::thread::panicking() {
            eprintln!("--- what is in namespace {}", self.name);
            let _ = Command::new(format!("{hack}/dump.sh")).arg(&self.name).status();
        } else {
            let kubectl = format!("{hack}/kubectl.sh");
            let _ = Command::new(kubectl).args(["delete", "namespace", "--wait=false", &self.name]).output();
        }
    }
}
