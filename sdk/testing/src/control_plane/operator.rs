//! An operator's binary, installed and at work.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use super::panic_log::PanicLog;
use super::watcher::{Server, Watcher};
use crate::{ControlPlane, ControlPlaneError, Mark, free_address};

/// Becoming ready takes some seconds on a quiet machine; a busy one gets this long.
const PATIENCE: Duration = Duration::from_mins(2);
/// A port that was free may be taken when the operator binds it.
const ATTEMPTS: u32 = 3;
/// The prefix of its message then.
const TAKEN: &str = "error: cannot listen on ";

/// The binary of an operator (`portcullis::operator::Operator`).
///
/// ```no_run
/// # async fn test() {
/// use portcullis_testing::{ControlPlane, OperatorBinary};
///
/// let cluster = ControlPlane::shared().await;
/// // In a test of the binary's crate: env!("CARGO_BIN_EXE_my-operator").
/// let operator = OperatorBinary::new("target/debug/my-operator").install(cluster).await;
/// // Now the API server calls its webhooks.
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a binary does nothing until it is installed"]
pub struct OperatorBinary {
    program: PathBuf,
    namespace: Option<String>,
    flags: Vec<String>,
    run_flags: Vec<String>,
}

/// A running operator. Its process ends when this is dropped, or the test process ends. The installed objects stay in
/// the control plane. When a test panics meanwhile, the last warnings and errors of the operator's log are printed with
/// the message of the panic.
#[derive(Debug)]
pub struct RunningOperator {
    // Fields are dropped in this order: the process, then the watcher, which removes the directory.
    process: Server,
    watcher: Watcher,
    _panic_log: PanicLog,
    health: SocketAddr,
    /// The operator's own namespace.
    pub namespace: String,
    /// The user of its own ServiceAccount, in RBAC and in the [audit log](crate::AuditLog::writes_by).
    pub user: String,
    /// The moment before it was installed.
    pub began: Mark,
}

impl OperatorBinary {
    /// The binary at this path: in a test of its own crate, `env!("CARGO_BIN_EXE_<name>")`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        // It runs inside of another directory, where a relative path would lead elsewhere.
        let program = std::path::absolute(&program).unwrap_or(program);
        Self { program, namespace: None, flags: Vec::new(), run_flags: Vec::new() }
    }

    /// Installs it in this namespace, created if it is missing, instead of a new one.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Flags for both `generate` and `run`: those of the installation, and your own.
    pub fn flags<S: Into<String>>(mut self, flags: impl IntoIterator<Item = S>) -> Self {
        self.flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Flags for `run` alone, such as `--log`.
    pub fn run_flags<S: Into<String>>(mut self, flags: impl IntoIterator<Item = S>) -> Self {
        self.run_flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Applies the output of `generate rbac`, `crds` and `webhooks`, with only the port of the Service changed, starts
    /// `run` under the operator's own ServiceAccount, and returns when it is ready and the API server calls its
    /// webhooks.
    ///
    /// CRDs and webhook configurations are cluster-scoped: install one operator for all tests of a file, in a
    /// `OnceCell`, and give each test a namespace of its own.
    ///
    /// # Panics
    /// When a command fails, the API server refuses what it prints, or the operator does not become ready within two
    /// minutes; the message has what `/readyz` says, and the end of the log.
    pub async fn install(&self, cluster: &ControlPlane) -> RunningOperator {
        let began = cluster.audit().mark();
        let namespace = match &self.namespace {
            Some(namespace) => made(cluster, namespace).await,
            None => cluster.namespace("operator").await,
        };
        let user = cluster.user_from_manifests(&self.generate("rbac", &namespace, &[]).await).await;
        for attempt in 1.. {
            let [address, health] = [free_address(), free_address()];
            let service = ["--service-port".to_owned(), address.port().to_string()];
            for what in ["crds", "webhooks"] {
                let manifests = self.generate(what, &namespace, &service).await;
                cluster.apply(&manifests).await;
                for (namespace, name) in services(&manifests) {
                    cluster.route_service(&namespace, &name).await;
                }
            }
            let places = [
                ("--kubeconfig", user.kubeconfig.display().to_string()),
                ("--bind", address.to_string()),
                ("--health-bind", health.to_string()),
            ];
            let places = places.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
            let words = self.words("run", &namespace).chain(service).chain(places).chain(self.run_flags.clone());
            let words: Vec<String> = words.collect();
            let started = self.start(&words).unwrap_or_else(|error| panic!("{error}"));
            let (process, watcher) = started;
            let (namespace, user) = (namespace.clone(), user.name.clone());
            let log = watcher.directory().join("operator.log");
            let mut running =
                RunningOperator { process, watcher, _panic_log: PanicLog::of(log), health, namespace, user, began };
            match running.ready().await {
                Ok(()) => {
                    cluster.wait_for_webhooks().await;
                    return running;
                }
                Err(_) if attempt < ATTEMPTS && running.log().contains(TAKEN) => {}
                Err(problem) => {
                    panic!("{} {problem}; the end of its log:\n{}", self.program.display(), running.process.log_tail())
                }
            }
        }
        unreachable!("the last attempt returns or panics")
    }

    /// Runs `generate`, and returns the objects that it prints.
    async fn generate(&self, what: &str, namespace: &str, more: &[String]) -> Vec<Value> {
        let words: Vec<String> = ["generate".to_owned()]
            .into_iter()
            .chain(self.words(what, namespace))
            .chain(more.iter().cloned())
            .collect();
        let mut command = Command::new(&self.program);
        // The environment of the tests is not meant for the operator.
        command.args(&words).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        let called = || format!("{} {}", self.program.display(), words.join(" "));
        let output = match timeout(PATIENCE, command.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => panic!("cannot run {}: {error}", called()),
            Err(late) => panic!("{} did not end within {PATIENCE:?}: {late}", called()),
        };
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} failed: {warnings}", called());
        if !warnings.is_empty() {
            warn(&format!("{} says: {warnings}", called()));
        }
        let objects = serde_saphyr::from_multiple::<Value>(&String::from_utf8_lossy(&output.stdout));
        let objects = objects.unwrap_or_else(|error| panic!("{} prints no YAML: {error}", called()));
        // A document of comments alone is null: there is nothing to apply.
        objects.into_iter().filter(|object| !object.is_null()).collect()
    }

    fn words(&self, command: &str, namespace: &str) -> impl Iterator<Item = String> + use<> {
        let place = [command, "--namespace", namespace].map(str::to_owned);
        place.into_iter().chain(self.flags.clone())
    }

    fn start(&self, words: &[String]) -> Result<(Server, Watcher), ControlPlaneError> {
        let mut watcher = Watcher::start()?;
        let log = watcher.directory().join("operator.log");
        let process = watcher.spawn("the operator", &self.program, words, log)?;
        Ok((process, watcher))
    }
}

impl RunningOperator {
    /// Its log so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.watcher.directory().join("operator.log")).unwrap_or_default())
            .into_owned()
    }

    /// The body that it answers at this path of its health listener, such as `/metrics`; `None` unless the status is
    /// 200.
    pub async fn get(&self, path: &str) -> Option<String> {
        let (head, body) = ask(self.health, path).await?;
        head.starts_with("HTTP/1.1 200").then_some(body)
    }

    /// The process ids of the operator and of its watcher.
    pub fn process_ids(&self) -> [u32; 2] {
        [self.process.pid(), self.watcher.pid()]
    }

    async fn ready(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.ended() {
                return Err(format!("ended before it was ready ({status})"));
            }
            let last = match timeout(PATIENCE, ask(self.health, "/readyz")).await {
                Ok(Some((head, _))) if head.starts_with("HTTP/1.1 200") => return Ok(()),
                Ok(Some((_, body))) => body.trim().to_owned(),
                Ok(None) | Err(_) => "nothing".to_owned(),
            };
            if begun.elapsed() > PATIENCE {
                return Err(format!("did not become ready within {PATIENCE:?} (/readyz says: {last})"));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

#[allow(clippy::print_stderr, reason = "the test runner shows it with the test that fails")]
fn warn(text: &str) {
    eprintln!("{text}");
}

/// The head and the body of an answer; none where no server answers.
async fn ask(address: SocketAddr, path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

/// A namespace of this name, which may be there already.
async fn made(cluster: &ControlPlane, name: &str) -> String {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    match Api::all(cluster.admin()).create(&PostParams::default(), &namespace).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => panic!("cannot make the namespace {name}: {error}"),
    }
    name.to_owned()
}

/// The Services that these webhook configurations and CRDs are called through.
fn services(manifests: &[Value]) -> BTreeSet<(String, String)> {
    let service = |client: Option<&Value>| {
        let part = |part: &str| client?.get("service")?.get(part)?.as_str().map(str::to_owned);
        Some((part("namespace")?, part("name")?))
    };
    let of = |manifest: &Value| {
        let hooks = manifest["webhooks"].as_array().into_iter().flatten();
        let hooks: Vec<_> = hooks.filter_map(|hook| service(hook.get("clientConfig"))).collect();
        hooks.into_iter().chain(service(manifest.pointer("/spec/conversion/webhook/clientConfig")))
    };
    manifests.iter().flat_map(of).collect()
}
