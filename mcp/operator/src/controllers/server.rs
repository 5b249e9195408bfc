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
use kube::{Api, Client, ResourceExt as _};
use mcp_api::v1beta1::{MCPServer, Phase};
use tokio::time::Instant;

use super::{
    Custom, ReconcileError, Stores, Trace,
    custom::Writer,
    events::Events,
    failure::{self, Trouble},
};
use crate::{
    apply::{Applier, ChildKind, Decision, DeleteOutcome, Desired, decide, names, refusal},
    plan::{
        Child, ChildRef, Finalizer, Plan, ServerInputs, Settings, digest, names::SERVER_FINALIZER, plan_server,
        references,
    },
    work::{Key, Next},
};

/// A proxy that was just made has no pods yet. They wake its server; until then, for at most this long, nothing is said:
/// one status instead of two.
const SETTLE: Duration = Duration::from_secs(3);
/// Deadline of reading a referenced Secret or ConfigMap.
const READ_DEADLINE: Duration = Duration::from_secs(15);

/// Keeps the children, the status and the finalizer of MCPServers.
pub(super) struct ServerController {
    client: Client,
    stores: Arc<Stores>,
    settings: Settings,
    applier: Applier,
    writer: Writer<MCPServer>,
    events: Events,
    /// Servers whose status waits for their first pods, and until when.
    settling: Mutex<HashMap<Key, Instant>>,
}

/// What a pass over the children did.
#[derive(Default)]
struct Pass {
    writes: usize,
    /// The first child that could not be written, and why.
    failed: Option<ReconcileError>,
    /// What else keeps a child from being written.
    trouble: Option<Trouble>,
}

// === impl ServerController ===

impl ServerController {
    pub(super) fn new(client: Client, stores: Arc<Stores>, settings: Settings) -> Self {
        Self {
            stores,
            settings,
            applier: Applier::new(client.clone(), names::SERVER_CHILDREN),
            writer: Writer::new(client.clone(), names::SERVER_STATUS, Custom::server),
            events: Events::new(client.clone(), "mcpserver-controller"),
            settling: Mutex::default(),
            client,
        }
    }

    pub(super) async fn reconcile(&self, key: Key) -> Result<Next, ReconcileError> {
        let Some(live) = self.stores.servers.get(&key.namespace, &key.name) else {
            self.settled(&key);
            return Ok(Next::Wait);
        };
        let server = match &live.object {
            Ok(server) => server,
            Err(error) => {
                tracing::warn!(namespace = key.namespace, name = key.name, error, "MCPServer does not decode");
                if live.deleting {
                    self.finalizer(&live, Finalizer::Remove).await?;
                }
                return Ok(Next::Wait);
            }
        };
        let mut plan = self.plan(server).await?;
        let mut pass = Pass::default();
        self.remove(server, &plan.absent, &mut pass).await;
        if pass.failed.is_none() {
            self.apply(server, &plan.children, &mut pass).await?;
        }
        if plan.finalizer == Finalizer::Remove {
            // Nobody reads the status of what is about to be gone. A failed removal is left to garbage collection.
            self.finalizer(&live, plan.finalizer).await?;
            return Ok(Next::Wait);
        }
        self.finalizer(&live, plan.finalizer).await?;
        if let Some(trouble) = pass.trouble() {
            // What is being deleted is gone in a moment, unless somebody's finalizer holds it.
            if matches!(trouble, Trouble::Waits(_))
                && let Some(rest) = self.settle(&key, true)
            {
                return Ok(Next::After(rest));
            }
            failure::tell(&mut plan, server, &trouble);
        } else if plan.status.phase == Some(Phase::Pending)
            && self.stores.pods.find(&key.namespace, &key.name).is_empty()
            && let Some(rest) = self.settle(&key, pass.writes > 0)
        {
            return Ok(Next::After(rest));
        }
        self.settled(&key);
        if let Some(written) = self.writer.status(&live, server, &plan.status).await? {
            self.stores.servers.written(written);
            self.events.publish(server, &plan.events).await;
        }
        pass.failed.map_or(Ok(Next::Wait), Err)
    }

    async fn plan(&self, server: &MCPServer) -> Result<Plan, ReconcileError> {
        let (namespace, name) = (server.namespace().unwrap_or_default(), server.name_any());
        let reference = server.spec.webhook_config_ref.as_ref();
        let config = reference.and_then(|reference| self.stores.configs.get(&namespace, &reference.name));
        let webhook_config = config.as_ref().and_then(|config| config.object.as_ref().ok());
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

    async fn apply(&self, server: &MCPServer, children: &[Child], pass: &mut Pass) -> Result<(), ReconcileError> {
        let owner = server.uid().unwrap_or_default();
        for child in children {
            let desired = Desired::new(child.object.clone())?;
            let store = self.stores.children(desired.kind());
            let live = store.get(desired.namespace(), desired.name());
            match decide(live.as_ref().map(|trace| &trace.live), &desired, &owner) {
                Decision::Keep => {}
                // What comes after one that cannot be written may rely on it: a proxy must not start with no RunConfig,
                // nor with one that is about to go and lacks the guard that the proxy is said to have.
                Decision::Wait => {
                    pass.trouble = Some(Trouble::Waits(format!("{:?} {}", desired.kind(), desired.name())));
                    return Ok(());
                }
                Decision::Refuse(refusal) => {
                    let taken = format!("{:?} {}: {refusal}", desired.kind(), desired.name());
                    pass.trouble = Some(Trouble::NameTaken(taken));
                    return Ok(());
                }
                Decision::Apply(reason) => {
                    tracing::debug!(
                        namespace = desired.namespace(), name = desired.name(), kind = ?desired.kind(), ?reason, "apply"
                    );
                    match self.applier.apply(&desired, live.is_some()).await {
                        Ok(written) => {
                            pass.writes += 1;
                            store.written(Trace::written(&desired, written));
                        }
                        Err(error) => {
                            pass.failed = Some(error.into());
                            return Ok(());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Deletes those of `absent` that exist and are this server's.
    async fn remove(&self, server: &MCPServer, absent: &[ChildRef], pass: &mut Pass) {
        let (namespace, owner) = (server.namespace().unwrap_or_default(), server.uid().unwrap_or_default());
        for child in absent {
            let store = self.stores.children(child.kind);
            let Some(trace) = store.get(&namespace, &child.name) else { continue };
            if trace.live.deleting || refusal(&trace.live, &owner).is_some() {
                continue;
            }
            match self.applier.delete(child.kind, &namespace, &child.name, &trace.live).await {
                Ok(DeleteOutcome::Accepted) => {
                    pass.writes += 1;
                    store.amended(trace.deleting());
                }
                Ok(DeleteOutcome::AlreadyGone) => {}
                Err(error) => {
                    pass.failed.get_or_insert(error.into());
                }
            }
        }
    }

    async fn finalizer(&self, live: &Custom<MCPServer>, wish: Finalizer) -> Result<(), ReconcileError> {
        if let Some(written) = self.writer.finalizer(live, SERVER_FINALIZER, wish).await? {
            self.stores.servers.written(written);
        }
        Ok(())
    }

    /// Per Secret that exists: its keys and the digests of their values. The values themselves are dropped at once.
    async fn secrets(
        &self,
        namespace: &str,
        names: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, BTreeMap<String, String>>, ReconcileError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let mut found = BTreeMap::new();
        for name in names {
            let Some(trace) = self.stores.secrets.get(namespace, name) else { continue };
            let content = trace.content.get_or_try_init(|| async {
                let secret = read("Secret", namespace, name, api.get_opt(name)).await?;
                let data = secret.map(|secret| secret.data.unwrap_or_default());
                Ok::<_, ReconcileError>(
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
    ) -> Result<BTreeMap<String, BTreeMap<String, String>>, ReconcileError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let mut found = BTreeMap::new();
        for name in names {
            let Some(trace) = self.stores.children(ChildKind::ConfigMap).get(namespace, name) else { continue };
            let content = trace.content.get_or_try_init(|| async {
                let map = read("ConfigMap", namespace, name, api.get_opt(name)).await?;
                Ok::<_, ReconcileError>(map.map(|map| map.data.unwrap_or_default()))
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

// === impl Pass ===

impl Pass {
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
) -> Result<T, ReconcileError> {
    let object = || format!("{kind} {namespace}/{name}");
    match tokio::time::timeout(READ_DEADLINE, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(ReconcileError::Request { verb: "read", object: object(), source: Box::new(source) }),
        Err(_) => Err(ReconcileError::Deadline { verb: "read", object: object(), seconds: READ_DEADLINE.as_secs() }),
    }
}
