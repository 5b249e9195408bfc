//! The ways to make certificates in turn, by upgrades of Helm's own, while objects are judged all the time.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use portcullis_charts::{DYNAMO, Helm, binary, chart};
use portcullis_pki::{Ca, CertificateParams, Usage};
use portcullis_testing::{CertManager, ControlPlane, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use tokio::process::Command;

use super::process::{PATIENCE, Process, arguments};
use super::service::Service;
use super::{DYNAMO_NAME as NAME, DYNAMO_RELEASE as RELEASE};

/// The objects among these that Helm makes as hooks of such events.
fn hook(objects: &[Value], event: &str) -> Vec<Value> {
    let is = |object: &&Value| {
        object["metadata"]["annotations"]["helm.sh/hook"].as_str().is_some_and(|events| events.starts_with(event))
    };
    objects.iter().filter(is).cloned().collect()
}

/// Creates the account of a hook and its rights, and runs the command of its Job with them.
async fn run_hook(cluster: &ControlPlane, hook: &[Value]) -> String {
    let rights: Vec<Value> = hook.iter().filter(|object| object["kind"] != "Job").cloned().collect();
    let account = cluster.user_from_manifests(&rights).await;
    let mut command = Command::new(binary("dynamo-webhooks"));
    command.args(arguments(hook, "Job")).arg("--kubeconfig").arg(&account.kubeconfig);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let [said, logged] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{said}{logged}");
    assert_eq!(logged, "", "there is nothing to warn of");
    said
}

/// The faults of the API server's answers to a bad object and to a good one, which are not stored.
async fn misjudged(cluster: &ControlPlane) -> Result<(), String> {
    let kind = GroupVersionKind::gvk("nvidia.com", "v1alpha1", "DynamoModel");
    let resource = ApiResource::from_gvk_with_plural(&kind, "dynamomodels");
    let models: Api<DynamicObject> = Api::namespaced_with(cluster.admin(), "default", &resource);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let create = async |model: &str| {
        let object = json!({
            "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoModel", "metadata": { "name": "some" },
            "spec": { "modelName": model, "baseModelName": "base" },
        });
        models.create(&dry_run, &serde_json::from_value(object).unwrap()).await
    };
    match create("").await {
        Ok(_) => return Err("a bad object was accepted".to_owned()),
        Err(error) if error.to_string().contains("denied the request: spec.modelName is required") => {}
        Err(error) => return Err(format!("a bad object was refused for another reason: {error}")),
    }
    create("some").await.map(|_| ()).map_err(|error| format!("a good object was refused: {error}"))
}

/// A release, and the process that serves for it.
struct Installed<'a> {
    cluster: &'a ControlPlane,
    helm: Arc<Helm>,
    service: Service,
    folder: TempDir,
    process: Option<Process>,
}

impl<'a> Installed<'a> {
    /// Nothing yet.
    async fn new(cluster: &'a ControlPlane) -> Self {
        let helm = Arc::new(Helm::new().with_kubeconfig(cluster.kubeconfig_path()));
        let (service, folder) = (Service::start().await, tempfile::tempdir().unwrap());
        service.chart(folder.path());
        Self { cluster, helm, service, folder, process: None }
    }

    /// Has Helm install it, or upgrade it, without the hooks.
    async fn apply(&self, values: &Value, flags: &[&str]) {
        let (chart, values) = (self.folder.path().join(DYNAMO).display().to_string(), self.helm.values(values));
        let [name, namespace] = RELEASE;
        let release = ["upgrade", "--install", name, &chart, "--namespace", namespace];
        let values = ["--values", &values, "--reset-values", "--no-hooks"];
        let command: Vec<String> = [&release, &values[..], flags].concat().into_iter().map(str::to_owned).collect();
        let helm = Arc::clone(&self.helm);
        // Objects are judged meanwhile.
        let run = move || helm.run(&command.iter().map(String::as_str).collect::<Vec<_>>());
        tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    }

    /// As 'helm upgrade --wait' does on nodes: one hook, the objects, the new process in place of the old one when it
    /// is ready, the other hook.
    async fn turn(&mut self, values: &Value, flags: &[&str]) {
        let rendered = Helm::new().template(&chart(DYNAMO), RELEASE, values).unwrap();
        let [before, after] = ["pre-", "post-"].map(|event| hook(&rendered, event));
        if !before.is_empty() {
            let said = run_hook(self.cluster, &before).await;
            assert!(said.contains("Secret platform-system/webhook-server-cert: "), "{said}");
        }
        self.apply(values, flags).await;
        let mut process = self.start(values, &rendered).await;
        process.ready().await;
        // An API server has taken up a bundle long before a Pod that is ready becomes an endpoint.
        self.cluster.wait_for_webhooks().await;
        self.service.leads_to(process.webhooks.port());
        if let Some(former) = self.process.replace(process) {
            former.stop().await;
        }
        if !after.is_empty() {
            let said = run_hook(self.cluster, &after).await;
            assert!(
                said.contains("published: ValidatingWebhookConfiguration platform-dynamo-operator-validating"),
                "{said}"
            );
        }
        self.cluster.wait_for_webhooks().await;
    }

    /// Starts a process under the account that Helm has made, when that has its rights.
    async fn start(&self, values: &Value, rendered: &[Value]) -> Process {
        let user = format!("system:serviceaccount:{}:{NAME}", RELEASE[1]);
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{}", RELEASE[1])];
        let secrets: Api<Secret> = Api::namespaced(self.cluster.client_as(&user, &groups), RELEASE[1]);
        let secret = values["webhook"]["certificateSecret"]["name"].as_str().unwrap_or(SECRET);
        wait_until("the operator's account to have its rights", PATIENCE, || async {
            secrets.get_opt(secret).await.ok()
        })
        .await;
        let arguments = arguments(rendered, "Deployment");
        let kubeconfig = self.cluster.kubeconfig_as(&user, &groups);
        let process = Process::start("dynamo-webhooks", RELEASE[1], &arguments, &kubeconfig);
        if self.process.is_none() {
            self.service.leads_to(process.webhooks.port());
        }
        process
    }

    /// The authorities that callers trust.
    async fn trusted(&self) -> Vec<u8> {
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.cluster.admin());
        let configuration = configurations.get(&format!("{NAME}-validating")).await.unwrap();
        let webhooks = configuration.webhooks.unwrap().into_iter();
        let mut bundles: Vec<_> = webhooks.map(|webhook| webhook.client_config.ca_bundle.unwrap().0).collect();
        bundles.dedup();
        assert_eq!(bundles.len(), 1, "each webhook has the same");
        bundles.remove(0)
    }

    async fn stored_ca(&self) -> Vec<u8> {
        let secrets: Api<Secret> = Api::namespaced(self.cluster.admin(), RELEASE[1]);
        secrets.get(SECRET).await.unwrap().data.unwrap()["ca.crt"].0.clone()
    }
}

/// The Secret of hooks.
const SECRET: &str = "webhook-server-cert";

/// Values for a certificate of the user's own, under these authorities.
fn external(authorities: &[u8]) -> Value {
    json!({ "webhook": {
        "certificateSecret": { "name": "ours", "external": true },
        "caBundle": ByteString(authorities.to_vec()),
    } })
}

/// Stores a certificate of the user's own, and returns its authority.
async fn store_own_certificate(cluster: &ControlPlane) -> Vec<u8> {
    let (now, hour) = (Timestamp::now(), SignedDuration::from_hours(1));
    let ca = Ca::generate("our own", now - hour, now + hour * 3000).unwrap();
    let pair = CertificateParams {
        common_name: "webhook",
        organizations: &[],
        dns_names: &[format!("{NAME}-webhook-service.{}.svc", RELEASE[1])],
        ip_addresses: &[],
        not_before: now - hour,
        not_after: now + hour * 2000,
        usage: Usage::Server,
    };
    let pair = ca.issue(&pair).unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": "ours", "namespace": RELEASE[1] },
        "stringData": { "tls.crt": pair.cert_pem, "tls.key": pair.key_pem, "ca.crt": ca.cert_pem() },
    });
    cluster.apply(&[secret]).await;
    ca.cert_pem().as_bytes().to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switching_certificate_sources_costs_no_admission() {
    let (cluster, _) = (ControlPlane::shared().await, CertManager::shared().await);
    cluster.apply(&[json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": RELEASE[1] } })]).await;
    let hooks = json!({});
    let mut installed = Installed::new(cluster).await;
    installed.turn(&hooks, &[]).await;
    wait_until("the webhooks to be called", PATIENCE, || async { misjudged(cluster).await.ok() }).await;

    let judged = &AtomicUsize::new(0);
    let writer = async {
        loop {
            misjudged(cluster).await.unwrap();
            judged.fetch_add(1, Ordering::Relaxed);
        }
    };
    let go_on = async || {
        let before = judged.load(Ordering::Relaxed);
        let later = || async { (judged.load(Ordering::Relaxed) > before + 1).then_some(()) };
        wait_until("objects to be judged after the upgrade", PATIENCE, later).await;
    };
    let turns = async {
        let cert_manager = json!({ "webhook": {
            "certManager": { "enabled": true }, "certificateSecret": { "name": "by-cert-manager" },
        } });
        installed.turn(&cert_manager, &[]).await;
        go_on().await;
        installed.turn(&hooks, &[]).await;
        assert_eq!(installed.trusted().await, installed.stored_ca().await);
        go_on().await;

        // The bundle that hooks have published is theirs until Helm takes it over (`--take-ownership`). Both CAs are
        // trusted while Pods of both run.
        let ours = store_own_certificate(cluster).await;
        let both = external(&[installed.trusted().await, ours.clone()].concat());
        installed.turn(&both, &["--force-conflicts"]).await;
        go_on().await;
        installed.apply(&external(&ours), &[]).await;
        cluster.wait_for_webhooks().await;
        assert_eq!(installed.trusted().await, ours);
        go_on().await;
        // Helm takes its bundle out; what the hook has made of it before stays.
        installed.turn(&hooks, &[]).await;
        assert_eq!(installed.trusted().await, installed.stored_ca().await);
        go_on().await;

        for values in [&json!({ "webhook": { "rotation": "operator" } }), &hooks, &hooks] {
            installed.turn(values, &[]).await;
            go_on().await;
        }
    };
    tokio::select! {
        () = turns => {}
        () = writer => {}
    }
}
