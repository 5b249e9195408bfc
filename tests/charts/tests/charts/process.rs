//! An operator as a process, under an account that a chart has made, with the arguments of its Deployment.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use portcullis_charts::binary;
use portcullis_testing::{free_address, wait_until};
use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

pub(crate) struct Process {
    child: Child,
    pub(crate) webhooks: SocketAddr,
    health: SocketAddr,
    log: NamedTempFile,
}

impl Process {
    pub(crate) fn start(program: &str, namespace: &str, arguments: &[String], kubeconfig: &Path) -> Self {
        let [webhooks, health] = [free_address(), free_address()];
        let [bind, health_bind] = [webhooks, health].map(|address| address.to_string());
        let log = NamedTempFile::new().unwrap();
        let mut command = Command::new(binary(program));
        command.args(arguments).args(["--namespace", namespace, "--bind", &bind, "--health-bind", &health_bind]);
        // Callers learn at once where the Service leads.
        command.args(["--drain-delay", "1s"]);
        command.arg("--kubeconfig").arg(kubeconfig).stdin(Stdio::null());
        command.stdout(log.reopen().unwrap()).stderr(log.reopen().unwrap()).kill_on_drop(true);
        Self { child: command.spawn().unwrap(), webhooks, health, log }
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

/// The arguments in the Deployment or Job among these objects.
pub(crate) fn arguments(objects: &[Value], kind: &str) -> Vec<String> {
    let object = objects.iter().find(|object| object["kind"] == kind).unwrap();
    let arguments = object.pointer("/spec/template/spec/containers/0/args").unwrap().as_array().unwrap();
    arguments.iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}
