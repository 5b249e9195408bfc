//! The operator as a process.

use std::{net::SocketAddr, path::Path, process::Stdio, sync::Arc, time::Duration};

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use portcullis_testing::{AuditEvent, ControlPlane, Grant, Mark, User, wait_until};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::watch,
};

use super::DEADLINE;

/// A running operator. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Operator {
    process: Child,
    /// What it logged so far.
    log: Arc<watch::Sender<String>>,
}

/// A user with the rights that deploy/rbac.yaml ships and no others: the cluster's everywhere, its own in `namespace`.
pub(crate) async fn shipped_user(cluster: &ControlPlane, namespace: &str) -> User {
    let (everywhere, here) = shipped_rules();
    let grants = [Grant::ClusterRules(&everywhere), Grant::Rules { namespace, rules: &here }];
    cluster.user_with("operator", &grants).await
}

/// The rules of the ClusterRole and of the Role in deploy/rbac.yaml.
pub(crate) fn shipped_rules() -> (Vec<PolicyRule>, Vec<PolicyRule>) {
    let everywhere: ClusterRole = shipped("rbac.yaml", "ClusterRole");
    let here: Role = shipped("rbac.yaml", "Role");
    (everywhere.rules.unwrap(), here.rules.unwrap())
}

/// What the binary generates for an operator that lives in `namespace`.
pub(crate) async fn generated(what: &str, namespace: &str) -> Vec<Value> {
    let binary = env!("CARGO_BIN_EXE_mcp-operator");
    let output = Command::new(binary).args(["generate", what, "--namespace", namespace]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// The object of this kind in a file of deploy/.
fn shipped<K: DeserializeOwned>(file: &str, kind: &str) -> K {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let object = objects.into_iter().find(|object| object["kind"] == kind).unwrap();
    serde_json::from_value(object).unwrap()
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
        Self { process, log }
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.borrow().clone()
    }

    /// Waits until it logged `text`.
    pub(crate) async fn logged(&self, text: &str) {
        let mut log = self.log.subscribe();
        let seen = tokio::time::timeout(DEADLINE, log.wait_for(|log| log.contains(text))).await;
        assert!(seen.is_ok_and(|seen| seen.is_ok()), "the operator never logged {text:?}:\n{}", self.log());
    }

    /// Waits until it reconciles: every watch has delivered its first list.
    pub(crate) async fn reconciles(&self) {
        self.logged("every store holds its first list").await;
    }

    /// The address it serves webhooks on.
    pub(crate) async fn webhook_address(&self) -> SocketAddr {
        self.address_of("serving webhooks").await
    }

    /// Waits until `/readyz` says yes.
    pub(crate) async fn ready(&self) {
        self.logged("ready: the CA is published, and our own listener answers under it").await;
        self.logged("the leases are known").await;
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

/// The user's writes since `mark`, certificates and leases aside, in words.
pub(crate) async fn writes(cluster: &ControlPlane, user: &User, mark: Mark) -> Vec<String> {
    let events = cluster.audit().writes_by(&user.name, mark).await;
    events.iter().filter(|event| counts(event)).map(ToString::to_string).collect()
}

fn counts(event: &AuditEvent) -> bool {
    let own = event.resource == "leases"
        || event.resource == "secrets" && event.name.starts_with("mcp-operator-webhook-tls")
        || event.resource.ends_with("webhookconfigurations");
    !own
}

/// Waits until the user has written nothing for two seconds, and returns that moment.
pub(crate) async fn quiet(cluster: &ControlPlane, user: &User) -> Mark {
    wait_until("the operator to be quiet", DEADLINE, || async {
        let mark = cluster.audit().mark();
        tokio::time::sleep(Duration::from_secs(2)).await;
        writes(cluster, user, mark).await.is_empty().then_some(mark)
    })
    .await
}

/// Asserts that the user writes nothing for this long: an observation window, not a wait.
pub(crate) async fn nothing_written(cluster: &ControlPlane, user: &User, since: Mark, window: Duration, when: &str) {
    tokio::time::sleep(window).await;
    let written = writes(cluster, user, since).await;
    assert!(written.is_empty(), "{when}: {} writes:\n{}", written.len(), written.join("\n"));
}
