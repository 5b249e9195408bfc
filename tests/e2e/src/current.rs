//! The demo as a guest in the cluster of the kubeconfig: the operator serves from this machine, and everything that was put into the cluster is taken
//! out of it again.

mod leave;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::gate::in_namespace;
use crate::process::{Process, binary};
use crate::stage::{LOOPBACK, generate, settled};

/// Refused by the webhooks.
const REFUSED: &str = include_str!("../../../examples/refused/by-webhook.yaml");
/// On everything that is put into the cluster, with the namespace of the demo whose it is.
const LABEL: &str = "portcullis.dev/demo";
/// The last words of `mcp-operator dev` when it serves.
const SERVING: &str = "removed from the cluster again";
/// The longest time in which the cluster says who it is.
const ANSWER: Duration = Duration::from_secs(10);

/// A stay in a cluster.
pub struct Guest {
    /// A client for it.
    pub client: Client,
    /// The namespace that was made for this stay.
    pub namespace: String,
    /// The cluster, and its address.
    found: String,
    folder: TempDir,
    namespace_made: bool,
    crds: Vec<CustomResourceDefinition>,
    webhooks: Option<Process>,
    controllers: Option<Process>,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest")
            .field("namespace", &self.namespace)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Guest {
    /// Looks at the cluster of the kubeconfig, and changes nothing yet.
    pub async fn look() -> Result<Self> {
        let config = Config::infer().await.map_err(|error| {
            // Its source is what is wrong with the kubeconfig; that this is no Pod either goes without saying.
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            anyhow!("no cluster is configured: {source}; set KUBECONFIG, or run 'make demo', which needs no cluster")
        })?;
        let url = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|error| anyhow!("cannot call {url}: {}", innermost(&error)))?;
        let answer = tokio::time::timeout(ANSWER, client.apiserver_version()).await;
        let problem = match answer {
            Ok(Ok(version)) => return Self::at(client, format!("Kubernetes {} at {url}", version.git_version)),
            Ok(Err(error)) => innermost(&error),
            Err(_) => format!("no answer within {} s", ANSWER.as_secs()),
        };
        bail!(
            "the cluster of your kubeconfig does not answer at {url}: {problem}; start it, or set KUBECONFIG to that of \
             another ('kubectl version' tries the same)"
        )
    }

    fn at(client: Client, found: String) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("portcullis-demo-").tempdir()?;
        let unique: String = folder.path().to_string_lossy().chars().rev().take(6).collect();
        let namespace = format!("portcullis-demo-{}", unique.to_lowercase());
        Ok(Self {
            client,
            namespace,
            found,
            folder,
            namespace_made: false,
            crds: Vec::new(),
            webhooks: None,
            controllers: None,
        })
    }

    /// Logs and files of this run.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Makes itself at home: a namespace, the CRDs, and the operator's webhooks and controllers served from here. Calls `step` before each step with
    /// what it does. However it ends, [`leave`](Self::leave) puts the cluster in order.
    pub async fn settle(&mut self, step: impl Fn(&str)) -> Result<()> {
        let program = binary("mcp-operator")?;
        step(&format!("using the cluster of your kubeconfig ({}), as a guest", self.found));
        let crds = generate(&program, &["crds"]).await?;
        let crds =
            crds.into_iter().map(serde_json::from_value).collect::<Result<Vec<CustomResourceDefinition>, _>>()?;
        self.refuse_if_there(&crds).await?;

        step(&format!("making the namespace {}; everything that follows is in it, but for the CRDs", self.namespace));
        let namespace = json!({ "metadata": { "name": self.namespace, "labels": { LABEL: self.namespace } } });
        let namespace: Namespace = serde_json::from_value(namespace)?;
        self.namespace_made = true;
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await?;

        step("installing the CRDs: mcp-operator generate crds");
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for mut crd in crds {
            crd.labels_mut().insert(LABEL.to_owned(), self.namespace.clone());
            // A demo that is ended now does not know whether it is there.
            self.crds.push(crd.clone());
            api.create(&PostParams::default(), &crd)
                .await
                .with_context(|| format!("cannot install {}", crd.name_any()))?;
        }
        for crd in &self.crds {
            settled(&format!("{} to be served", crd.name_any()), async || Ok(self.objects(crd).await.ok())).await?;
        }

        step("serving the operator's webhooks from this machine: mcp-operator dev");
        let home: [&str; 4] = ["--namespace", &self.namespace, "--allow-endpoint-cidr", LOOPBACK];
        let mut command = Command::new(&program);
        command
            .args(["dev", "--port", "0", "--owner", &self.namespace, "--only-namespace", &self.namespace])
            .args(home);
        // Kept at once: a demo that is ended now has it ended in order, and not killed.
        let webhooks = self.webhooks.insert(Process::start("mcp-operator-dev", self.folder.path(), command)?);
        settled("mcp-operator dev to serve", async || {
            webhooks.check_running()?;
            Ok(webhooks.output().contains(SERVING).then_some(()))
        })
        .await?;

        step("running its controllers here too, with your rights: mcp-operator run --webhooks off --leader-elect off");
        let mut command = Command::new(&program);
        command.args(["run", "--webhooks", "off", "--leader-elect", "off", "--health-bind", "127.0.0.1:0"]);
        command.args(["--watch-namespace", &self.namespace]).args(home);
        self.controllers = Some(Process::start("mcp-operator-run", self.folder.path(), command)?);

        step("waiting for the cluster to call the webhooks");
        let mut refused = in_namespace(REFUSED, &self.namespace)?.remove(0);
        let resource = self.resource("MCPWebhookConfig", &refused)?;
        refused["metadata"]["name"] = json!("canary");
        let canary: DynamicObject = serde_json::from_value(refused)?;
        let configs: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        settled("an object that is to be refused to be refused", async || {
            self.controllers.as_mut().map_or(Ok(()), Process::check_running)?;
            Ok(configs.create(&dry_run, &canary).await.is_err().then_some(()))
        })
        .await
    }

    /// The resource of an object of this kind.
    fn resource(&self, kind: &str, object: &Value) -> Result<ApiResource> {
        let crd =
            self.crds.iter().find(|crd| crd.spec.names.kind == kind).with_context(|| format!("no CRD of {kind}"))?;
        let version = object["apiVersion"].as_str().and_then(|version| version.rsplit('/').next()).unwrap_or_default();
        let kind = GroupVersionKind::gvk(&crd.spec.group, version, kind);
        Ok(ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural))
    }

    /// Fails when the kinds are in the cluster already: whose they are, theirs is the operator, and the objects.
    async fn refuse_if_there(&self, crds: &[CustomResourceDefinition]) -> Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for crd in crds {
            let name = crd.name_any();
            let Some(there) =
                api.get_opt(&name).await.context("cannot read CRDs; the demo needs an administrator's rights")?
            else {
                continue;
            };
            if let Some(demo) = there.labels().get(LABEL) {
                bail!(
                    "a demo that was killed left {name} in this cluster, or one runs there now; where none does, remove what is left \
                     with:\n{}",
                    leave::commands(demo, crds)
                );
            }
            bail!(
                "the cluster has {name} already: an operator that lives there would act on the demo's objects, and the demo's on others'"
            );
        }
        Ok(())
    }

    /// Counts the objects of a kind, up to one.
    async fn objects(&self, crd: &CustomResourceDefinition) -> Result<usize> {
        let objects: Api<DynamicObject> = Api::all_with(self.client.clone(), &stored(crd)?);
        Ok(objects.list(&ListParams::default().limit(1)).await?.items.len())
    }
}

/// The resource in the version that is stored.
fn stored(crd: &CustomResourceDefinition) -> Result<ApiResource> {
    let version = crd.spec.versions.iter().find(|version| version.storage).context("a CRD stores a version")?;
    let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
    Ok(ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural))
}

/// The innermost error: each layer above repeats it in its own sentence.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
