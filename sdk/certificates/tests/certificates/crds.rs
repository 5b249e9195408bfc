//! The CA in the conversion stanza of CRDs: published, restored, and without conflicts.

use std::sync::Mutex;

use k8s_openapi::ByteString;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use portcullis::certificates::{Bundle, Configurations};
use portcullis_testing::{ControlPlane, User, wait_until};
use serde_json::{Value, json};

use crate::fixture::{PATIENCE, Publisher, heard};
use crate::publish::ca;

/// A CRD of its own, and an operator that may publish in it and do nothing else.
struct Kind {
    cluster: &'static ControlPlane,
    /// The owner of the cluster.
    admin: Client,
    /// Namespace of the operator, and its name.
    home: String,
    user: User,
}

impl Kind {
    async fn new() -> Self {
        let cluster = ControlPlane::shared().await;
        let home = cluster.namespace("kinds").await;
        let rule = PolicyRule {
            api_groups: Some(vec!["apiextensions.k8s.io".to_owned()]),
            resources: Some(vec!["customresourcedefinitions".to_owned()]),
            resource_names: Some(vec![format!("things.{home}.example")]),
            verbs: ["list", "watch", "patch"].map(str::to_owned).to_vec(),
            ..Default::default()
        };
        let user = cluster.client_with_rules(&home, &[rule]).await;
        Self { cluster, admin: cluster.admin(), home, user }
    }

    fn name(&self) -> String {
        format!("things.{}.example", self.home)
    }

    fn api(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.admin.clone())
    }

    /// A generated CRD: two versions, converted by a Service in this namespace.
    fn manifest(&self, namespace: &str) -> Value {
        let version = |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } });
        let service = json!({ "name": "hooks", "namespace": namespace, "path": "/convert/things", "port": 443 });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": self.name() },
            "spec": {
                "group": format!("{}.example", self.home), "scope": "Namespaced", "names": { "kind": "Thing", "plural": "things" },
                "versions": [version("v1", false), version("v2", true)],
                "conversion": { "strategy": "Webhook", "webhook": { "clientConfig": { "service": service }, "conversionReviewVersions": ["v1"] } },
            }
        })
    }

    /// Applies server-side, as `kubectl apply --server-side`, Helm and GitOps do.
    async fn apply(&self, manifest: &Value) -> kube::Result<CustomResourceDefinition> {
        self.api().patch(&self.name(), &PatchParams::apply("installer"), &Patch::Apply(manifest)).await
    }

    async fn bundle(&self) -> Option<String> {
        let conversion = self.api().get(&self.name()).await.unwrap().spec.conversion?;
        let bundle = conversion.webhook?.client_config?.ca_bundle?;
        Some(String::from_utf8(bundle.0).unwrap())
    }

    async fn wait_for(&self, what: &str, pem: Option<&str>) {
        wait_until(what, PATIENCE, || async { (self.bundle().await.as_deref() == pem).then_some(()) }).await;
    }

    fn publish(&self, pem: &str) -> Publisher {
        let bundle = Bundle::new(&self.home, pem).with_services([format!("hooks.{}.svc", self.home)]);
        let configurations = Configurations { crds: vec![self.name()], ..Configurations::default() };
        Publisher::start(&self.user, bundle, configurations)
    }

    async fn writes(&self, mark: portcullis_testing::Mark) -> usize {
        self.cluster.audit().writes_by(&self.user.name, mark).await.len()
    }
}

// Apply a generated CRD again, in each of the ways that there are, and the conversion goes on working.
#[tokio::test]
async fn a_crd_that_is_applied_again_does_not_lose_its_ca() {
    let kind = Kind::new().await;
    let (manifest, pem) = (kind.manifest(&kind.home), ca("ours"));
    kind.apply(&manifest).await.unwrap();
    let publisher = kind.publish(&pem);
    publisher.published().await;
    assert_eq!(kind.bundle().await.as_deref(), Some(&*pem), "the CA itself, and encoded once");

    // Not by the resource version: the API server may still be writing the CRD's status.
    let state = || async {
        let crd = kind.api().get(&kind.name()).await.unwrap();
        (crd.metadata.generation, crd.metadata.labels, crd.metadata.annotations, crd.spec)
    };
    let (mark, before) = (kind.cluster.audit().mark(), state().await);
    kind.apply(&manifest).await.unwrap();
    assert_eq!(state().await, before, "the owner's apply changes nothing");
    // A client-side apply sends what differs between the manifest and what was applied last: nothing of the bundle.
    let changed = json!({ "metadata": { "annotations": { "changed": "yes" } } });
    kind.api().patch(&kind.name(), &PatchParams::default(), &Patch::Merge(changed)).await.unwrap();
    assert_eq!(kind.bundle().await.as_deref(), Some(&*pem));
    assert_eq!(kind.writes(mark).await, 0);

    let crd = kind.api().get(&kind.name()).await.unwrap();
    let manager = Some(format!("{}-ca-bundle", kind.home));
    let ours = crd.metadata.managed_fields.unwrap().into_iter().find(|entry| entry.manager == manager);
    assert_eq!(
        serde_json::to_value(ours.unwrap().fields_v1).unwrap(),
        json!({ "f:spec": { "f:conversion": { "f:webhook": { "f:clientConfig": { "f:caBundle": {} } } } } }),
        "the bundle is all we own"
    );
    publisher.stop().await;
}

#[tokio::test]
async fn a_ca_that_is_taken_out_of_a_crd_is_put_back() {
    let kind = Kind::new().await;
    let pem = ca("ours");
    kind.apply(&kind.manifest(&kind.home)).await.unwrap();
    let publisher = kind.publish(&pem);
    kind.wait_for("the CA", Some(&pem)).await;
    // `kubectl replace` puts back the manifest as it was generated.
    let conversion = kind.manifest(&kind.home)["spec"]["conversion"].clone();
    let replaced = Patch::Json::<()>(
        serde_json::from_value(json!([{ "op": "replace", "path": "/spec/conversion", "value": conversion }])).unwrap(),
    );
    kind.api().patch(&kind.name(), &PatchParams::default(), &replaced).await.unwrap();
    kind.wait_for("the CA again", Some(&pem)).await;
    let foreign = json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": ByteString(ca("theirs").into_bytes()) } } } } });
    kind.api().patch(&kind.name(), &PatchParams::default(), &Patch::Merge(foreign)).await.unwrap();
    kind.wait_for("the CA once more", Some(&pem)).await;

    // A new CA, published once.
    let (mark, next) = (kind.cluster.audit().mark(), ca("next"));
    publisher.bundle.publish(&next);
    publisher.published().await;
    assert_eq!(kind.bundle().await.as_deref(), Some(&*next));
    let writes = kind.cluster.audit().writes_by(&kind.user.name, mark).await;
    assert_eq!(writes.iter().filter(|write| write.code == 200).count(), 1, "{writes:?}");
    publisher.stop().await;
}

/// With our CA in it, the conversion of the other installation could not be called, and nothing of the kind could be
/// read. A replica that is not ready because of it lets the requests fail that its webhooks would check.
#[tokio::test]
async fn a_crd_of_another_installation_does_not_block_readiness() {
    let kind = Kind::new().await;
    let home = kind.home.clone();
    // Another namespace, and another release in the same one.
    for (service, namespace) in [("hooks", "elsewhere"), ("twin-hooks", &*home)] {
        let mut manifest = kind.manifest(namespace);
        manifest["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["name"] = json!(service);
        kind.apply(&manifest).await.unwrap();
        let (pem, before, mark) = (ca(service), kind.bundle().await, kind.cluster.audit().mark());
        let publisher = kind.publish(&pem);
        publisher.published().await;
        assert_eq!((kind.bundle().await, kind.writes(mark).await), (before, 0), "{service} in {namespace}");
        // It is ours from when it calls us.
        kind.apply(&kind.manifest(&home)).await.unwrap();
        kind.wait_for("the CA", Some(&pem)).await;
        publisher.stop().await;
    }
}

#[tokio::test]
async fn readiness_waits_for_the_crd_and_says_what_is_missing() {
    let kind = Kind::new().await;
    let pem = ca("ours");
    let publisher = kind.publish(&pem);
    let said = Mutex::new(Vec::new());
    let waiting = publisher
        .bundle
        .wait_until_published(&publisher.configurations, |missing| said.lock().unwrap().push(missing.to_owned()));
    let steps = async {
        heard(&said, "it is not installed; see 'generate crds'").await;
        let mut unconverted = kind.manifest(&kind.home);
        unconverted["spec"]["conversion"] = json!({ "strategy": "None" });
        kind.apply(&unconverted).await.unwrap();
        heard(&said, "its conversion strategy is not Webhook; see 'generate crds'").await;
        assert_eq!(kind.bundle().await, None);
        kind.apply(&kind.manifest(&kind.home)).await.unwrap();
    };
    let (bundle, ()) = tokio::join!(waiting, steps);
    assert_eq!(*bundle, *pem);
    let first = said.lock().unwrap()[0].clone();
    assert_eq!(first, format!("the CA to be published in CustomResourceDefinition {}", kind.name()));

    // The conversion can only be removed together with our `caBundle`: the API server rejects one without the other.
    let mut unconverted = kind.manifest(&kind.home);
    unconverted["spec"]["conversion"] = json!({ "strategy": "None" });
    let refused = kind.apply(&unconverted).await.unwrap_err().to_string();
    assert!(refused.contains("spec.conversion.webhook"), "{refused}");
    let patch = Patch::Merge(json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } }));
    kind.api().patch(&kind.name(), &PatchParams::default(), &patch).await.unwrap();
    kind.apply(&unconverted).await.unwrap();
    publisher.stop().await;
    assert_eq!(kind.bundle().await, None);
}
