//! `run`: from the start to the end, in the API server's way.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use portcullis_testing::{ControlPlane, Stopwatch, User, wait_until};
use serde_json::Value;

use super::cluster::{cluster, entities, entity, generate};
use super::process::{PATIENCE, Running};

/// An operator's home: its namespace, which names its release too, and the one namespace that its webhooks are for.
struct Home {
    cluster: &'static ControlPlane,
    namespace: String,
    team: String,
    user: User,
}

impl Home {
    async fn new() -> Self {
        let cluster = cluster().await;
        let (namespace, team) = (cluster.namespace("op").await, cluster.namespace("team").await);
        let rights = generate(&["rbac", "--namespace", &namespace, "--release", &namespace]).await;
        let user = cluster.user_from_manifests(&rights).await;
        Self { cluster, namespace, team, user }
    }

    fn place(&self) -> [&str; 4] {
        ["--namespace", &self.namespace, "--release", &self.namespace]
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let kubeconfig = self.user.kubeconfig.to_str().unwrap();
        Running::start(&[&["--kubeconfig", kubeconfig], &self.place()[..], arguments].concat())
    }

    async fn webhooks(&self) -> Vec<Value> {
        let team = format!("kubernetes.io/metadata.name={}", self.team);
        generate(&[&["webhooks", "--namespace-selector", &team], &self.place()[..]].concat()).await
    }

    /// Puts the webhooks of this process in the API server's way.
    async fn install(&self, running: &Running) {
        self.cluster.install_webhooks(&self.webhooks().await, running.webhooks().await.port()).await;
    }

    async fn uninstall(&self) {
        let (admin, now) = (self.cluster.admin(), DeleteParams::default());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(admin.clone());
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(admin);
        validating.delete(&format!("{}-validating", self.namespace), &now).await.unwrap();
        mutating.delete(&format!("{}-mutating", self.namespace), &now).await.unwrap();
    }

    async fn secrets(&self) -> Vec<Secret> {
        let secrets: Api<Secret> = Api::namespaced(self.cluster.admin(), &self.namespace);
        secrets.list(&ListParams::default()).await.unwrap().items
    }
}

// The whole way, with the rights of `generate rbac` and the webhooks of `generate webhooks`.
#[tokio::test]
async fn an_operator_is_ready_when_the_api_server_can_call_it() {
    let home = Home::new().await;
    let mut running = home.start(&[]);
    assert_eq!(running.health("/healthz").await, (200, "ok\n".to_owned()));
    let reason = || async {
        let (status, body) = running.health("/readyz").await;
        assert_eq!(status, 503, "{body}");
        body.contains("is not installed").then_some(body)
    };
    let reason = wait_until("the reason why it is not ready", PATIENCE, reason).await;
    let expected = format!(
        "waiting for the CA to be published in ValidatingWebhookConfiguration {}-validating: it is not installed; see \
         'generate webhooks'\n",
        home.namespace
    );
    assert_eq!(reason, expected);
    assert_eq!(running.health("/elsewhere").await.0, 404);
    running.logged(&format!("not ready yet: {}", reason.trim_end())).await;
    // Nothing is wrong with a first start.
    running.logged("no CA was stored yet; created one").await;
    running.logged("no certificate is stored yet; issuing one").await;

    home.install(&running).await;
    running.ready().await;
    assert_eq!(running.health("/readyz").await, (200, "ok\n".to_owned()));

    let entities = entities(home.cluster.admin(), &home.team);
    // The API server takes up a configuration within a second or two.
    let refused = || async {
        entities.create(&PostParams { dry_run: true, ..Default::default() }, &entity("no", "forbidden")).await.err()
    };
    let error = wait_until("the webhook to be called", PATIENCE, refused).await;
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!((status.code, status.details.as_ref().unwrap().causes[0].field.as_str()), (422, "spec.username"));
    assert!(status.message.ends_with("name may not be 'forbidden'"), "{}", status.message);
    let completed = || async {
        let made =
            entities.create(&PostParams { dry_run: true, ..Default::default() }, &entity("yes", "Mary")).await.unwrap();
        made.data["spec"]["nickname"].as_str().map(str::to_owned)
    };
    assert_eq!(wait_until("the default", PATIENCE, completed).await, "M");
    let (status, metrics) = running.health("/metrics").await;
    assert_eq!(status, 200);
    assert!(metrics.contains(r#"portcullis_admission_requests_total{webhook="/validate/username""#), "{metrics}");
    // The guide has people search the log for these lines.
    running.logged("Webhooks are enabled - webhooks will validate, controllers will skip validation").await;
    running.logged("Starting webhook server").await;
    running.logged("Updated current TLS certificate").await;
    running.logged("Starting certificate watcher").await;
    let serving = running.logged("Serving webhook server").await;
    let address = format!("{}:{}", serving["host"].as_str().unwrap(), serving["port"]);
    assert_eq!(address, running.webhooks().await.to_string());
    let decided = running.logged("validate create").await;
    assert_eq!((&decided["namespace"], &decided["name"]), (&home.team.clone().into(), &"no".into()), "{decided}");

    running.terminate().await;
    assert_eq!(running.ended().await.code(), Some(0), "{}", running.log());
    running.logged("Shutting down webhook server").await;
    assert!(!running.log().contains("PRIVATE KEY"));
}

// A laptop, beside an operator that is installed.
#[tokio::test]
async fn nothing_is_written_while_the_webhooks_are_anothers() {
    let home = Home::new().await;
    home.cluster.apply(&home.webhooks().await).await;
    let elsewhere = home.cluster.namespace("elsewhere").await;
    let kubeconfig = home.cluster.kubeconfig_as("stray", &["system:masters"]);
    let mut config: Value = serde_json::from_slice(&std::fs::read(&kubeconfig).unwrap()).unwrap();
    config["contexts"][0]["context"]["namespace"] = elsewhere.as_str().into();
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let arguments = ["--kubeconfig", kubeconfig, "--release", &home.namespace];
    let mark = home.cluster.audit().mark();
    let mut stray = Running::start(&arguments);
    assert_eq!(stray.ended().await.code(), Some(1), "{}", stray.log());
    let said = stray.last_line().await;
    let whose = format!(
        "{0}-validating calls {0}-webhook.{0}.svc, of another installation, while this one would live in namespace \
         {elsewhere}, which is that of the kubeconfig's context: nothing is written there. Give the --namespace of that \
         installation",
        home.namespace
    );
    assert!(said.contains(&whose), "{said}");
    assert_eq!(home.cluster.audit().writes_by("stray", mark).await, []);

    // Where no other installation has them, that namespace is as good as any.
    home.uninstall().await;
    let alone = Running::start(&arguments);
    alone.logged("no certificate is stored yet; issuing one").await;
}

// D3, and the operator's promise to write nothing that is there.
#[tokio::test]
async fn a_restart_serves_the_same_certificate_and_writes_nothing() {
    let home = Home::new().await;
    let first = home.start(&[]);
    home.install(&first).await;
    first.ready().await;
    let secrets = home.secrets().await;
    first.kill().await;

    let mark = home.cluster.audit().mark();
    let second = home.start(&[]);
    second.ready().await;
    assert_eq!(home.secrets().await, secrets);
    let mut writes = home.cluster.audit().writes_by(&home.user.name, mark).await;
    // A token of its controller's account is asked for, and stored nowhere.
    writes.retain(|write| write.subresource != "token");
    assert_eq!(writes, []);
}

#[tokio::test]
async fn a_start_killed_at_any_moment_is_completed_by_the_next() {
    let home = Home::new().await;
    home.cluster.install_webhooks(&home.webhooks().await, 443).await;
    let (mut ca, mut after) = (None, 0);
    // On a busy machine the first write comes late; some starts more, and the moments lie on both sides of it.
    for step in 0..100 {
        if after == 4 && step >= 8 {
            break;
        }
        let running = home.start(&[]);
        running.health("/healthz").await;
        // The moments at which it dies lie between its first request and its readiness.
        let _ = tokio::time::timeout(Duration::from_millis(10 * step), running.ready()).await;
        running.kill().await;
        let stored = home.secrets().await;
        let found =
            stored.iter().find(|secret| secret.metadata.name.as_deref().is_some_and(|name| name.ends_with("-ca")));
        ca = ca.or_else(|| found.map(|secret| secret.data.clone()));
        assert_eq!(found.map(|secret| secret.data.clone()), ca, "a CA that was made is kept");
        after += usize::from(ca.is_some() && after < 4);
    }
    assert!(ca.is_some(), "every start was killed before its first write");
    let pair = (home.start(&[]), home.start(&[]));
    pair.0.ready().await;
    pair.1.ready().await;
    assert_eq!(home.secrets().await.len(), 2);
}

#[tokio::test]
async fn sigterm_answers_calls_in_flight_and_exits_with_0() {
    let home = Home::new().await;
    let mut running = home.start(&["--think", "1500"]);
    home.install(&running).await;
    running.ready().await;
    let entities = entities(home.cluster.admin(), &home.team);
    let (call, address) = (entity("one", "Mary"), running.webhooks().await);
    let (made, ()) = tokio::join!(
        // A call before the configuration is in force is not judged, so repeat it.
        async {
            wait_until("a call that is judged", PATIENCE, || async {
                let dry = PostParams { dry_run: true, ..Default::default() };
                let made = entities.create(&dry, &call).await;
                running.log().contains("thinking").then_some(made)
            })
            .await
        },
        async {
            running.logged("thinking").await;
            running.terminate().await;
        }
    );
    made.unwrap();
    assert_eq!(running.ended().await.code(), Some(0), "{}", running.log());
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn two_listeners_that_end_do_not_say_the_same_line() {
    let home = Home::new().await;
    let mut running = home.start(&[]);
    let webhooks = running.webhooks().await.to_string();
    running.terminate().await;
    assert_eq!(running.ended().await.code(), Some(0), "{}", running.log());
    running.last_line().await;
    let log = running.log();
    let lines = log.lines().filter(|line| line.contains("listener is drained"));
    let mut drained: Vec<String> = lines
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"]["address"].as_str().unwrap().to_owned())
        .collect();
    drained.sort();
    drained.dedup();
    // That of the webhooks, and that of the probes.
    assert!(drained.len() == 2 && drained.contains(&webhooks), "{log}");
}

#[tokio::test]
async fn sigterm_ends_a_process_that_never_got_ready() {
    let home = Home::new().await;
    let mut waiting = home.start(&[]);
    waiting.webhooks().await;
    waiting.terminate().await;
    assert_eq!(waiting.ended().await.code(), Some(0), "{}", waiting.log());

    // Not even an API server to talk to.
    let nobody = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = std::fs::read_to_string(&home.user.kubeconfig).unwrap();
    std::fs::write(&kubeconfig, text.replace(home.cluster.url(), &format!("https://{}", nobody.local_addr().unwrap())))
        .unwrap();
    let mut hanging = Running::start(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--namespace", "default"]);
    // The endpoint answers a little before it waits for those.
    wait_until("it to wait for certificates", PATIENCE, || async {
        (hanging.health("/readyz").await.1 == "waiting for certificates\n").then_some(())
    })
    .await;
    hanging.terminate().await;
    assert_eq!(hanging.ended().await.code(), Some(0), "{}", hanging.log());
}

// As users of controllers know it: the first asks, the second insists.
#[tokio::test]
async fn a_second_signal_ends_the_process_at_once_with_an_error() {
    let home = Home::new().await;
    let mut running = home.start(&["--drain-delay", "15s"]);
    home.install(&running).await;
    running.ready().await;
    running.terminate().await;
    running.logged("SIGTERM: shutting down").await;
    let asked = Stopwatch::start();
    // One within half a second of the first is one with it.
    wait_until("the second signal", PATIENCE, || async {
        running.terminate().await;
        running.log().contains("once more").then_some(())
    })
    .await;
    assert_eq!(running.ended().await.code(), Some(1), "{}", running.log());
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    let expected = "error: SIGTERM once more: ended at once, with calls and reconciles cut off";
    assert_eq!(running.last_line().await, expected);
}
