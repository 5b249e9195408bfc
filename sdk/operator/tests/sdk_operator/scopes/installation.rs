//! Installations of the example: their rights, configurations and processes.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};

use super::process::{Process, generate};
use super::{PATIENCE, TIMING};

pub(crate) struct Installation {
    cluster: &'static ControlPlane,
    pub(crate) release: &'static str,
    pub(crate) namespace: String,
    /// The flags of both `generate` and `run`.
    place: Vec<String>,
    pub(crate) kubeconfig: String,
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Installation {
    /// With the rights and kinds that it generates, and no configuration in force yet. It calls itself by its release,
    /// or by the `--tag` that is given.
    pub(crate) async fn new(
        cluster: &'static ControlPlane,
        release: &'static str,
        restricted_to: Option<&str>,
        more: &[&str],
    ) -> Self {
        let namespace = match restricted_to {
            Some(namespace) => namespace.to_owned(),
            None => cluster.namespace(release).await,
        };
        Self::living_in(cluster, release, namespace, restricted_to, more).await
    }

    /// The same in this namespace.
    pub(crate) async fn living_in(
        cluster: &'static ControlPlane,
        release: &'static str,
        namespace: String,
        restricted_to: Option<&str>,
        more: &[&str],
    ) -> Self {
        let mut place = words(&["--release", release, "--namespace", &namespace]);
        if !more.contains(&"--tag") {
            place.extend(words(&["--tag", release]));
        }
        place.extend(words(more));
        if let Some(namespace) = restricted_to {
            place.extend(words(&["--restrict-to-namespace", namespace]));
        } else {
            cluster.apply(&generate("crds", &place).await).await;
        }
        cluster.apply(&generate("rbac", &place).await).await;
        let account = format!("system:serviceaccount:{namespace}:{release}");
        let kubeconfig = cluster.kubeconfig_as(&account, &[]).display().to_string();
        Self { cluster, release, namespace, place, kubeconfig }
    }

    pub(crate) fn start(&self, more: &[&str]) -> Process {
        self.start_by(&self.kubeconfig, more)
    }

    /// A replica that is restricted by its environment alone, in the way of other operators.
    pub(crate) fn start_watching(&self, namespaces: &str) -> Process {
        let arguments: Vec<String> = self.arguments(&self.kubeconfig, &[]);
        let flag = arguments.iter().position(|word| word == "--restrict-to-namespace").unwrap();
        let (before, after) = (&arguments[..flag], &arguments[flag + 2..]);
        Process::start_with(&[("WATCH_NAMESPACE", namespaces)], &[before, after].concat())
    }

    /// A replica that reaches the API server by another kubeconfig.
    pub(crate) fn start_by(&self, kubeconfig: &str, more: &[&str]) -> Process {
        Process::start(&self.arguments(kubeconfig, more))
    }

    fn arguments(&self, kubeconfig: &str, more: &[&str]) -> Vec<String> {
        let mut fixed = words(&["--kubeconfig", kubeconfig, "--lease-timing", TIMING]);
        if !more.contains(&"--drain-delay") {
            fixed.extend(words(&["--drain-delay", "0s"]));
        }
        [fixed, self.place.clone(), words(more)].concat()
    }

    /// Puts this process in the API server's way.
    pub(crate) async fn install(&self, process: &Process) {
        let manifests = generate("webhooks", &self.place).await;
        self.cluster.install_webhooks(&manifests, process.webhooks().await.port()).await;
        process.ready().await;
    }

    /// The objects that it would install.
    pub(crate) async fn generated(&self, what: &str) -> Vec<Value> {
        generate(what, &self.place).await
    }

    pub(crate) async fn uninstall(&self) {
        for manifest in generate("webhooks", &self.place).await {
            let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", manifest["kind"].as_str().unwrap());
            let objects: Api<DynamicObject> = Api::all_with(self.cluster.admin(), &ApiResource::from_gvk(&kind));
            let name = manifest["metadata"]["name"].as_str().unwrap();
            if let Err(error) = objects.delete(name, &DeleteParams::default()).await {
                assert!(matches!(&error, kube::Error::Api(status) if status.code == 404), "{error}");
            }
        }
    }
}

pub(crate) fn widgets(cluster: &ControlPlane, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("scopes.example", "v1", "Widget");
    Api::namespaced_with(cluster.admin(), namespace, &ApiResource::from_gvk_with_plural(&kind, "widgets"))
}

pub(crate) fn widget(name: &str, size: u32) -> Value {
    let (api_version, kind) = ("scopes.example/v1", "Widget");
    json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name }, "spec": { "size": size } })
}

/// The answer to a widget, and the operators that handled it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// The operators whose validating webhook was called.
    pub(crate) checked: Vec<String>,
    /// The operators whose mutating webhook was called.
    pub(crate) marked: Vec<String>,
}

/// Creates a widget that is not kept.
pub(crate) async fn try_widget(client: &kube::Client, namespace: &str, size: u32) -> Answer {
    let body = serde_json::to_vec(&widget("tried", size)).unwrap();
    let path = format!("/apis/scopes.example/v1/namespaces/{namespace}/widgets?dryRun=All");
    let request = http::Request::post(path).header("content-type", "application/json");
    let answer = client.send(request.body(Body::from(Bytes::from(body))).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let warnings = answer.headers().get_all("warning").iter().map(|warning| warning.to_str().unwrap().to_owned());
    let who = |warning: String| Some(warning.split_once("checked by ")?.1.trim_end_matches('"').to_owned());
    let checked = warnings.filter_map(who).collect();
    let body: Value = serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let annotations = body["metadata"]["annotations"].as_object().into_iter().flatten();
    let marked = annotations.filter_map(|(key, _)| Some(key.strip_prefix("scopes.example/")?.to_owned())).collect();
    Answer { status, body, checked, marked }
}

/// Waits until a widget is checked and marked by these and no other.
pub(crate) async fn checked_by(client: &kube::Client, namespace: &str, who: &[&str]) {
    let right = || async {
        let answer = try_widget(client, namespace, 1).await;
        let right = answer.checked == who && answer.marked == who;
        if !right {
            eprintln!("{namespace} is checked by {:?} and marked by {:?}", answer.checked, answer.marked);
        }
        right.then_some(())
    };
    wait_until(&format!("{who:?} to check in {namespace}"), PATIENCE, right).await;
}
