//! The controller of MCPServers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ConfigMap, Pod, Secret},
};
use kube::{Api, Client, ResourceExt as _, api::PropagationPolicy};
use mcp_api::v1beta1::{MCPServer, Phase};
use portcullis::controller::{Applied, Cleanup, ControllerError, Key, Leaving, Next, Pass, apply::refusal};
use tokio::time::Instant;

use super::{
    Stores,
    failure::{self, Trouble},
};
use crate::plan::{Child, ChildKind, ChildRef, Plan, ServerInputs, Settings, digest, plan_server, references};

/// A proxy that was just made has no pods yet. They wake its server; until then, for at most this long, nothing is said:
/// one status instead of two.
const SETTLE: Duration = Duration::from_secs(3);
/// Deadline of reading a referenced Secret or ConfigMap.
const READ_DEADLINE: Duration = Duration::from_secs(15);

/// Keeps the children and the status of MCPServers.
pub(super) struct ServerController {
    client: Client,
    stores: Arc<Stores>,
    settings: Settings,
    /// Servers whose status waits for their first pods, and until when.
    settling: Mutex<HashMap<Key, Instant>>,
}

/// What was done about the children.
#[derive(Default)]
struct Children {
    writes: usize,
    /// The first child that could not be written, and why.
    failed: Option<ControllerError>,
    /// What else keeps a child from being written.
    trouble: Option<Trouble>,
}

// === impl ServerController ===

impl ServerController {
    pub(super) fn new(client: Client, stores: Arc<Stores>, settings: Settings) -> Self {
        Self { stores, settings, settling: Mutex::default(), client }
    }

    /// Makes a server what its plan says.
    pub(super) async fn reconcile(&self, pass: Pass<MCPServer>) -> Result<Next, ControllerError> {
        let (key, server) = (&pass.key, &*pass.object);
        let mut plan = self.plan(server).await?;
        let mut done = Children::default();
        self.remove(&pass, &plan.absent, &mut done).await;
        if done.failed.is_none() {
            self.apply(&pass, &plan.children, &mut done).await?;
        }
        if let Some(trouble) = done.trouble() {
            // What is being deleted is gone in a moment, unless somebody's finalizer holds it.
            if matches!(trouble, Trouble::Waits(_))
                && let Some(rest) = self.settle(key, true)
            {
                return Ok(Next::After(rest));
            }
            failure::tell(&mut plan, server, &trouble);
        } else if plan.status.phase == Some(Phase::Pending)
            && self.stores.pods.find(&key.namespace, &key.name).is_empty()
            && let Some(rest) = self.settle(key, done.writes > 0)
        {
            return Ok(Next::After(rest));
        }
        self.settled(key);
        if pass.status(&plan.status).await? {
            pass.publish(&plan.events).await;
        }
        done.failed.map_or(Ok(Next::Wait), Err)
    }

    /// Deletes the children of a server that is being deleted. What that leaves is the garbage collector's.
    pub(super) async fn clean_up(&self, leaving: Leaving<MCPServer>) -> Result<Cleanup, ControllerError> {
        self.settled(&leaving.key);
        if let Ok(pass) = leaving.pass {
            let plan = self.plan(&pass.object).await?;
            self.remove(&pass, &plan.absent, &mut Children::default()).await;
        }
        Ok(Cleanup::Done)
    }

    async fn plan(&self, server: &MCPServer) -> Result<Plan, ControllerError> {
        let (namespace, name) = (server.namespace().unwrap_or_default(), server.name_any());
        let reference = server.spec.webhook_config_ref.as_ref();
        let config = reference.and_then(|reference| self.stores.configs.get(&namespace, &reference.name));
        let webhook_config = config.as_ref().and_then(|config| config.object.as_deref().ok());
        let references = references(server, webhook_config);
        let secrets = self.secrets(&namespace, &references.secrets).await?;
        let config_maps = self.config_maps(&namespace, &references.config_maps).await?;
        // Another's object of that name says nothing about this server.
        let owner = server.uid().unwrap_or_default();
        let own = |kind| {
            let found = self.stores.children(kind).get(&namespace, &name);
            found.filter(|trace| refusal(&trace.live, &owner).is_none())
        };
        let deployment = own(ChildKind::Deployment).map(|trace| trace.deployment());
        let stateful_set = own(ChildKind::StatefulSet);
        let stateful_set = stateful_set.map(|_| StatefulSet::default());
        let pods = self.stores.pods.find(&namespace, &name);
        let pods: Vec<&Pod> = pods.iter().map(|trace| &trace.pod).collect();
        Ok(plan_server(&ServerInputs {
            server,
            webhook_config,
            secrets: &secrets,
            config_maps: &config_maps,
            deployment: deployment.as_ref(),
            stateful_set: stateful_set.as_ref(),
            pods: &pods,
            settings: &self.settings,
            now: jiff::Timestamp::now(),
        }))
    }

    async fn apply(
        &self,
        pass: &Pass<MCPServer>,
        children: &[Child],
        done: &mut Children,
    ) -> Result<(), ControllerError> {
        for Child { reference: ChildRef { kind, name }, object } in children {
            match pass.apply_dynamic(&kind.api_resource(), object.clone()).await {
                Ok(Applied::Kept) => {}
                Ok(Applied::Written) => done.writes += 1,
                // What comes after one that cannot be written may rely on it: a proxy must not start with no RunConfig,
                // nor with one that is about to go and lacks the guard that the proxy is said to have.
                Ok(Applied::Waits) => {
                    done.trouble = Some(Trouble::Waits(format!("{kind:?} {name}")));
                    return Ok(());
                }
                Err(ControllerError::NameTaken { refusal, .. }) => {
                    done.trouble = Some(Trouble::NameTaken(format!("{kind:?} {name}: {refusal}")));
                    return Ok(());
                }
                Err(error @ ControllerError::Child(_)) => {
                    done.failed = Some(error);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Deletes those of `absent` that exist and are this server's.
    async fn remove(&self, pass: &Pass<MCPServer>, absent: &[ChildRef], done: &mut Children) {
        for ChildRef { kind, name } in absent {
            // A Deployment stays until its pods are gone: the one that follows must not serve beside them.
            let propagation = match kind {
                ChildKind::Deployment => PropagationPolicy::Foreground,
                _ => PropagationPolicy::Background,
            };
            match pass.delete_dynamic(&kind.api_resource(), name, propagation).await {
                Ok(deleted) => done.writes += usize::from(deleted),
                Err(error) => _ = done.failed.get_or_insert(error),
            }
        }
    }

    /// Per Secret that exists: its keys and the digests of their values. The values themselves are dropped at once.
    async fn secrets(
        &self,
        namespace: &str,
        names: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, BTreeMap<String, String>>, ControllerError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let mut found = BTreeMap::new();
        for name in names {
            let Some(trace) = self.stores.secrets.get(namespace, name) else { continue };
            let content = trace.content.get_or_try_init(|| async {
                let secret = read("Secret", namespace, name, api.get_opt(name)).await?;
                let data = secret.map(|secret| secret.data.unwrap_or_default());
                Ok::<_, ControllerError>(
                    data.map(|data| data.into_iter().map(|(key, value)| (key, digest(&value.0))).collect()),
                )
            });
            if let Some(content) = content.await? {
                found.insert(name.clone(), content.clone());
            }
        }
        Ok(found)
    }

    /// Per ConfigMap that exists: its data.
    async fn config_maps(
        &self,
        namespace: &str,
        names: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, BTreeMap<String, String>>, ControllerError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let mut found = BTreeMap::new();
        for name in names {
            let Some(trace) = self.stores.children(ChildKind::ConfigMap).get(namespace, name) else { continue };
            let content = trace.content.get_or_try_init(|| async {
                let map = read("ConfigMap", namespace, name, api.get_opt(name)).await?;
                Ok::<_, ControllerError>(map.map(|map| map.data.unwrap_or_default()))
            });
            if let Some(content) = content.await? {
                found.insert(name.clone(), content.clone());
            }
        }
        Ok(found)
    }

    /// How much longer to wait for the first pods of `key`, if at all. Writing children begins a wait.
    fn settle(&self, key: &Key, written: bool) -> Option<Duration> {
        let mut settling = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let until = match settling.get(key) {
            Some(until) => *until,
            None if written => *settling.entry(key.clone()).or_insert(now + SETTLE),
            None => return None,
        };
        Some(until.saturating_duration_since(now)).filter(|rest| !rest.is_zero())
    }

    fn settled(&self, key: &Key) {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

// === impl Children ===

impl Children {
    /// What the server's author has to know, if anything.
    fn trouble(&mut self) -> Option<Trouble> {
        self.trouble.take().or_else(|| self.failed.as_ref().map(|error| Trouble::Failed(error.to_string())))
    }
}

async fn read<T>(
    kind: &str,
    namespace: &str,
    name: &str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ControllerError> {
    let object = || format!("{kind} {namespace}/{name}");
    match tokio::time::timeout(READ_DEADLINE, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(ControllerError::Request { verb: "read", object: object(), source: Box::new(source) }),
        Err(_) => Err(ControllerError::Deadline { verb: "read", object: object(), seconds: READ_DEADLINE.as_secs() }),
    }
}
