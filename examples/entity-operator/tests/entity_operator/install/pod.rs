//! A Pod as a process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use portcullis_testing::{ControlPlane, free_address, wait_until};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// Nothing in these tests takes longer on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// A command line without what the environment of the tests would add.
fn command(arguments: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entity-operator"));
    command.args(arguments).kill_on_drop(true).stdin(Stdio::null());
    for variable in ["KUBECONFIG", "POD_NAMESPACE", "POD_NAME", "RUST_LOG", "HOME"] {
        command.env_remove(variable);
    }
    command
}

/// The objects that `generate` prints.
pub(crate) async fn generate(what: &str, flags: &[&str]) -> Vec<Value> {
    let words = ["generate", what].into_iter().chain(flags.iter().copied());
    let output = command(&words.map(str::to_owned).collect::<Vec<_>>()).output();
    let output = tokio::time::timeout(PATIENCE, output).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// The process of a Pod. Killed when dropped.
pub(crate) struct Running {
    _child: Child,
    log: Arc<Mutex<Vec<String>>>,
    health: SocketAddr,
    ready_path: String,
}

impl Running {
    /// Starts what a node would start for this Pod: its arguments, its environment, as its ServiceAccount. What belongs
    /// to the machine is added: how to reach the API server, and ports that are free.
    pub(crate) fn start(cluster: &ControlPlane, pod: &Pod, port: u16) -> Self {
        let namespace = pod.metadata.namespace.clone().unwrap();
        let spec = pod.spec.as_ref().unwrap();
        let container = &spec.containers[0];
        let account = spec.service_account_name.as_deref().unwrap();
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")];
        let kubeconfig = cluster.kubeconfig_as(&format!("system:serviceaccount:{namespace}:{account}"), &groups);
        let health = free_address();

        let mut arguments = container.args.clone().unwrap();
        arguments.extend(machine(&kubeconfig, port, health));
        let mut command = command(&arguments);
        for variable in container.env.iter().flatten() {
            let source = variable.value_from.as_ref().and_then(|source| source.field_ref.as_ref());
            let value = match source.map(|field| field.field_path.as_str()) {
                Some("metadata.namespace") => &namespace,
                Some("metadata.name") => pod.metadata.name.as_ref().unwrap(),
                Some(path) => panic!("a node that plays {path} is not built"),
                None => variable.value.as_ref().unwrap(),
            };
            command.env(&variable.name, value);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (log, stderr) = (Arc::new(Mutex::new(Vec::new())), child.stderr.take().unwrap());
        let lines = Arc::clone(&log);
        // Ends with the process.
        tokio::spawn(async move {
            let mut read = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = read.next_line().await {
                lines.lock().unwrap().push(line);
            }
        });
        let probe = container.readiness_probe.as_ref().and_then(|probe| probe.http_get.as_ref());
        Self { _child: child, log, health, ready_path: probe.unwrap().path.clone().unwrap() }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Waits until the Pod's own readiness probe succeeds.
    pub(crate) async fn ready(&self) {
        let ask = || async { self.probe().await.starts_with("HTTP/1.1 200").then_some(()) };
        let waited = tokio::time::timeout(PATIENCE, wait_until("readiness", PATIENCE * 2, ask)).await;
        assert!(waited.is_ok(), "{}\n{}", self.probe().await, self.log());
    }

    async fn probe(&self) -> String {
        let Ok(mut stream) = TcpStream::connect(self.health).await else { return "nobody listens".to_owned() };
        let request = format!("GET {} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n", self.ready_path);
        let mut reply = String::new();
        if stream.write_all(request.as_bytes()).await.is_ok() {
            let _ = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut reply)).await;
        }
        reply
    }
}

fn machine(kubeconfig: &Path, port: u16, health: SocketAddr) -> [String; 4] {
    [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--bind=127.0.0.1:{port}"),
        format!("--health-bind={health}"),
        "--log=info".to_owned(),
    ]
}
