//! An operator's place in the cluster: a namespace, a user with the operator's generated rights, its Secrets and
//! configuration.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use portcullis::certificates::{Automatic, Bundle, Configurations, ServingCertificate};
use portcullis::operator::{Components, Operator};
use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
use portcullis_testing::{ControlPlane, Grant, Mark, User, wait_until};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Nothing in these tests takes longer on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) struct Place {
    pub(crate) cluster: &'static ControlPlane,
    /// The owner of the cluster.
    pub(crate) admin: Client,
    /// Namespace and name of the operator.
    pub(crate) name: String,
    pub(crate) user: User,
}

impl Place {
    pub(crate) async fn new() -> Self {
        let cluster = ControlPlane::shared().await;
        let name = cluster.namespace("certs").await;
        let allow = |_: Arc<ConfigMap>, _: Context| async { Verdict::allow() };
        let webhooks = Webhooks::new().validate(Validate::<ConfigMap>::new("any").on_create(allow));
        // An operator's name is a constant of its binary.
        let operator = Operator::new(name.clone().leak());
        let parts = Components::new(webhooks.clone());
        let access = operator.rights(&operator.installation(&name).unwrap(), &parts).unwrap();
        let grants =
            [Grant::ClusterRules(&access.cluster), Grant::Rules { namespace: &name, rules: &access.own_namespace }];
        let user = cluster.user_with(&name, &grants).await;
        Self { cluster, admin: cluster.admin(), name, user }
    }

    /// One who may do with the configurations what the operator may, and does not see the Secrets.
    pub(crate) async fn blind_user(&self) -> User {
        let rule = PolicyRule {
            api_groups: Some(vec!["admissionregistration.k8s.io".to_owned()]),
            resources: Some(vec!["validatingwebhookconfigurations".to_owned()]),
            verbs: ["get", "list", "watch", "patch", "update"].map(str::to_owned).to_vec(),
            ..PolicyRule::default()
        };
        self.cluster.user_with(&format!("{}-blind", self.name), &[Grant::ClusterRules(&[rule])]).await
    }

    pub(crate) fn source(&self) -> Automatic {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        Automatic::new(self.user.client.clone(), &*self.name, self.secret(), vec![self.server_name()], provider)
    }

    /// The same in a hurry: no time here is longer than it takes to see that it is kept.
    pub(crate) fn quick_source(&self) -> Automatic {
        let mut source = self.source().publish_to(self.configurations(&["a"]));
        source.timing.settle = Duration::from_millis(100);
        source.timing.drain = Duration::from_millis(200);
        source
    }

    pub(crate) fn server_name(&self) -> String {
        format!("webhook.{}.svc", self.name)
    }

    pub(crate) fn secret(&self) -> String {
        format!("{}-webhook-tls", self.name)
    }

    pub(crate) fn ca_secret(&self) -> String {
        format!("{}-ca", self.secret())
    }

    pub(crate) async fn read(&self, secret: &str) -> Option<Secret> {
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), &self.name);
        secrets.get_opt(secret).await.unwrap()
    }

    /// Reads the stored pair and bundle.
    pub(crate) async fn stored(&self) -> Option<ServingCertificate> {
        let data = self.read(&self.secret()).await?.data?;
        let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
        Some(ServingCertificate { cert_pem: text("tls.crt")?, key_pem: text("tls.key")?, ca_pem: text("ca.crt")? })
    }

    pub(crate) async fn delete(&self, secret: &str) {
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), &self.name);
        secrets.delete(secret, &DeleteParams::default()).await.unwrap();
    }

    /// Puts these values into the Secret, as another client.
    pub(crate) async fn overwrite(&self, secret: &str, data: &[(&str, &str)]) {
        let data: BTreeMap<_, _> =
            data.iter().map(|(key, text)| (*key, ByteString(text.as_bytes().to_vec()))).collect();
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), &self.name);
        let patch = Patch::Merge(json!({ "data": data }));
        secrets.patch(secret, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn writes(&self, mark: Mark) -> usize {
        self.cluster.audit().writes_by(&self.user.name, mark).await.len()
    }

    // The validating configuration.

    pub(crate) fn configuration(&self) -> String {
        format!("{}-validating", self.name)
    }

    /// The operator's configuration with these webhooks.
    pub(crate) fn configurations(&self, webhooks: &[&str]) -> Configurations {
        let names = webhooks.iter().map(|webhook| full(webhook)).collect();
        Configurations { validating: Some((self.configuration(), names)), mutating: None, crds: Vec::new() }
    }

    pub(crate) fn configuration_api(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.admin.clone())
    }

    /// Applies the configuration with these webhooks, in this order, without a bundle: what Helm and GitOps do.
    pub(crate) async fn install(&self, webhooks: &[&str]) {
        let manifest = self.manifest(webhooks);
        let params = PatchParams::apply("installer");
        self.configuration_api().patch(&self.configuration(), &params, &Patch::Apply(manifest)).await.unwrap();
    }

    pub(crate) fn manifest(&self, webhooks: &[&str]) -> Value {
        let entry = |webhook: &&str| {
            json!({
                "name": full(webhook), "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
                "clientConfig": { "service": { "name": "webhook", "namespace": self.name, "path": "/", "port": 443 } },
                // Nothing of that kind exists: the API server never calls.
                "rules": [{ "apiGroups": ["none.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nones"] }],
            })
        };
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": self.configuration() },
            "webhooks": webhooks.iter().map(entry).collect::<Vec<_>>(),
        })
    }

    /// Short name and bundle of each webhook, in order.
    pub(crate) async fn bundles(&self) -> Vec<(String, Option<String>)> {
        let configuration = self.configuration_api().get(&self.configuration()).await.unwrap();
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let webhooks = configuration.webhooks.into_iter().flatten();
        webhooks
            .map(|webhook| {
                let bundle = webhook.client_config.ca_bundle.map(|bundle| String::from_utf8(bundle.0).unwrap());
                (short(&webhook.name), bundle)
            })
            .collect()
    }

    pub(crate) async fn wait_for_bundles(&self, what: &str, wanted: &[(&str, Option<&str>)]) {
        let wanted: Vec<_> = wanted.iter().map(|(name, pem)| ((*name).to_owned(), pem.map(str::to_owned))).collect();
        let right = || async { (self.bundles().await == wanted).then_some(()) };
        wait_until(what, PATIENCE, right).await;
    }

    /// Looks after the configuration as the operator's user. Ends with the test.
    pub(crate) fn publish(&self, ca_pem: &str, webhooks: &[&str]) -> Publisher {
        let bundle = Bundle::new(&self.name, ca_pem).with_services([self.server_name()]);
        Publisher::start(&self.user, bundle, self.configurations(webhooks))
    }
}

pub(crate) struct Publisher {
    pub(crate) bundle: Bundle,
    pub(crate) configurations: Configurations,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Publisher {
    pub(crate) fn start(user: &User, bundle: Bundle, configurations: Configurations) -> Self {
        let stop = CancellationToken::new();
        let task = {
            let (bundle, client, stop) = (bundle.clone(), user.client.clone(), stop.clone());
            let configurations = configurations.clone();
            tokio::spawn(async move { Box::pin(bundle.maintain(&client, &configurations, &stop)).await })
        };
        Self { bundle, configurations, stop, task }
    }

    pub(crate) async fn published(&self) {
        tokio::time::timeout(PATIENCE, self.bundle.wait_until_published(&self.configurations, |_| {})).await.unwrap();
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap();
    }
}

/// Waits until the last thing that was said ends with these words.
pub(crate) async fn heard(said: &Mutex<Vec<String>>, words: &str) {
    let last = || async { said.lock().unwrap().last().is_some_and(|last| last.ends_with(words)).then_some(()) };
    wait_until(words, PATIENCE, last).await;
}

fn full(webhook: &str) -> String {
    format!("{webhook}.configmaps.core")
}
