//! The cluster side: a control plane, the generated CRDs and roles, and the operator with its webhooks in the API server's way.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use portcullis_testing::{ControlPlane, free_address};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::apply::apply;
use crate::process::{Process, binary};

/// The namespace that the operator is installed in.
pub const OPERATOR_NAMESPACE: &str = "portcullis-system";
/// The user that it is: its ServiceAccount.
pub const OPERATOR_USER: &str = "system:serviceaccount:portcullis-system:mcp-operator";

/// Where remote servers and identity providers are in these runs: addresses that objects may not name elsewhere.
pub(crate) const LOOPBACK: &str = "127.0.0.0/8";

/// A control plane with the operator at work on it.
#[derive(Debug)]
pub struct Stage {
    /// The control plane.
    pub cluster: ControlPlane,
    /// Logs and files of this run, inside the control plane's directory: whichever way this program ends, they go with it.
    pub folder: PathBuf,
    operator: Process,
    launch: Launch,
}

/// The command that starts the operator.
#[derive(Debug)]
struct Launch {
    binary: PathBuf,
    kubeconfig: PathBuf,
    webhooks: SocketAddr,
    health: SocketAddr,
    /// More arguments.
    arguments: &'static [&'static str],
}

impl Stage {
    /// Starts a control plane, installs what `mcp-operator generate` prints, and starts the operator under the shipped roles. Calls `step` before
    /// each step with what it does.
    pub async fn start(step: impl Fn(&str)) -> Result<Self> {
        Self::begin(binary("mcp-operator")?, &["--allow-endpoint-cidr", LOOPBACK], step).await
    }

    /// [`start`](Self::start) with the operator at this path, which may be of another version: what is installed is what it generates.
    /// That may not know the flag by which [`start`](Self::start) allows addresses of the loopback network.
    pub async fn start_binary(operator: PathBuf, step: impl Fn(&str)) -> Result<Self> {
        Self::begin(operator, &[], step).await
    }

    async fn begin(operator: PathBuf, arguments: &'static [&'static str], step: impl Fn(&str)) -> Result<Self> {
        step("starting etcd, kube-apiserver and kube-controller-manager on free loopback ports");
        let cluster = ControlPlane::builder().controller_manager().start().await?;
        let folder = cluster.directory().join("stage");
        std::fs::create_dir(&folder)?;

        step("installing the CRDs: mcp-operator generate crds");
        let crds = generate(&operator, &["crds"]).await?;
        let crds =
            crds.into_iter().map(serde_json::from_value).collect::<Result<Vec<CustomResourceDefinition>, _>>()?;
        cluster.install_crds(&crds).await;

        step("installing the operator's roles, and nothing beyond them: mcp-operator generate rbac");
        let admin = cluster.admin();
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": OPERATOR_NAMESPACE } });
        applied(&admin, &namespace).await?;
        for manifest in generate(&operator, &["rbac", "--namespace", OPERATOR_NAMESPACE]).await? {
            applied(&admin, &manifest).await?;
        }

        step("putting the operator's webhooks in the API server's way: mcp-operator generate webhooks");
        let (webhooks, health) = (free_address(), free_address());
        let manifests = generate(&operator, &["webhooks", "--namespace", OPERATOR_NAMESPACE]).await?;
        cluster.install_webhooks(&manifests, webhooks.port()).await;

        step("starting the operator as its ServiceAccount, and waiting for a TLS call to its webhooks to succeed");
        let kubeconfig = cluster.kubeconfig_as(OPERATOR_USER, &["system:serviceaccounts", "system:authenticated"]);
        let launch = Launch { binary: operator, kubeconfig, webhooks, health, arguments };
        let operator = launch.start(&folder).await?;
        Ok(Self { cluster, folder, operator, launch })
    }

    /// The operator's process id.
    pub fn operator_pid(&self) -> Option<u32> {
        self.operator.pid()
    }

    /// Ends the operator and starts it again.
    pub async fn restart_operator(self) -> Result<Self> {
        let Self { cluster, folder, operator, launch } = self;
        operator.stop().await?;
        let operator = launch.start(&folder).await?;
        Ok(Self { cluster, folder, operator, launch })
    }

    /// The operator's log so far.
    pub fn operator_log(&self) -> String {
        self.operator.output()
    }

    /// Ends the operator and the control plane.
    pub async fn stop(self) -> Result<()> {
        self.operator.stop().await?;
        self.cluster.stop().await;
        Ok(())
    }
}

impl Launch {
    async fn start(&self, folder: &Path) -> Result<Process> {
        let mut command = Command::new(&self.binary);
        command.arg("run").arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", OPERATOR_NAMESPACE]);
        command.args(self.arguments);
        command.args(["--bind", &self.webhooks.to_string(), "--health-bind", &self.health.to_string()]);
        let mut operator = Process::start("mcp-operator", folder, command)?;
        ready(&mut operator, self.health, "/readyz").await?;
        Ok(operator)
    }
}

async fn applied(client: &kube::Client, object: &Value) -> Result<()> {
    match apply(client, object).await? {
        Ok(_) => Ok(()),
        Err(refusal) => bail!("{} {} is refused: {}", object["kind"], object["metadata"]["name"], refusal.message),
    }
}

/// The objects that `mcp-operator generate` prints.
pub(crate) async fn generate(operator: &Path, arguments: &[&str]) -> Result<Vec<Value>> {
    let output = Command::new(operator).arg("generate").args(arguments).output().await?;
    if !output.status.success() {
        bail!("mcp-operator generate {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    crate::apply::documents(&String::from_utf8(output.stdout)?)
}

/// Waits until `GET path` at `address` answers 200, or fails with the log of `process` when that ends first.
pub async fn ready(process: &mut Process, address: SocketAddr, path: &str) -> Result<()> {
    settled(&format!("http://{address}{path} to answer 200"), async || {
        process.check_running()?;
        Ok(get_ok(address, path).await.then_some(()))
    })
    .await
}

async fn get_ok(address: SocketAddr, path: &str) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes())
            .await?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await?;
        std::io::Result::Ok(&answer == b"HTTP/1.1 200")
    };
    tokio::time::timeout(Duration::from_secs(2), ask).await.is_ok_and(|answer| answer.unwrap_or(false))
}

/// Looks every tenth of a second, for up to a minute, until there is an answer. Unlike a test, a demo ends with an error and not with a panic.
pub async fn settled<T>(what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if tokio::time::Instant::now() > deadline {
            bail!("waited a minute in vain for {what}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
