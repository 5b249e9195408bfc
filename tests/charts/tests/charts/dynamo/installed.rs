//! The chart as processes: the commands of its Jobs, and its Deployment, each under the account that the chart makes for it.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use portcullis_charts::{DYNAMO, Helm, binary, chart};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::RELEASE;

pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

/// The rendered objects, by when Helm creates them.
pub(crate) struct Rendered {
    pub(crate) before: Vec<Value>,
    meanwhile: Vec<Value>,
    pub(crate) after: Vec<Value>,
}

impl Rendered {
    pub(crate) fn new(values: &Value) -> Self {
        let objects = Helm::new().template(&chart(DYNAMO), RELEASE, values).unwrap();
        let of = |wanted: Option<&str>| {
            let of = |object: &&Value| match (wanted, object["metadata"]["annotations"]["helm.sh/hook"].as_str()) {
                (Some(wanted), Some(event)) => event.starts_with(wanted),
                (wanted, event) => wanted.is_none() && event.is_none(),
            };
            objects.iter().filter(of).cloned().collect()
        };
        Self { before: of(Some("pre-")), meanwhile: of(None), after: of(Some("post-")) }
    }

    /// Applies the kinds.
    pub(crate) async fn install_kinds(&self, cluster: &ControlPlane) {
        cluster.apply(&self.of_kind("CustomResourceDefinition")).await;
    }

    /// Applies the webhook configurations, with the port on which this process serves.
    pub(crate) async fn install_webhooks(&self, cluster: &ControlPlane, process: &Process) {
        for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
            cluster.install_webhooks(&self.of_kind(kind), process.port()).await;
        }
    }

    fn of_kind(&self, kind: &str) -> Vec<Value> {
        self.meanwhile.iter().filter(|object| object["kind"] == kind).cloned().collect()
    }
}

fn args(objects: &[Value], kind: &str) -> Vec<String> {
    let object = objects.iter().find(|object| object["kind"] == kind).unwrap();
    let args = object.pointer("/spec/template/spec/containers/0/args").unwrap().as_array().unwrap();
    args.iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// Creates the account of a hook and its rights, and runs the command of its Job with them.
pub(crate) async fn run_hook(cluster: &ControlPlane, hook: &[Value]) -> String {
    let rights: Vec<Value> = hook.iter().filter(|object| object["kind"] != "Job").cloned().collect();
    let account = cluster.user_of(&rights).await;
    let mut command = Command::new(binary("dynamo-webhooks"));
    command.args(args(hook, "Job")).arg("--kubeconfig").arg(&account.kubeconfig);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let [said, logged] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{said}{logged}");
    assert_eq!(logged, "", "there is nothing to warn of");
    said
}

/// The operator's process.
pub(crate) struct Process {
    child: Child,
    webhooks: SocketAddr,
    health: SocketAddr,
    log: NamedTempFile,
}

impl Process {
    /// Starts it with the arguments of its Deployment, under its account.
    pub(crate) async fn start(cluster: &ControlPlane, rendered: &Rendered) -> Self {
        let of_rights = |object: &&Value| {
            let kind = object["kind"].as_str().unwrap();
            kind == "ServiceAccount" || kind.contains("Role")
        };
        let rights: Vec<Value> = rendered.meanwhile.iter().filter(of_rights).cloned().collect();
        Self::start_as(&cluster.user_of(&rights).await.kubeconfig, rendered)
    }

    /// Starts it with the arguments of its Deployment, under an account that is there.
    pub(crate) fn start_as(kubeconfig: &Path, rendered: &Rendered) -> Self {
        let [webhooks, health] = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap());
        let [bind, health_bind] = [webhooks, health].map(|address| address.to_string());
        let log = NamedTempFile::new().unwrap();
        let mut command = Command::new(binary("dynamo-webhooks"));
        command.args(args(&rendered.meanwhile, "Deployment"));
        command.args(["--namespace", RELEASE[1], "--bind", &bind, "--health-bind", &health_bind]);
        // Callers learn at once where the Service leads.
        command.args(["--drain-delay", "1s"]);
        command.arg("--kubeconfig").arg(kubeconfig).stdin(Stdio::null());
        command.stdout(log.reopen().unwrap()).stderr(log.reopen().unwrap()).kill_on_drop(true);
        Self { child: command.spawn().unwrap(), webhooks, health, log }
    }

    /// Where it serves its webhooks.
    pub(crate) fn port(&self) -> u16 {
        self.webhooks.port()
    }

    /// Returns when it says that it serves.
    pub(crate) async fn ready(&mut self) {
        let health = self.health;
        let ended = async {
            let status = self.child.wait().await.unwrap();
            panic!("the operator ended ({status}):\n{}", std::fs::read_to_string(self.log.path()).unwrap());
        };
        tokio::select! {
            () = wait_until("the operator to be ready", PATIENCE, || answers(health)) => {}
            () = ended => {}
        }
    }

    /// Ends it as a kubelet does.
    pub(crate) async fn stop(mut self) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        assert!(tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap().success());
    }
}

async fn answers(health: SocketAddr) -> Option<()> {
    let mut stream = TcpStream::connect(health).await.ok()?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.ok()?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.ok()?;
    (&answer == b"HTTP/1.1 200").then_some(())
}

/// What is wrong with the API server's answers to a bad object and to a good one, which are not stored.
pub(crate) async fn misjudged(cluster: &ControlPlane) -> Result<(), String> {
    let kind = GroupVersionKind::gvk("nvidia.com", "v1alpha1", "DynamoModel");
    let resource = ApiResource::from_gvk_with_plural(&kind, "dynamomodels");
    let models: Api<DynamicObject> = Api::namespaced_with(cluster.admin(), "default", &resource);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let create = async |model: &str| {
        let object = json!({
            "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoModel", "metadata": { "name": "some" },
            "spec": { "modelName": model, "baseModelName": "base" },
        });
        models.create(&dry_run, &serde_json::from_value(object).unwrap()).await
    };
    match create("").await {
        Ok(_) => return Err("a bad object was accepted".to_owned()),
        Err(error) if error.to_string().contains("denied the request: spec.modelName is required") => {}
        Err(error) => return Err(format!("a bad object was refused for another reason: {error}")),
    }
    create("some").await.map(|_| ()).map_err(|error| format!("a good object was refused: {error}"))
}
