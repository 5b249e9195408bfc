//! The operator, installed in a cluster.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use portcullis_testing::{ControlPlane, Mark, wait_until};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::process::{PATIENCE, Running, generate};

/// Webhook configurations and CRDs have one name in the whole cluster, so one test at a time has the operator.
pub(crate) struct Installation {
    pub(crate) cluster: &'static ControlPlane,
    /// Where entities are made.
    pub(crate) namespace: String,
    pub(crate) running: Running,
    /// When it was installed first, in the audit log.
    pub(crate) began: Mark,
    /// Whom the operator is known as.
    pub(crate) user: String,
    _alone: MutexGuard<'static, ()>,
}

impl Installation {
    /// Applies what is generated, starts the binary as its service account, and returns when it is asked about entities.
    pub(crate) async fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::const_new(());
        static HOME: OnceCell<(Mark, String)> = OnceCell::const_new();
        let (alone, cluster) = (ALONE.lock().await, ControlPlane::shared().await);
        // Its certificates stay there, and with them what is stored can be read again by the operator of the next test.
        let first = async || (cluster.audit().mark(), cluster.namespace("operator").await);
        let (began, home) = HOME.get_or_init(first).await;
        cluster.apply(&generate(&["rbac", "--namespace", home]).await).await;
        let user = format!("system:serviceaccount:{home}:entity-operator");
        let running = Running::start(&cluster.kubeconfig_as(&user, &[]), home);

        // The one thing about the place that is not known before: the port.
        let port = running.address("serving webhooks").await.port().to_string();
        let place = ["--namespace", home, "--service-port", &port];
        for what in ["crds", "webhooks"] {
            cluster.apply(&generate(&[&[what], &place[..]].concat()).await).await;
        }
        cluster.route_service(home, "entity-operator-webhook").await;
        running.ready().await;

        let namespace = cluster.namespace("people").await;
        let installation = Self { cluster, namespace, running, began: *began, user, _alone: alone };
        // The API server takes up a configuration within a second or two.
        let (api, dry) = (installation.entities("v3"), PostParams { dry_run: true, ..PostParams::default() });
        let probe =
            installation.entity("v3", "probe", &json!({"firstname": "", "lastname": "", "username": "overwrite"}));
        wait_until("the webhooks to be in force", PATIENCE, || async {
            let made = api.create(&dry, &probe).await.ok()?;
            (made.data["spec"]["username"] == "random overwritten").then_some(())
        })
        .await;
        let forbidden =
            installation.entity("v3", "probe", &json!({"firstname": "", "lastname": "", "username": "forbidden"}));
        wait_until("the webhooks to be in force", Duration::from_secs(20), || async {
            api.create(&dry, &forbidden).await.err().map(drop)
        })
        .await;
        installation
    }

    pub(crate) fn entities(&self, version: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("demo.example", version, "Entity");
        let resource = ApiResource::from_gvk_with_plural(&kind, "entities");
        Api::namespaced_with(self.cluster.admin(), &self.namespace, &resource)
    }

    pub(crate) fn entity(&self, version: &str, name: &str, spec: &Value) -> DynamicObject {
        let object = json!({"apiVersion": format!("demo.example/{version}"), "kind": "Entity",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    /// Creates an entity; an error is the code and the message that the user gets.
    pub(crate) async fn create(&self, version: &str, name: &str, spec: &Value) -> Result<Value, (u16, String)> {
        let entity = self.entity(version, name, spec);
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
