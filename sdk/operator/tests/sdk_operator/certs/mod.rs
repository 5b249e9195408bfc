//! The `certs` command, as a process against a real API server.

mod commands;
mod hooks;
mod provided;

use std::collections::BTreeMap;
use std::process::Output;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use portcullis_testing::ControlPlane;
use serde_json::{Value, json};

use crate::operator_cli::process;

/// An installation that is named after its namespace.
struct Installation {
    cluster: &'static ControlPlane,
    example: &'static str,
    name: String,
    kubeconfig: String,
}

impl Installation {
    async fn new() -> Self {
        Self::of("controller").await
    }

    /// One of this example.
    async fn of(example: &'static str) -> Self {
        let cluster = ControlPlane::shared().await;
        let name = cluster.namespace("certs").await;
        let kubeconfig = cluster.kubeconfig_path().display().to_string();
        Self { cluster, example, name, kubeconfig }
    }

    async fn certs(&self, arguments: &[&str]) -> Output {
        let place = ["--kubeconfig", &self.kubeconfig, "--namespace", &self.name, "--release", &self.name];
        process::output_of(self.example, &[&["certs"], arguments, &place].concat()).await
    }

    /// Returns the output of a command that succeeds.
    async fn says(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.certs(arguments).await;
        assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    /// Why it fails.
    async fn fails(&self, arguments: &[&str]) -> String {
        let Output { status, stderr, .. } = self.certs(arguments).await;
        let stderr = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{arguments:?}: {stderr}");
        stderr
    }

    async fn shown(&self, arguments: &[&str]) -> Value {
        let Output { status, stdout, stderr } = self.certs(&[&["show", "--output", "json"], arguments].concat()).await;
        let shown: Value = serde_json::from_slice(&stdout).unwrap();
        let sound = shown.get("problems").is_none()
            && shown["published"].as_array().unwrap().iter().all(|entry| entry.get("problem").is_none());
        let code = i32::from(!sound);
        assert_eq!(status.code(), Some(code), "{shown:#}{}", String::from_utf8_lossy(&stderr));
        shown
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.cluster.admin(), &self.name)
    }

    /// The values of one of its Secrets.
    async fn secret(&self, suffix: &str) -> BTreeMap<String, ByteString> {
        self.secrets().get(&format!("{}-webhook-tls{suffix}", self.name)).await.unwrap().data.unwrap()
    }

    /// Fills the Secret, as its owner.
    async fn fill(&self, data: &[(&str, &str)]) {
        let name = format!("{}-webhook-tls", self.name);
        let data: BTreeMap<_, _> = data.iter().map(|(k, text)| (*k, ByteString(text.as_bytes().to_vec()))).collect();
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": data });
        self.secrets().patch(&name, &PatchParams::apply("owner").force(), &Patch::Apply(secret)).await.unwrap();
    }

    /// Applies what `generate` prints. Its webhooks are called for no namespace, because no process serves them.
    async fn install(&self, arguments: &[&str]) {
        let selector: &[&str] =
            if arguments.contains(&"webhooks") { &["--namespace-selector", "nobody=here"] } else { &[] };
        let place = [&["--namespace", &self.name, "--release", &self.name], selector].concat();
        let output = process::output_of(self.example, &[&["generate"], arguments, &place].concat()).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let manifests: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
        self.cluster.apply(&manifests).await;
    }

    /// The bundles of the validating configuration.
    async fn bundles(&self) -> Vec<Option<String>> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.cluster.admin());
        let configuration = api.get(&format!("{}-validating", self.name)).await.unwrap();
        let text = |bundle: ByteString| String::from_utf8(bundle.0).unwrap();
        configuration.webhooks.unwrap().into_iter().map(|webhook| webhook.client_config.ca_bundle.map(text)).collect()
    }
}
