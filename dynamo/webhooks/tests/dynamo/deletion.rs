//! Objects that are being deleted can always go, whatever the webhooks do: the match condition of the generated
//! configuration keeps the API server from asking them.

use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use portcullis_testing::ControlPlane;
use serde_json::{Value, json};

use crate::clusters::{binary, unguarded};

/// The configuration that is put beside the generated one.
const BESIDE: &str = "beside";
/// A port without a listener.
const DISCARD: u16 = 9;

/// The fault of the webhooks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Nothing,
    AnswersAnError,
    CaBundle,
    NobodyListens,
    ProcessIsDead,
}

#[derive(Clone, Copy, Debug)]
struct State {
    wrong: Wrong,
    policy: &'static str,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} under {}", self.wrong, self.policy)
    }
}

struct Invalid {
    kind: &'static str,
    /// The webhook refuses it, and the schema lets it in.
    spec: Value,
    /// A change that is as wrong.
    change: Value,
    /// A change after which it would be let in.
    mend: Value,
}

/// One of each kind.
fn invalid() -> [Invalid; 4] {
    let invalid = |kind, spec, change, mend| Invalid { kind, spec, change, mend };
    let request = json!({"model": "a", "backend": "vllm", "profilingConfig": {"profilerImage": ""}});
    let profiled = json!({"profilingConfig": {"profilerImage": "a", "config": {"a": "b"}}});
    [
        invalid("DynamoComponentDeployment", json!({"replicas": -1}), json!({"replicas": -2}), json!({"replicas": 1})),
        invalid(
            "DynamoGraphDeployment",
            json!({"services": {}}),
            json!({"services": {"a": {"replicas": -1}}}),
            json!({"services": {"a": {"replicas": 1}}}),
        ),
        invalid(
            "DynamoModel",
            json!({"modelName": "", "baseModelName": "a"}),
            json!({"source": {"uri": "ftp://a"}}),
            json!({"modelName": "a"}),
        ),
        invalid("DynamoGraphDeploymentRequest", request, json!({"model": "b"}), profiled),
    ]
}

struct Home {
    cluster: &'static ControlPlane,
    namespace: String,
    /// The configuration that is generated. It selects this namespace, so that other tests meet nothing that is wrong.
    generated: String,
}

impl Home {
    fn objects(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("nvidia.com", "v1alpha1", kind));
        Api::namespaced_with(self.cluster.admin(), &self.namespace, &resource)
    }

    /// Creates two objects of each kind, and deletes one: a finalizer keeps it.
    async fn leave(&self, name: &str) {
        for Invalid { kind, spec, .. } in invalid() {
            let object = |name: &str, finalizers: &[&str]| {
                let object = json!({
                    "apiVersion": "nvidia.com/v1alpha1", "kind": kind, "spec": spec,
                    "metadata": {"name": name, "finalizers": finalizers},
                });
                serde_json::from_value::<DynamicObject>(object).unwrap()
            };
            let objects = self.objects(kind);
            objects.create(&PostParams::default(), &object(&whole(name), &[])).await.unwrap();
            objects.create(&PostParams::default(), &object(name, &["tests.example/hold"])).await.unwrap();
            objects.delete(name, &DeleteParams::default()).await.unwrap();
        }
    }

    async fn patched(&self, kind: &str, name: &str, patch: Value) -> kube::Result<DynamicObject> {
        self.objects(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    /// Puts a copy of the generated configuration beside it, with this fault: the operator repairs its own while it
    /// runs.
    async fn puts(&self, generated: &ValidatingWebhookConfiguration, state: State) {
        let mut webhooks = json!(generated.webhooks);
        for webhook in webhooks.as_array_mut().unwrap() {
            webhook["failurePolicy"] = json!(state.policy);
            let client = &mut webhook["clientConfig"];
            match state.wrong {
                Wrong::AnswersAnError => client["service"]["path"] = json!("/nothing-is-served-here"),
                Wrong::CaBundle => client["caBundle"] = json!(self.another_authority()),
                Wrong::NobodyListens => client["service"]["port"] = json!(DISCARD),
                Wrong::Nothing | Wrong::ProcessIsDead => {}
            }
        }
        let name = if state.wrong == Wrong::ProcessIsDead { &self.generated } else { BESIDE };
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name}, "webhooks": webhooks,
        });
        self.cluster.apply(&[configuration]).await;
        self.cluster.wait_for_webhooks().await;
    }

    /// One that has issued other certificates: the API server's own.
    fn another_authority(&self) -> ByteString {
        ByteString(std::fs::read(self.cluster.directory().join("ca.crt")).unwrap())
    }

    /// Edits each object that is being deleted, and takes its finalizer away; deletes the others.
    async fn let_go(&self, name: &str, state: State) {
        for Invalid { kind, change, mend, .. } in invalid() {
            let (edit, expected) = match state {
                State { wrong: Wrong::ProcessIsDead, policy: "Ignore" } => (change, None),
                // Here and below, the other configuration is whole: edits are judged.
                State { wrong: Wrong::Nothing, .. } | State { policy: "Ignore", .. } => {
                    (change, Some("denied the request: spec"))
                }
                // Only what is wrong is in the way of this one.
                State { .. } => (mend, Some("failed calling webhook")),
            };
            let said = self.patched(kind, name, json!({ "spec": edit })).await.err().map(|error| error.to_string());
            match (&said, expected) {
                (Some(said), Some(expected)) => assert!(said.contains(expected), "{state}, {kind}: {said}"),
                _ => assert_eq!(said.as_deref(), expected, "{state}, {kind}"),
            }

            let freed = self.patched(kind, name, json!({"metadata": {"finalizers": null}})).await;
            assert!(freed.is_ok(), "{state}: {kind} cannot go: {freed:?}");
            self.objects(kind).delete(&whole(name), &DeleteParams::default()).await.unwrap();
            for gone in [name, &whole(name)] {
                let left = self.objects(kind).get_opt(gone).await.unwrap();
                assert!(left.is_none(), "{state}: {left:?}");
            }
        }
    }
}

/// The name of the object without a finalizer.
fn whole(name: &str) -> String {
    format!("{name}-whole")
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_objects_can_be_deleted_whatever_the_webhooks_do() {
    let cluster = unguarded().await;
    let namespace = cluster.namespace("deletion").await;
    let home = Home { cluster, generated: format!("dynamo-operator-validating-{namespace}"), namespace };
    let wrongs = [Wrong::Nothing, Wrong::AnswersAnError, Wrong::CaBundle, Wrong::NobodyListens, Wrong::ProcessIsDead];
    let states: Vec<_> =
        wrongs.iter().flat_map(|&wrong| ["Fail", "Ignore"].map(|policy| State { wrong, policy })).collect();
    // No webhook refuses them yet.
    cluster.install_crds(&dynamo_webhooks::kinds::crds()).await;
    for index in 0..states.len() {
        home.leave(&format!("object-{index}")).await;
    }

    let mut operator = Some(binary().flags(["--restrict-to-namespace", &home.namespace]).install(cluster).await);
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin());
    let generated = configurations.get(&home.generated).await.unwrap();
    for (index, state) in states.into_iter().enumerate() {
        if state.wrong == Wrong::ProcessIsDead
            && let Some(operator) = operator.take()
        {
            // Killed; the end of a process is waited for with a blocking call.
            tokio::task::block_in_place(|| drop(operator));
            configurations.delete(BESIDE, &DeleteParams::default()).await.unwrap();
        }
        home.puts(&generated, state).await;
        home.let_go(&format!("object-{index}"), state).await;
    }
}
