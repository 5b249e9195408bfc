//! An installation that tests break and repair.

use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_openapi::ByteString;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use portcullis_testing::{ControlPlane, RunningOperator, wait_until};
use serde_json::{Value, json};

use crate::clusters::binary;

/// Nothing in these tests takes longer on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) const CONFIGURATION: &str = "dynamo-operator-validating";
pub(crate) const SERVICE_NAME: &str = "dynamo-operator-webhook";
pub(crate) const SECRET_NAME: &str = "dynamo-operator-webhook-tls";
/// Where in the configuration the webhook for models is.
pub(crate) const MODELS: usize = 2;

/// `apiVersion`, kind, and whether it lives in the operator's namespace.
pub(crate) type Sort = (&'static str, &'static str, bool);
pub(crate) const VALIDATING: Sort = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", false);
pub(crate) const SERVICE: Sort = ("v1", "Service", true);
pub(crate) const SECRET: Sort = ("v1", "Secret", true);
const ROLE: Sort = ("rbac.authorization.k8s.io/v1", "Role", true);
const CLUSTER_ROLE: Sort = ("rbac.authorization.k8s.io/v1", "ClusterRole", false);

/// The objects that tests break and restore.
const PARTS: [(Sort, &str); 3] = [(VALIDATING, CONFIGURATION), (SERVICE, SERVICE_NAME), (SECRET, SECRET_NAME)];

/// The findings of `doctor`, and its exit code.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) code: i32,
    findings: Vec<Value>,
}

impl Report {
    /// Findings of this check with this verdict: message and fix.
    pub(crate) fn of(&self, id: &str, verdict: &str) -> Vec<(&str, &str)> {
        let found = self.findings.iter().filter(|finding| finding["id"] == id && finding["verdict"] == verdict);
        found.map(|it| (it["message"].as_str().unwrap(), it["fix"].as_str().unwrap_or_default())).collect()
    }

    pub(crate) fn verdicts(&self, id: &str) -> Vec<&str> {
        let found = self.findings.iter().filter(|finding| finding["id"] == id);
        found.map(|finding| finding["verdict"].as_str().unwrap()).collect()
    }
}

/// The operator in the API server's way.
pub(crate) struct Home {
    pub(crate) cluster: ControlPlane,
    /// The operator's namespace, and one of its users.
    pub(crate) namespace: String,
    pub(crate) team: String,
    operator: Option<RunningOperator>,
    /// The parts as they were.
    whole: Vec<Value>,
}

impl Home {
    pub(crate) async fn new() -> Self {
        let cluster = ControlPlane::start().await.unwrap();
        let operator = binary().run_flags(["--log-format", "json"]).install(&cluster).await;
        let team = cluster.namespace("team").await;
        let (namespace, operator) = (operator.namespace.clone(), Some(operator));
        let mut home = Self { cluster, namespace, team, operator, whole: Vec::new() };
        home.keep_the_operator_from_repairing().await;
        for (sort, name) in PARTS {
            home.whole.push(home.read(sort, name).await);
        }
        home
    }

    /// The operator would put back what the tests break: from now on it may look, and no more.
    async fn keep_the_operator_from_repairing(&self) {
        let roles =
            [(ROLE, "dynamo-operator".to_owned()), (CLUSTER_ROLE, format!("dynamo-operator:{}", self.namespace))];
        for (sort, name) in roles {
            let mut role = self.read(sort, &name).await;
            for rule in role["rules"].as_array_mut().unwrap() {
                let resources = rule["resources"].to_string();
                if resources.contains("webhookconfigurations") || resources.contains("secrets") {
                    rule["verbs"] = json!(["get", "list", "watch"]);
                }
            }
            self.patch(sort, &name, json!([{"op": "replace", "path": "/rules", "value": role["rules"]}])).await;
        }
    }

    /// Kills the operator.
    pub(crate) fn kill(&mut self) {
        self.operator = None;
    }

    pub(crate) fn log(&self) -> String {
        self.operator.as_ref().map(RunningOperator::log).unwrap_or_default()
    }

    pub(crate) fn api(&self, (version, kind, own): Sort) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if own {
            Api::namespaced_with(self.cluster.admin(), &self.namespace, &resource)
        } else {
            Api::all_with(self.cluster.admin(), &resource)
        }
    }

    /// The models of the users.
    pub(crate) fn models(&self) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("nvidia.com", "v1alpha1", "DynamoModel"));
        Api::namespaced_with(self.cluster.admin(), &self.team, &resource)
    }

    pub(crate) async fn read(&self, sort: Sort, name: &str) -> Value {
        serde_json::to_value(self.api(sort).get(name).await.unwrap()).unwrap()
    }

    /// Changes an object by a JSON patch, as `kubectl patch --type=json` does.
    pub(crate) async fn patch(&self, sort: Sort, name: &str, operations: Value) {
        let patch: Patch<Value> = Patch::Json(serde_json::from_value(operations).unwrap());
        self.api(sort).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Writes a status, as a controller would.
    pub(crate) async fn tell(&self, sort: Sort, name: &str, status: Value) {
        let status = Patch::Merge(json!({ "status": status }));
        self.api(sort).patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }

    /// Publishes the same CA in other bytes: for those, the API server keeps no connection that it had before.
    pub(crate) async fn leave_no_connection(&self) {
        let client = self.read(VALIDATING, CONFIGURATION).await["webhooks"][MODELS]["clientConfig"].take();
        let ByteString(mut bundle) = serde_json::from_value(client["caBundle"].clone()).unwrap();
        bundle.push(b'\n');
        let path = format!("/webhooks/{MODELS}/clientConfig/caBundle");
        let operations = json!([{"op": "replace", "path": path, "value": ByteString(bundle)}]);
        self.patch(VALIDATING, CONFIGURATION, operations).await;
    }

    pub(crate) async fn create(&self, sort: Sort, mut object: Value) {
        (object["apiVersion"], object["kind"]) = (json!(sort.0), json!(sort.1));
        let object = serde_json::from_value(object).unwrap();
        self.api(sort).create(&PostParams::default(), &object).await.unwrap();
    }

    pub(crate) async fn delete(&self, sort: Sort, name: &str) {
        self.api(sort).delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// Puts everything back, and waits until the API server calls the webhooks again.
    pub(crate) async fn repair(&self) {
        for ((sort, name), whole) in PARTS.into_iter().zip(&self.whole) {
            if self.api(sort).get_opt(name).await.unwrap().is_some() {
                self.delete(sort, name).await;
            }
            let mut again = whole.clone();
            let kept = ["name", "namespace", "labels", "annotations"];
            again["metadata"].as_object_mut().unwrap().retain(|member, _| kept.contains(&member.as_str()));
            self.create(sort, again).await;
        }
        self.until_told("spec.modelName is required").await;
    }

    /// Waits until a user who creates an invalid model gets this message.
    pub(crate) async fn until_told(&self, words: &str) {
        let told = || async { self.told().await.contains(words).then_some(()) };
        wait_until(&format!("a user to be told {words:?}"), PATIENCE, told).await;
    }

    /// Creates an invalid model in a dry run, and returns the answer.
    async fn told(&self) -> String {
        let wrong = model("wrong", "", &[]);
        match self.models().create(&PostParams { dry_run: true, ..PostParams::default() }, &wrong).await {
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// Runs a command in this installation, and returns its exit code, standard output and standard error.
    pub(crate) async fn command(&self, words: &[&str]) -> (i32, String, String) {
        let configuration = self.api(VALIDATING).get_opt(CONFIGURATION).await.unwrap();
        let port = configuration.and_then(|it| it.data.pointer("/webhooks/0/clientConfig/service/port")?.as_i64());
        let mut command = Command::new(env!("CARGO_BIN_EXE_dynamo-webhooks"));
        command.args(words).args(["--namespace", &self.namespace]);
        command.args(["--service-port", &port.unwrap_or(443).to_string()]);
        command.arg("--kubeconfig").arg(self.cluster.kubeconfig_path());
        let output = command.env_clear().stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    pub(crate) async fn doctor(&self, arguments: &[&str]) -> Report {
        let (code, report, stderr) = self.command(&[&["doctor", "--output", "json"], arguments].concat()).await;
        let mut report: Value =
            serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}{stderr}"));
        let findings = serde_json::from_value(report["findings"].take()).unwrap();
        Report { code, findings }
    }
}

/// A model with this `modelName`.
pub(crate) fn model(name: &str, model_name: &str, finalizers: &[&str]) -> DynamicObject {
    let object = json!({
        "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoModel",
        "metadata": {"name": name, "finalizers": finalizers},
        "spec": {"modelName": model_name, "baseModelName": "base"},
    });
    serde_json::from_value(object).unwrap()
}
