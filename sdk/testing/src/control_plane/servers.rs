//! Starting and stopping the servers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::binaries::{API_SERVER, CONTROLLER_MANAGER, ETCD, locate};
use super::credentials::{Authority, write_private};
use super::error::Doing as _;
use super::watcher::{Server, Watcher};
use super::{AuditLog, ControlPlaneError, audit};
use crate::free_address;

/// Starting takes three seconds on a quiet machine; a busy one gets this long.
const START_DEADLINE: Duration = Duration::from_mins(3);
/// One question to a server that starts may hang; the next may not.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// A port that was free may be taken when the server binds it.
const START_ATTEMPTS: u32 = 3;

/// A running control plane. Its servers end and its directory is removed when it is dropped, or the process ends.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are dropped in this order: the servers, then the watcher, which removes the directory.
    servers: Vec<Server>,
    watcher: Watcher,
    pub(crate) authority: Authority,
    pub(crate) url: String,
    pub(crate) controllers: bool,
    audit: AuditLog,
}

/// The servers to start besides etcd and kube-apiserver.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    controllers: bool,
    binaries: Option<PathBuf>,
}

impl Builder {
    /// Runs kube-controller-manager too: garbage collection, deletion of namespaces, Deployments → ReplicaSets → Pods
    /// (which stay Pending: there is no node), StatefulSets, EndpointSlices, service accounts.
    #[must_use]
    pub fn controller_manager(mut self) -> Self {
        self.controllers = true;
        self
    }

    /// Takes the servers' binaries from this directory instead of looking them up.
    #[must_use]
    pub fn binaries(mut self, directory: impl Into<PathBuf>) -> Self {
        self.binaries = Some(directory.into());
        self
    }

    /// Starts the servers and waits until they are ready.
    pub async fn start(self) -> Result<ControlPlane, ControlPlaneError> {
        let needed: &[&str] =
            if self.controllers { &[ETCD, API_SERVER, CONTROLLER_MANAGER] } else { &[ETCD, API_SERVER] };
        let binaries = match &self.binaries {
            Some(directory) => directory.clone(),
            None => locate(needed)?,
        };
        let deadline = Instant::now() + START_DEADLINE;
        let mut attempt = 1;
        loop {
            match ControlPlane::try_start(&binaries, &self, deadline).await {
                Err(ControlPlaneError::Ended { log, .. })
                    if attempt < START_ATTEMPTS && log.contains("address already in use") =>
                {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver, and waits until they are ready.
    pub async fn start() -> Result<Self, ControlPlaneError> {
        Self::builder().start().await
    }

    /// Configures a control plane, such as one with kube-controller-manager.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The control plane (etcd and kube-apiserver) of the whole test binary, started by the first call.
    ///
    /// # Panics
    /// When it cannot be started; the message says why, and which command installs what is missing.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
        Self::once(&SHARED, Self::builder()).await
    }

    /// Does as [`ControlPlane::shared`], with kube-controller-manager. It is another control plane: a test binary that
    /// uses both starts two.
    ///
    /// # Panics
    /// When it cannot be started; the message says why, and which command installs what is missing.
    pub async fn shared_with_controller_manager() -> &'static Self {
        static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
        Self::once(&SHARED, Self::builder().controller_manager()).await
    }

    /// Nothing of a control plane belongs to the runtime it was started on, so it outlives the first test's runtime.
    #[allow(clippy::panic, reason = "in a test this is the failure")]
    async fn once(cell: &'static OnceCell<Result<Self, String>>, builder: Builder) -> &'static Self {
        let started = cell.get_or_init(|| async { builder.start().await.map_err(|error| error.to_string()) }).await;
        match started {
            Ok(control_plane) => control_plane,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Ends the servers and removes their directory, and returns when both are gone.
    pub async fn stop(self) {
        // The end of a process is waited for with a blocking call.
        if let Err(error) = tokio::task::spawn_blocking(move || drop(self)).await {
            tracing::warn!(%error, "the control plane was not stopped in order");
        }
    }

    /// The URL of the API server: `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A kubeconfig file for the administrator (group `system:masters`), for kubectl and other programs.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.directory().join("admin.kubeconfig")
    }

    /// The directory of this control plane, which is removed with it; the servers' logs are in `logs/`.
    pub fn directory(&self) -> &Path {
        self.watcher.directory()
    }

    /// The process ids of the servers, and of the watcher last.
    pub fn process_ids(&self) -> Vec<u32> {
        self.servers.iter().map(Server::pid).chain([self.watcher.pid()]).collect()
    }

    /// The audit log: each write, with its user.
    pub fn audit(&self) -> &AuditLog {
        &self.audit
    }

    async fn try_start(binaries: &Path, builder: &Builder, deadline: Instant) -> Result<Self, ControlPlaneError> {
        let controllers = builder.controllers;
        let [etcd_port, peer_port, api_port] = [(); 3].map(|()| free_address().port());
        let mut watcher = Watcher::start()?;
        let directory = watcher.directory().to_owned();
        let authority = Authority::new()?;
        write_files(&directory, &authority)?;

        let etcd = etcd_arguments(&directory, etcd_port, peer_port);
        let api_server = api_server_arguments(&directory, etcd_port, api_port, builder);
        let mut servers = Vec::new();
        for (name, arguments) in [(ETCD, etcd), (API_SERVER, api_server)] {
            servers.push(watcher.spawn(name, &binaries.join(name), &arguments, log(&directory, name))?);
        }
        let audit = AuditLog::new(directory.join(audit::LOG));
        let url = format!("https://127.0.0.1:{api_port}");
        let mut control_plane = Self { servers, watcher, authority, url, controllers, audit };

        let admin = control_plane.try_client("admin", &["system:masters"]).map_err(client_error)?;
        control_plane.ready(API_SERVER, deadline, || readyz(&admin)).await?;
        let kubeconfig = |user| control_plane.authority.kubeconfig(&control_plane.url, user, &["system:masters"]);
        for (user, file) in [("admin", "admin"), ("system:kube-controller-manager", CONTROLLER_MANAGER)] {
            let text = serde_json::to_string_pretty(&kubeconfig(user)?).map_err(std::io::Error::from);
            write_private(&directory.join(format!("{file}.kubeconfig")), &text.doing("write a kubeconfig")?)?;
        }
        if controllers {
            control_plane.start_controllers(binaries, &admin, deadline).await?;
        }
        Ok(control_plane)
    }

    async fn start_controllers(
        &mut self,
        binaries: &Path,
        admin: &Client,
        deadline: Instant,
    ) -> Result<(), ControlPlaneError> {
        let directory = self.directory().to_owned();
        let arguments = controller_manager_arguments(&directory);
        let program = binaries.join(CONTROLLER_MANAGER);
        let log = log(&directory, CONTROLLER_MANAGER);
        self.servers.push(self.watcher.spawn(CONTROLLER_MANAGER, &program, &arguments, log)?);
        // It has no port to ask; its first visible work is the service account of every namespace.
        let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "kube-system");
        self.ready(CONTROLLER_MANAGER, deadline, || async {
            accounts.get("default").await.map(drop).map_err(|error| error.to_string())
        })
        .await
    }

    /// Asks until the answer is good, a server has ended, or the time is over.
    async fn ready<F>(
        &mut self,
        what: &'static str,
        deadline: Instant,
        mut check: impl FnMut() -> F,
    ) -> Result<(), ControlPlaneError>
    where
        F: Future<Output = Result<(), String>>,
    {
        let begun = Instant::now();
        loop {
            for server in &mut self.servers {
                if let Some(status) = server.ended() {
                    let (status, log) = (status.to_string(), server.log_tail());
                    return Err(ControlPlaneError::Ended { server: server.name, status, log });
                }
            }
            let last = match tokio::time::timeout(ANSWER_DEADLINE, check()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(problem)) => problem,
                Err(late) => format!("none within {ANSWER_DEADLINE:?}: {late}"),
            };
            if Instant::now() >= deadline {
                let log = self.servers.iter().find(|s| s.name == what).map(Server::log_tail).unwrap_or_default();
                return Err(ControlPlaneError::NotReady { what, waited: begun.elapsed(), last, log });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn readyz(admin: &Client) -> Result<(), String> {
    let request = http::Request::get("/readyz").body(Vec::new()).map_err(|error| error.to_string())?;
    admin.request_text(request).await.map(drop).map_err(|error| error.to_string())
}

fn client_error(error: kube::Error) -> ControlPlaneError {
    ControlPlaneError::Client(Box::new(error))
}

fn log(directory: &Path, server: &str) -> PathBuf {
    directory.join("logs").join(format!("{server}.log"))
}

fn write_files(directory: &Path, authority: &Authority) -> Result<(), ControlPlaneError> {
    std::fs::create_dir(directory.join("logs")).doing("make the directory of the logs")?;
    let serving = authority.serving()?;
    // Service-account tokens are signed with a key of their own; any P-256 key does.
    let tokens = authority.user("service-accounts", &[])?;
    for (file, content) in [
        ("ca.crt", authority.cert_pem()),
        ("server.crt", &serving.cert_pem),
        ("server.key", &serving.key_pem),
        ("tokens.crt", &tokens.cert_pem),
        ("tokens.key", &tokens.key_pem),
        ("audit-policy.yaml", audit::POLICY),
        (audit::LOG, ""),
    ] {
        write_private(&directory.join(file), content)?;
    }
    Ok(())
}

fn etcd_arguments(directory: &Path, port: u16, peer_port: u16) -> Vec<String> {
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
    vec![
        format!("--data-dir={}/etcd", directory.display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // The data is worth nothing after the test.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=error".to_owned(),
    ]
}

fn api_server_arguments(directory: &Path, etcd_port: u16, port: u16, builder: &Builder) -> Vec<String> {
    let path = |name: &str| directory.join(name).display().to_string();
    let mut arguments = vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        // A prefix of its own hides data that another control plane left under a reused port.
        format!("--etcd-prefix=/{}", uuid::Uuid::new_v4()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", path("server.crt")),
        format!("--tls-private-key-file={}", path("server.key")),
        format!("--client-ca-file={}", path("ca.crt")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", path("tokens.crt")),
        format!("--service-account-signing-key-file={}", path("tokens.key")),
        "--authorization-mode=RBAC".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--audit-policy-file={}", path("audit-policy.yaml")),
        format!("--audit-log-path={}", path(audit::LOG)),
        // An event is in the file before its request goes on; nothing is dropped, and the file is never turned over.
        "--audit-log-mode=blocking".to_owned(),
        "--audit-log-maxsize=100000".to_owned(),
    ];
    if !builder.controllers {
        // It would wait for service accounts that no controller creates.
        arguments.push("--disable-admission-plugins=ServiceAccount".to_owned());
    }
    arguments
}

fn controller_manager_arguments(directory: &Path) -> Vec<String> {
    let path = |name: &str| directory.join(name).display().to_string();
    vec![
        format!("--kubeconfig={}", path("kube-controller-manager.kubeconfig")),
        format!("--service-account-private-key-file={}", path("tokens.key")),
        format!("--root-ca-file={}", path("ca.crt")),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        // The default of 20 requests a second would be what a test of many objects measures.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
        // So would be the pause of 15 seconds between two looks of an autoscaler.
        "--horizontal-pod-autoscaler-sync-period=1s".to_owned(),
    ]
}
