//! The example `rotation_operator` as processes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use portcullis_testing::wait_until;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::PATIENCE;

/// The binary, which cargo builds with the tests.
fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // Beside a test's folder, or in a program's own.
    let found = test.ancestors().skip(1).take(2).map(|folder| folder.join("examples/rotation_operator"));
    let found = found.into_iter().find(|binary| binary.is_file());
    found.unwrap_or_else(|| {
        panic!("run `cargo build -p portcullis-operator --examples` first, with --release for benches")
    })
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).kill_on_drop(true).stdin(Stdio::null());
    for variable in ["KUBECONFIG", "POD_NAMESPACE", "RUST_LOG", "HOME"] {
        command.env_remove(variable);
    }
    command
}

/// The objects that `generate` prints.
pub(crate) async fn generate(what: &str, arguments: &[&str]) -> Vec<Value> {
    let output = command(&[&["generate", what], arguments].concat()).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// A replica at work. Ends with the test.
pub(crate) struct Replica {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    pub(crate) webhooks: SocketAddr,
    pub(crate) health: SocketAddr,
}

impl Replica {
    /// Starts it, and returns when it is ready.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let fixed = ["run", "--log-format", "json", "--bind", "127.0.0.1:0", "--health-bind", "127.0.0.1:0"];
        let filter = ["--log", "info,portcullis_listener=debug"];
        let mut child = command(&[&fixed[..], &filter, arguments].concat()).stderr(Stdio::piped()).spawn().unwrap();
        let (log, stderr) = (Arc::new(Mutex::new(Vec::new())), child.stderr.take().unwrap());
        let lines = Arc::clone(&log);
        tokio::spawn(async move {
            let mut read = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = read.next_line().await {
                lines.lock().unwrap().push(line);
            }
        });
        let address = async |message: &str| {
            let found = || async {
                let log = log.lock().unwrap();
                let line = log.iter().find(|line| line.contains(message))?;
                let line: Value = serde_json::from_str(line).unwrap();
                Some(line["fields"]["address"].as_str().unwrap().parse().unwrap())
            };
            wait_until(message, PATIENCE, found).await
        };
        let (health, webhooks) =
            (address("serving /healthz and /readyz").await, address("Serving webhook server").await);
        let replica = Self { child, log, webhooks, health };
        let ready = || async { replica.is_ready().await.then_some(()) };
        wait_until("readiness", PATIENCE, ready).await;
        replica
    }

    pub(crate) async fn is_ready(&self) -> bool {
        self.get("/readyz").await.is_some_and(|reply| reply.starts_with("HTTP/1.1 200"))
    }

    pub(crate) async fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.health).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut reply = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut reply)).await.ok()?.ok()?;
        Some(reply)
    }

    #[allow(dead_code, reason = "the bench measures it")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// SIGKILL: no handler runs, nothing is put in order.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Lines about a caller that did not trust the served certificate, or gave up.
    pub(crate) fn handshake_errors(&self) -> Vec<String> {
        let log = self.log.lock().unwrap();
        let bad = |line: &&String| {
            line.contains("TLS handshake") || line.contains("connection ended early") && line.contains("alert")
        };
        log.iter().filter(bad).cloned().collect()
    }
}
