//! An operator whose kind has three versions: what is generated, and what the API server makes of it.

use futures::{StreamExt as _, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use portcullis_testing::{ControlPlane, User, free_address, wait_until};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use super::process::{PATIENCE, Running, VERSIONS, output_of};

const CRD: &str = "people.versions.example";

/// Its home. The CRD has one name in the whole cluster, so one test at a time has it.
pub(crate) struct Home {
    pub(crate) cluster: &'static ControlPlane,
    pub(crate) namespace: String,
    user: User,
    _alone: MutexGuard<'static, ()>,
}

impl Home {
    /// Without the CRD.
    pub(crate) async fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let (alone, cluster) = (ALONE.lock().await, ControlPlane::shared().await);
        let namespace = cluster.namespace("versions").await;
        // With the controllers' rights, which come with this flag of the example as its controllers do.
        let manifests = generate(&["rbac", "--name", "--namespace", &namespace]).await;
        let user = cluster.user_from_manifests(&manifests).await;
        let home = Self { cluster, namespace, user, _alone: alone };
        home.uninstall().await;
        home
    }

    pub(crate) fn start(&self) -> Running {
        let kubeconfig = self.user.kubeconfig.to_str().unwrap();
        Running::run(VERSIONS, &["--kubeconfig", kubeconfig, "--namespace", &self.namespace])
    }

    pub(crate) fn crds(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.cluster.admin())
    }

    /// The CRD as it is generated for this process.
    pub(crate) async fn manifest(&self, running: &Running) -> Value {
        let port = running.webhooks().await.port().to_string();
        let mut objects = generate(&["crds", "--namespace", &self.namespace, "--service-port", &port]).await;
        assert_eq!(objects.len(), 1);
        objects.remove(0)
    }

    /// Applies server-side, as `kubectl apply --server-side` does.
    pub(crate) async fn apply(&self, manifest: &Value) {
        let params = PatchParams::apply("kubectl");
        self.crds().patch(CRD, &params, &Patch::Apply(manifest)).await.unwrap();
    }

    /// The generated CRD, unmodified, with its Service at this machine; returns when the operator is ready.
    pub(crate) async fn install(&self, running: &Running) -> Value {
        let manifest = self.manifest(running).await;
        self.cluster.route_service(&self.namespace, "versions-operator-webhook").await;
        self.apply(&manifest).await;
        running.ready().await;
        let served = || async { self.api("v1").list(&ListParams::default()).await.ok() };
        wait_until("the kind to be served", PATIENCE, served).await;
        manifest
    }

    /// Stores what is written from now on in this version.
    pub(crate) async fn store_in(&self, version: &str, manifest: &Value) {
        let mut manifest = manifest.clone();
        for offered in manifest["spec"]["versions"].as_array_mut().unwrap() {
            offered["storage"] = json!(offered["name"] == version);
        }
        self.apply(&manifest).await;
        let listed = || async { self.stored_versions().await.contains(&version.to_owned()).then_some(()) };
        wait_until("the storage version to be listed", PATIENCE, listed).await;
    }

    pub(crate) async fn stored_versions(&self) -> Vec<String> {
        self.crds().get(CRD).await.unwrap().status.unwrap().stored_versions.unwrap()
    }

    pub(crate) fn api(&self, version: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("versions.example", version, "Person");
        let resource = ApiResource::from_gvk_with_plural(&kind, "people");
        Api::namespaced_with(self.cluster.admin(), &self.namespace, &resource)
    }

    /// Makes `p-0` and so on, in `v1`.
    pub(crate) async fn populate(&self, people: std::ops::Range<usize>) {
        let api = self.api("v1");
        let make = |number| {
            let api = &api;
            let person = json!({
                "apiVersion": "versions.example/v1", "kind": "Person", "metadata": { "name": format!("p-{number}") },
                "spec": { "name": format!("Ada {number}") },
            });
            async move { api.create(&PostParams::default(), &serde_json::from_value(person).unwrap()).await.unwrap() }
        };
        stream::iter(people).map(make).buffer_unordered(32).collect::<Vec<_>>().await;
    }

    /// Takes out the CRD, and with it all objects. Nothing may have to be converted for that: its operator may be gone.
    async fn uninstall(&self) {
        let crds = self.crds();
        let none = Patch::Merge(json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } }));
        if crds.patch(CRD, &PatchParams::default(), &none).await.is_ok() {
            // Deleting them while they are still to be converted is tried again ever more slowly.
            let uncached = ListParams::default().limit(10);
            let readable = || async {
                match self.api("v1").list(&uncached).await {
                    Err(kube::Error::Api(status)) if status.code != 404 => None,
                    _ => Some(()),
                }
            };
            wait_until("the objects to be readable without a conversion", PATIENCE, readable).await;
            crds.delete(CRD, &DeleteParams::default()).await.unwrap();
            let gone = || async { crds.get_opt(CRD).await.unwrap().is_none().then_some(()) };
            wait_until("the CRD to be gone", PATIENCE, gone).await;
        }
    }
}

/// The objects that `generate` prints.
async fn generate(arguments: &[&str]) -> Vec<Value> {
    let output = output_of(VERSIONS, &[&["generate"], arguments].concat()).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

// K5. Issue 22: names that were hard-coded in the generator.
#[tokio::test]
async fn a_conversion_stanza_names_no_other_service_than_the_served() {
    let of = |arguments: &'static [&'static str]| async move {
        let crd = generate(&[&["crds"], arguments].concat()).await.remove(0);
        crd["spec"]["conversion"].clone()
    };
    let stanza = |namespace: &str, name: &str, port: u16| {
        let service = json!({ "namespace": namespace, "name": name, "port": port, "path": "/convert/people" });
        json!({ "strategy": "Webhook", "webhook": { "clientConfig": { "service": service }, "conversionReviewVersions": ["v1"] } })
    };
    assert_eq!(of(&[]).await, stanza("versions-operator-system", "versions-operator-webhook", 443));
    let named = of(&["--namespace", "here", "--service-name", "hooks", "--service-port", "8443"]).await;
    assert_eq!(named, stanza("here", "hooks", 8443));
}

#[tokio::test]
async fn the_right_to_publish_covers_converted_crds_only() {
    let objects = generate(&["rbac"]).await;
    let role = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
    let rules = role["rules"].as_array().unwrap();
    let about_crds: Vec<_> = rules.iter().filter(|rule| rule["apiGroups"] == json!(["apiextensions.k8s.io"])).collect();
    assert_eq!(
        about_crds,
        [&json!({
            "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
            "resourceNames": ["people.versions.example"], "verbs": ["list", "watch", "patch"],
        })]
    );
}

// Issue 23: stanzas put together by patches, with the wrong name or namespace, or none. Here the generated file is
// applied as it is, and works with the generated rights. Issues 2 and 3: what is published is the CA, encoded once, or
// no call would succeed.
#[tokio::test]
async fn a_generated_crd_does_not_need_a_patch_to_be_converted() {
    let home = Home::new().await;
    let mut running = home.start();
    let waiting = || async { running.health("/readyz").await.1.contains(CRD).then_some(()) };
    wait_until("readiness to wait for the CRD", PATIENCE, waiting).await;
    let manifest = home.install(&running).await;

    home.populate(0..1).await;
    let read = |version: &'static str| {
        let api = home.api(version);
        async move { api.get("p-0").await.unwrap().data["spec"].take() }
    };
    assert_eq!(read("v1").await, json!({ "name": "Ada 0" }));
    assert_eq!(read("v2").await, json!({ "firstName": "Ada", "lastName": "0" }));
    assert_eq!(read("v3").await, json!({ "name": { "first": "Ada", "last": "0" } }));

    // Applied again, as GitOps does all the time, and by a client-side apply.
    home.apply(&manifest).await;
    assert_eq!(read("v1").await, json!({ "name": "Ada 0" }));
    let replaced = Patch::Json::<()>(
        serde_json::from_value(json!([
            { "op": "replace", "path": "/spec/conversion", "value": manifest["spec"]["conversion"] }
        ]))
        .unwrap(),
    );
    home.crds().patch(CRD, &PatchParams::default(), &replaced).await.unwrap();
    let repaired = || async { home.api("v2").get("p-0").await.ok() };
    wait_until("the conversion to be repaired", PATIENCE, repaired).await;

    running.terminate().await;
    assert_eq!(running.ended().await.code(), Some(0), "{}", running.log());
}

#[tokio::test]
async fn controllers_start_when_their_objects_can_be_converted() {
    let home = Home::new().await;
    let mut first = home.start();
    home.install(&first).await;
    home.populate(0..3).await;
    first.terminate().await;
    first.ended().await;

    // At another port: the API server knows of no object of a CRD that has changed, and has each converted again.
    let free = free_address();
    let port = free.port().to_string();
    let manifest = generate(&["crds", "--namespace", &home.namespace, "--service-port", &port]).await.remove(0);
    home.apply(&manifest).await;
    let uncached = ListParams::default().limit(10);
    let unserved = || async { home.api("v1").list(&uncached).await.err() };
    wait_until("the objects not to be readable", PATIENCE, unserved).await;
    let kubeconfig = home.user.kubeconfig.to_str().unwrap();
    let place = ["--kubeconfig", kubeconfig, "--namespace", &home.namespace];
    let listen = ["--bind", &free.to_string(), "--health-bind", "127.0.0.1:0", "--drain-delay", "0s"];
    let mut second =
        Running::spawn(VERSIONS, &[&["run", "--name", "--log-format", "json"][..], &place, &listen].concat());
    second.logged("reconciled a person").await;
    let log = second.log();
    let (before, _) = log.split_once("reconciled a person").unwrap();
    assert!(before.contains("ready: the CA is published, and our own listener answers under it"), "{log}");
    assert!(!before.contains("interrupted") && !before.contains("reconcile failed"), "{log}");
    second.terminate().await;
    assert_eq!(second.ended().await.code(), Some(0), "{}", second.log());
}
