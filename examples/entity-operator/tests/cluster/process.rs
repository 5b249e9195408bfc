//! The binary as a process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_testing::wait_until;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// Nothing in these tests takes longer on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

/// A command line without what the environment of the tests would add.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entity-operator"));
    command.args(arguments).kill_on_drop(true).stdin(Stdio::null());
    for variable in ["KUBECONFIG", "POD_NAMESPACE", "RUST_LOG", "HOME"] {
        command.env_remove(variable);
    }
    command
}

/// What `generate` prints, as objects.
pub(crate) async fn generate(arguments: &[&str]) -> Vec<Value> {
    let output = command(&[&["generate"], arguments].concat()).output();
    let output = tokio::time::timeout(PATIENCE, output).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// `run`, until the test ends.
pub(crate) struct Running {
    _child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Running {
    pub(crate) fn start(kubeconfig: &Path, namespace: &str) -> Self {
        let kubeconfig = kubeconfig.to_str().unwrap();
        let places = ["--bind", "127.0.0.1:0", "--health-bind", "127.0.0.1:0", "--log-format", "json"];
        let who = ["run", "--kubeconfig", kubeconfig, "--namespace", namespace];
        let mut child = command(&[&who[..], &places].concat()).stderr(Stdio::piped()).spawn().unwrap();
        let (log, stderr) = (Arc::new(Mutex::new(Vec::new())), child.stderr.take().unwrap());
        let lines = Arc::clone(&log);
        // Ends with the process.
        tokio::spawn(async move {
            let mut read = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = read.next_line().await {
                lines.lock().unwrap().push(line);
            }
        });
        Self { _child: child, log }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// The address that a log line with this message tells.
    pub(crate) async fn address(&self, message: &str) -> SocketAddr {
        let find = || async {
            let log = self.log.lock().unwrap();
            let mut lines = log.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| line["fields"]["message"] == message)
        };
        let Ok(line) = tokio::time::timeout(PATIENCE, wait_until(message, PATIENCE * 2, find)).await else {
            panic!("'{message}' was not logged:\n{}", self.log())
        };
        line["fields"]["address"].as_str().unwrap().parse().unwrap()
    }

    /// Waits until `/readyz` says so.
    pub(crate) async fn ready(&self) {
        let health = self.address("serving /healthz and /readyz").await;
        let ask = || async { get(health, "/readyz").await.starts_with("HTTP/1.1 200").then_some(()) };
        let waited = tokio::time::timeout(PATIENCE, wait_until("readiness", PATIENCE * 2, ask)).await;
        assert!(waited.is_ok(), "{}\n{}", get(health, "/readyz").await, self.log());
    }
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut reply)).await.unwrap().unwrap();
    reply
}
