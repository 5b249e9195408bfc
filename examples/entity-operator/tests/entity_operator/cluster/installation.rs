//! The operator, installed in a cluster, and a namespace for one test.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use portcullis_testing::{ControlPlane, OperatorBinary, RunningOperator};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Nothing in these tests takes longer on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) struct Installation {
    pub(crate) cluster: &'static ControlPlane,
    pub(crate) operator: &'static RunningOperator,
    /// Where entities are made.
    pub(crate) namespace: String,
}

impl Installation {
    /// One operator serves all tests; each has a namespace of its own.
    pub(crate) async fn new() -> Self {
        static OPERATOR: OnceCell<RunningOperator> = OnceCell::const_new();
        let (cluster, binary) = (ControlPlane::shared().await, env!("CARGO_BIN_EXE_entity-operator"));
        // The memory limit is that of the generated Deployment.
        let flags = ["--log-format", "json", "--memory-limit", "512Mi"];
        let install = || async { OperatorBinary::new(binary).run_flags(flags).install(cluster).await };
        Self { cluster, operator: OPERATOR.get_or_init(install).await, namespace: cluster.namespace("people").await }
    }

    pub(crate) fn entities(&self, version: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("demo.example", version, "Entity");
        let resource = ApiResource::from_gvk_with_plural(&kind, "entities");
        Api::namespaced_with(self.cluster.admin(), &self.namespace, &resource)
    }

    /// Creates an entity; an error is the code and the message that the user gets.
    pub(crate) async fn create(&self, version: &str, name: &str, spec: &Value) -> Result<Value, (u16, String)> {
        let object = json!({"apiVersion": format!("demo.example/{version}"), "kind": "Entity",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec});
        let entity = serde_json::from_value(object).unwrap();
        answered(self.entities(version).create(&PostParams::default(), &entity).await)
    }

    /// Merges a change into the spec of an entity.
    pub(crate) async fn change(&self, version: &str, name: &str, spec: &Value) -> Result<Value, (u16, String)> {
        let change = Patch::Merge(json!({ "spec": spec }));
        answered(self.entities(version).patch(name, &PatchParams::default(), &change).await)
    }

    /// The spec of an entity in a version.
    pub(crate) async fn spec(&self, version: &str, name: &str) -> Value {
        self.entities(version).get(name).await.unwrap().data["spec"].take()
    }
}

fn answered(result: kube::Result<DynamicObject>) -> Result<Value, (u16, String)> {
    match result {
        Ok(mut object) => Ok(object.data["spec"].take()),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(error) => panic!("no answer from the API server: {error}"),
    }
}
