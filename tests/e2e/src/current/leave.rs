//! The end of a stay: what was put into the cluster is taken out of it, whichever process has ended by then; what stays
//! is named, with the commands that remove it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::{Guest, LABEL, stored};

/// The label by which `mcp-operator dev` says whose its configurations are.
const OWNER: &str = "portcullis.dev/dev-owner";
/// The longest time in which the namespace, the configurations or a CRD goes.
const GONE: Duration = Duration::from_mins(2);
/// The part of that in which the operator lets its objects go.
const OPERATOR: Duration = Duration::from_mins(1);
/// The time after which a wait is reported.
const SILENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);

/// The commands that remove everything that the demo with this namespace put into a cluster, line by line.
pub(super) fn commands(namespace: &str, crds: &[CustomResourceDefinition]) -> String {
    let kinds = crds.iter().map(ResourceExt::name_any).collect::<Vec<_>>().join(",");
    format!(
        "  kubectl delete validatingwebhookconfigurations,mutatingwebhookconfigurations -l {OWNER}={namespace}\n  \
         kubectl delete namespace {namespace} --ignore-not-found --wait=false\n  \
         kubectl get {kinds} -n {namespace} -o name | xargs -r -n1 kubectl patch -n {namespace} --type merge \
         -p '{{\"metadata\":{{\"finalizers\":null}}}}'\n  \
         kubectl delete crds -l {LABEL}={namespace}   # with every object of these kinds"
    )
}

impl Guest {
    /// Takes everything out of the cluster again that was put into it, the operator last but for the CRDs: objects with
    /// finalizers need it. What fails does not keep the rest from being removed; all that stays is named in the error.
    pub async fn leave(mut self, step: impl Fn(&str)) -> Result<()> {
        let mut stays = Vec::new();
        let mut keep = |what: &str, removed: Result<Result<()>, tokio::time::error::Elapsed>| {
            let removed = removed.context("the cluster does not answer in time").flatten();
            stays.extend(removed.err().map(|error| format!("\n  {what}: {error:#}")));
        };
        if self.namespace_made {
            step(&format!("removing the namespace {} with everything in it", self.namespace));
            let removed = timeout(2 * GONE, self.remove_namespace(&step)).await;
            keep(&format!("the namespace {}", self.namespace), removed);
        }
        if let Some(controllers) = self.controllers.take() {
            step("ending mcp-operator run");
            if let Err(error) = controllers.stop().await {
                step(&format!("it is killed: {error:#}"));
            }
        }
        if let Some(webhooks) = self.webhooks.take() {
            step("ending mcp-operator dev, and taking its webhooks out of the cluster");
            if let Err(error) = webhooks.stop().await {
                step(&format!("it is killed: {error:#}"));
            }
            let removed = timeout(GONE, async {
                self.remove_configurations::<ValidatingWebhookConfiguration>().await?;
                self.remove_configurations::<MutatingWebhookConfiguration>().await
            });
            keep("webhook configurations of mcp-operator dev", removed.await);
        }
        if !self.crds.is_empty() {
            step("removing the CRDs");
        }
        for crd in &self.crds {
            keep(&crd.name_any(), timeout(2 * GONE, self.remove_crd(crd)).await);
        }
        if stays.is_empty() {
            return Ok(());
        }
        bail!(
            "not everything is removed:{}\nRemove it with:\n{}",
            stays.concat(),
            commands(&self.namespace, &self.crds)
        )
    }

    async fn remove_namespace(&mut self, step: impl Fn(&str)) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let name = self.namespace.clone();
        found(api.delete(&name, &DeleteParams::background()).await)?;
        let begun = Instant::now();
        let mut told = false;
        while let Some(namespace) = api.get_opt(&name).await? {
            let runs = self.controllers.as_mut().is_some_and(|controllers| controllers.check_running().is_ok());
            if !runs || begun.elapsed() > OPERATOR {
                let count = self.take_finalizers_off().await?;
                if count > 0 {
                    let why = if runs { "has not done it" } else { "has ended" };
                    step(&format!(
                        "taking the finalizers off {count} objects: the operator, whose work that is, {why}"
                    ));
                }
            }
            ensure!(begun.elapsed() < GONE, "it is not gone after {} s: {}", GONE.as_secs(), remaining(namespace));
            if !told && begun.elapsed() > SILENCE {
                told = true;
                step(&format!("it is not gone yet; waiting for up to {} s", GONE.as_secs()));
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Lets the objects go that are in the demo's own namespace; says how many there were to let go.
    async fn take_finalizers_off(&self) -> Result<usize> {
        let mut count = 0;
        for crd in &self.crds {
            let objects: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &stored(crd)?);
            let Some(listed) = found(objects.list(&ListParams::default()).await)? else { continue };
            for object in listed.iter().filter(|object| !object.finalizers().is_empty()) {
                let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                found(objects.patch(&object.name_any(), &PatchParams::default(), &none).await)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// `mcp-operator dev` does so itself, unless it was killed.
    async fn remove_configurations<K>(&self) -> Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let ours = ListParams::default().labels(&format!("{OWNER}={}", self.namespace));
        for configuration in api.list(&ours).await? {
            found(api.delete(&configuration.name_any(), &DeleteParams::default()).await)?;
        }
        Ok(())
    }

    async fn remove_crd(&self, crd: &CustomResourceDefinition) -> Result<()> {
        let (name, api) = (crd.name_any(), Api::<CustomResourceDefinition>::all(self.client.clone()));
        let there = api.get_opt(&name).await?;
        if there.is_none_or(|there| there.labels().get(LABEL) != Some(&self.namespace)) {
            return Ok(());
        }
        let objects: Api<DynamicObject> = Api::all_with(self.client.clone(), &stored(crd)?);
        let objects = found(objects.list(&ListParams::default()).await)?;
        let namespaces: BTreeSet<_> = objects.iter().flatten().filter_map(ResourceExt::namespace).collect();
        ensure!(namespaces.is_empty(), "there are objects of it, in {namespaces:?}");
        found(api.delete(&name, &DeleteParams::background()).await)?;
        let begun = Instant::now();
        while api.get_metadata_opt(&name).await?.is_some() {
            ensure!(begun.elapsed() < GONE, "it is not gone after {} s", GONE.as_secs());
            sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// The rest in a namespace that is being deleted, as the cluster says it.
fn remaining(namespace: Namespace) -> String {
    let conditions = namespace.status.and_then(|status| status.conditions).unwrap_or_default();
    let holding = conditions.into_iter().filter(|condition| condition.status == "True");
    holding.filter_map(|condition| condition.message).collect::<Vec<_>>().join("; ")
}

/// The answer of the API server; nothing where the object is not there.
fn found<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        answer => answer.map(Some),
    }
}
