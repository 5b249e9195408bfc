//! The operator as a process.

use std::{net::SocketAddr, process::Stdio, sync::Arc, time::Duration};

use k8s_openapi::api::rbac::v1::PolicyRule;
use portcullis_testing::{AuditEvent, ControlPlane, Mark, User, wait_until};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
    sync::{OnceCell, watch},
};

use super::{CRDS, DEADLINE};

/// Until what was written has reached those who watch.
const DELIVERED: Duration = Duration::from_millis(250);
/// An event reaches the operator within this time, also on a busy machine.
const ON_ITS_WAY: Duration = Duration::from_secs(2);
/// How the lines of the gauge of pending objects begin.
const PENDING: &str = "portcullis_reconciles_pending{";

/// A running operator. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Operator {
    process: Child,
    /// The user that it writes as.
    user: String,
    /// What it logged so far.
    log: Arc<watch::Sender<String>>,
}

/// The operator's ServiceAccount, with the rights that `generate rbac` writes for an operator that lives in `namespace` and
/// no others. The same is committed as deploy/rbac.yaml, for its default namespace.
pub(crate) async fn shipped_user(cluster: &ControlPlane, namespace: &str) -> User {
    cluster.user_from_manifests(&shipped(namespace).await).await
}

/// The same, for which every rule of every role became those that `change` makes of it.
pub(crate) async fn user_with_less(
    cluster: &ControlPlane,
    namespace: &str,
    change: impl Fn(PolicyRule) -> Vec<PolicyRule>,
) -> User {
    let mut manifests = shipped(namespace).await;
    for rules in manifests.iter_mut().filter_map(|manifest| manifest.get_mut("rules")) {
        let shipped: Vec<PolicyRule> = serde_json::from_value(rules.take()).unwrap();
        *rules = serde_json::to_value(shipped.into_iter().flat_map(&change).collect::<Vec<_>>()).unwrap();
    }
    cluster.user_from_manifests(&manifests).await
}

/// Returns the rights that `generate rbac` writes for an operator in `namespace`. They are generated once, and differ by that name alone.
async fn shipped(namespace: &str) -> Vec<Value> {
    const HOME: &str = "home-of-the-operator";
    static MANIFESTS: OnceCell<String> = OnceCell::const_new();
    let generated = async || serde_json::to_string(&generated("rbac", &["--namespace", HOME]).await).unwrap();
    serde_json::from_str(&MANIFESTS.get_or_init(generated).await.replace(HOME, namespace)).unwrap()
}

/// Returns the documents that the binary generates with these flags.
pub(crate) async fn generated(what: &str, flags: &[&str]) -> Vec<Value> {
    let binary = env!("CARGO_BIN_EXE_mcp-operator");
    let output = Command::new(binary).args(["generate", what]).args(flags).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

impl Operator {
    /// Starts the binary as `user`, watching and living in `namespace`.
    pub(crate) fn start(user: &User, namespace: &str) -> Self {
        Self::start_with(user, namespace, &["--watch-namespace", namespace, "--bind", "127.0.0.1:0"])
    }

    /// Starts the binary as `user`, living in `namespace`, with these flags besides. Without an election unless they ask
    /// for one: the successor of a killed operator would wait for the end of its lease.
    pub(crate) fn start_with(user: &User, namespace: &str, flags: &[&str]) -> Self {
        let election: &[&str] = if flags.contains(&"--leader-elect") { &[] } else { &["--leader-elect", "off"] };
        let mut process = Command::new(env!("CARGO_BIN_EXE_mcp-operator"))
            .arg("run")
            .arg("--kubeconfig")
            .arg(&user.kubeconfig)
            .args(["--namespace", namespace])
            .args(["--health-bind", "127.0.0.1:0", "--log", "info,mcp_operator=debug"])
            .args(election)
            .args(flags)
            .env_remove("TOOLHIVE_RUNNER_IMAGE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = Arc::new(watch::Sender::new(String::new()));
        let (mut lines, sink) = (BufReader::new(process.stderr.take().unwrap()).lines(), log.clone());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                sink.send_modify(|log| {
                    log.push_str(&line);
                    log.push('\n');
                });
            }
        });
        Self { process, user: user.name.clone(), log }
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.borrow().clone()
    }

    /// Waits until it logged `text`.
    pub(crate) async fn logged(&self, text: &str) {
        self.logged_times(text, 1).await;
    }

    /// Waits until the controller of every kind reconciles: every watch has delivered its first list.
    pub(crate) async fn reconciles(&self) {
        self.logged_times("every watched kind is listed", CRDS.len()).await;
    }

    async fn logged_times(&self, text: &str, times: usize) {
        let mut log = self.log.subscribe();
        let seen = tokio::time::timeout(DEADLINE, log.wait_for(|log| log.matches(text).count() >= times)).await;
        let seen = seen.is_ok_and(|seen| seen.is_ok());
        assert!(seen, "the operator did not log {text:?} {times} times:\n{}", self.log());
    }

    /// Waits until it is idle: no controller has anything to do now or within the next ten seconds, as
    /// `portcullis_reconciles_pending` says, and nothing is written meanwhile. Returns the moment since when nothing was.
    pub(crate) async fn idle(&self, cluster: &ControlPlane) -> Mark {
        let health = self.address_of("serving /healthz and /readyz").await;
        wait_until("the operator to be idle", DEADLINE, || async {
            let mark = cluster.audit().mark();
            // The last write is on its way to the operator: by somebody else before the first look, by the operator
            // itself between the two.
            for _ in 0..2 {
                tokio::time::sleep(DELIVERED).await;
                if pending(health).await? > 0 {
                    return None;
                }
            }
            self.writes(cluster, mark).await.is_empty().then_some(mark)
        })
        .await
    }

    /// Asserts that it has written nothing since `mark`. An event that must not make it write may still be on its way when
    /// it is idle first: it is idle again two seconds later.
    pub(crate) async fn wrote_nothing(&self, cluster: &ControlPlane, since: Mark, when: &str) {
        self.idle(cluster).await;
        tokio::time::sleep(ON_ITS_WAY).await;
        self.idle(cluster).await;
        let written = self.writes(cluster, since).await;
        assert!(written.is_empty(), "{when}: {} writes:\n{}", written.len(), written.join("\n"));
    }

    async fn writes(&self, cluster: &ControlPlane, since: Mark) -> Vec<String> {
        writes_of(cluster, &self.user, since).await
    }

    /// The address it serves webhooks on.
    pub(crate) async fn webhook_address(&self) -> SocketAddr {
        self.address_of("Serving webhook server").await
    }

    /// Waits until `/readyz` says yes.
    pub(crate) async fn ready(&self) {
        self.logged("ready: the CA is published, and our own listener answers under it").await;
        self.logged("every Lease that this replica depends on was read").await;
    }

    async fn address_of(&self, what: &str) -> SocketAddr {
        self.logged(what).await;
        let log = self.log();
        let line = log.lines().find(|line| line.contains(what)).unwrap();
        let address = line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap();
        address.parse().unwrap()
    }

    /// SIGKILL, and waits for its end.
    pub(crate) async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    /// SIGTERM.
    pub(crate) async fn ask_to_end(&self) {
        let id = self.process.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    }

    /// SIGTERM, and waits for its orderly end.
    pub(crate) async fn terminate(mut self) {
        self.ask_to_end().await;
        let status = tokio::time::timeout(DEADLINE, self.process.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}:\n{}", self.log());
    }
}

/// What the operator wrote since `mark` certificates and leases aside, in words.
pub(crate) async fn writes(cluster: &ControlPlane, user: &User, mark: Mark) -> Vec<String> {
    writes_of(cluster, &user.name, mark).await
}

async fn writes_of(cluster: &ControlPlane, user: &str, mark: Mark) -> Vec<String> {
    let events = cluster.audit().writes_by(user, mark).await;
    events.iter().filter(|event| counts(event)).map(ToString::to_string).collect()
}

/// Every write of the operator since `mark`.
pub(crate) async fn requests(cluster: &ControlPlane, user: &User, mark: Mark) -> Vec<AuditEvent> {
    cluster.audit().writes_by(&user.name, mark).await
}

fn counts(event: &AuditEvent) -> bool {
    let own = event.resource == "leases"
        || event.resource == "secrets" && event.name.starts_with("mcp-operator-webhook-tls")
        || event.resource.ends_with("webhookconfigurations");
    !own
}

/// How many objects the controllers of the operator with this health listener have to see to; `None` unless every one of
/// them works.
async fn pending(health: SocketAddr) -> Option<usize> {
    let mut stream = TcpStream::connect(health).await.ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await.ok()?;
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).await.ok()?;
    let gauges = metrics.lines().filter(|line| line.starts_with(PENDING));
    let objects: Vec<usize> = gauges.map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect::<Option<_>>()?;
    (objects.len() == CRDS.len()).then(|| objects.iter().sum())
}
