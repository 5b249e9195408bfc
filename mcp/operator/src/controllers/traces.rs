//! The stored forms of built-in objects.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
            Pod, PodStatus, PodTemplateSpec,
        },
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Resource, api::PartialObjectMeta};
use mcp_api::names::{annotation, label};
use mcp_plan::{
    guards::{ProxyContainer, TEMPLATE_HASH},
    reference::Entry,
    workload::{Opened, Ways, detached},
};
use portcullis::controller::{
    ChildTrace, Stored,
    apply::{Desired, FieldManager, Live, version_number},
};
use serde::Deserialize;
use tokio::sync::OnceCell;

use super::foreign;

/// The prefix of field managers, before the kind.
const MANAGER: &str = "portcullis-";

/// Marks the children of workloads of this kind.
pub(super) fn marks(kind: &str) -> FieldManager {
    FieldManager { exclusive: foreign::exclusive, ..FieldManager::new(format!("{MANAGER}{}", kind.to_lowercase())) }
}

/// The kind of the workload that this is a child of: its owner's. Where that was taken away, the kind whose controller
/// applied it. Labels say nothing: anybody may write them.
fn kind_of(metadata: &ObjectMeta) -> &str {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| &*owner.kind);
    let applied = || {
        let entries = metadata.managed_fields.as_deref().unwrap_or_default().iter();
        let mut applied = entries.filter(|entry| entry.operation.as_deref() == Some("Apply"));
        applied.find_map(|entry| entry.manager.as_deref()?.strip_prefix(MANAGER))
    };
    owner.or_else(applied).unwrap_or_default()
}

/// Annotations, by their keys.
type Annotations = BTreeMap<String, String>;

/// The stored form of a child, or of a Secret or ConfigMap that an object may refer to.
#[derive(Debug)]
pub struct Trace {
    namespace: String,
    name: String,
    /// The part that the decision to write needs.
    pub live: Live,
    /// Whether it has ToolHive's label, as ToolHive's objects have, and anybody's may.
    pub labelled: bool,
    /// The ways around a proxy that it has.
    pub opened: Opened,
    /// The parts of a Deployment, where it is one.
    deployment: Option<Box<DeploymentParts>>,
    /// The content of this version of a Secret or ConfigMap, once somebody needed it; `None` when it was gone.
    pub content: OnceCell<Option<BTreeMap<String, Entry>>>,
    /// The same with the texts of a ConfigMap.
    pub texts: OnceCell<Option<BTreeMap<String, Entry>>>,
}

/// The parts of a Deployment that plans read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeploymentParts {
    annotations: Annotations,
    /// The annotations of its pod template.
    template: Annotations,
    /// The number of pods that it wants, whoever has set it.
    replicas: i32,
}

/// As much of a Deployment as is read: a whole one decodes several times as slowly.
#[derive(Clone, Debug, Deserialize)]
pub struct DeploymentTrace {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SpecTrace,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct SpecTrace {
    replicas: Option<i32>,
    #[serde(default)]
    template: MetadataTrace,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct MetadataTrace {
    #[serde(default)]
    metadata: AnnotationsTrace,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct AnnotationsTrace {
    #[serde(default)]
    annotations: Annotations,
}

/// The stored form of a proxy's pod.
#[derive(Debug)]
pub struct PodTrace {
    namespace: String,
    name: String,
    version: u64,
    workload: String,
    /// The parts of the pod that its workload's status is made of.
    pub pod: Pod,
    /// The proxy container that runs in it, where it says that it has guards.
    pub container: Option<ProxyContainer>,
}

// === impl DeploymentParts ===

impl DeploymentParts {
    /// The API server sets one replica where nobody sets a number.
    fn new(annotations: Annotations, template: Annotations, replicas: Option<i32>) -> Self {
        let (annotations, template) = (read_by_plans(annotations), read_by_plans(template));
        Self { annotations, template, replicas: replicas.unwrap_or(1) }
    }
}

// === impl DeploymentTrace ===

impl Resource for DeploymentTrace {
    type DynamicType = ();
    type Scope = <Deployment as Resource>::Scope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        Deployment::kind(&())
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        Deployment::group(&())
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        Deployment::version(&())
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        Deployment::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

// === impl Trace ===

impl Trace {
    /// Keeps what matters of an object's metadata.
    pub fn read<K: Resource<DynamicType = ()>>(object: PartialObjectMeta<K>) -> Self {
        Self::of(&K::kind(&()), &object.metadata)
    }

    /// Keeps what matters of a Deployment, as [`read`](Self::read) does.
    pub fn read_deployment(deployment: DeploymentTrace) -> Self {
        let DeploymentTrace { metadata, spec } = deployment;
        let own = metadata.annotations.clone().unwrap_or_default();
        let parts = DeploymentParts::new(own, spec.template.metadata.annotations, spec.replicas);
        Self { deployment: Some(Box::new(parts)), ..Self::of(&Deployment::kind(&()), &metadata) }
    }

    /// Keeps what matters of the `metadata` of an object of this kind.
    fn of(kind: &str, metadata: &ObjectMeta) -> Self {
        let manager = marks(kind_of(metadata));
        let (live, opened) = (manager.read(kind, metadata), Opened::of(metadata, &manager.name));
        let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
        let label = metadata.labels.as_ref().and_then(|labels| labels.get(label::TOOLHIVE));
        let labelled = label.is_some_and(|value| value == "true");
        Self { labelled, opened, ..Self::new(namespace.unwrap_or_default(), name.unwrap_or_default(), live) }
    }

    fn new(namespace: String, name: String, live: Live) -> Self {
        Self {
            namespace,
            name,
            live,
            labelled: false,
            opened: Opened::default(),
            deployment: None,
            content: OnceCell::new(),
            texts: OnceCell::new(),
        }
    }

    /// As much of the Deployment as a plan reads.
    pub fn deployment(&self) -> Deployment {
        let parts = self.deployment.as_deref().cloned();
        let parts = parts.unwrap_or_else(|| DeploymentParts::new(Annotations::new(), Annotations::new(), None));
        let DeploymentParts { annotations, template, replicas } = parts;
        let gone = Time(jiff::Timestamp::UNIX_EPOCH);
        let template = ObjectMeta { annotations: Some(template), ..ObjectMeta::default() };
        Deployment {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                annotations: Some(annotations),
                deletion_timestamp: self.live.deleting.then_some(gone),
                ..ObjectMeta::default()
            },
            spec: Some(DeploymentSpec {
                replicas: Some(replicas),
                template: PodTemplateSpec { metadata: Some(template), spec: None },
                ..DeploymentSpec::default()
            }),
            status: None,
        }
    }

    /// True when nothing that a plan or the apply engine reads differs.
    pub fn same(&self, other: &Self) -> bool {
        let version = other.live.version;
        self.deployment == other.deployment
            && self.opened == other.opened
            && Live { version, ..self.live.clone() } == other.live
    }
}

impl ChildTrace for Trace {
    fn live(&self) -> &Live {
        &self.live
    }

    fn written(desired: &Desired, live: Live) -> Self {
        let document = desired.document();
        let at = |pointer| document.pointer(pointer).and_then(|all| Annotations::deserialize(all).ok());
        let deployment = (document["kind"] == "Deployment").then(|| {
            let [own, template] = ["/metadata/annotations", "/spec/template/metadata/annotations"].map(at);
            // A number that somebody else sets comes with the watch.
            let replicas = document.pointer("/spec/replicas").and_then(|number| i32::deserialize(number).ok());
            Box::new(DeploymentParts::new(own.unwrap_or_default(), template.unwrap_or_default(), replicas))
        });
        let opened = Opened { ours: Ways::of_document(document), ..Opened::default() };
        Self { opened, deployment, ..Self::new(desired.namespace().to_owned(), desired.name().to_owned(), live) }
    }

    fn deleting(&self) -> Self {
        let live = Live { deleting: true, ..self.live.clone() };
        Self { deployment: self.deployment.clone(), ..Self::new(self.namespace.clone(), self.name.clone(), live) }
    }
}

impl Stored for Trace {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u64 {
        self.live.version
    }
}

// === impl PodTrace ===

impl PodTrace {
    /// Selects the pods of proxies of workloads of one kind, `app`. The label `app` alone would also select the pods
    /// behind a proxy where their workload is called like the kind: they carry its name in it.
    pub fn selector(app: &str) -> String {
        format!("{}={app},{}={app},{}=true", label::APP, label::APP_NAME, label::TOOLHIVE)
    }

    /// Keeps what matters of a pod.
    pub fn read(pod: Pod) -> Self {
        let metadata = pod.metadata;
        let has_guards = metadata.annotations.as_ref().is_some_and(|all| all.contains_key(annotation::GUARDS));
        let container = pod.spec.as_ref().filter(|_| has_guards).and_then(ProxyContainer::of);
        let workload = metadata.labels.as_ref().and_then(|labels| labels.get(label::TOOLHIVE_NAME)).cloned();
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            version: version_number(&metadata),
            workload: workload.unwrap_or_default(),
            pod: Pod {
                metadata: ObjectMeta {
                    name: metadata.name,
                    namespace: metadata.namespace,
                    annotations: metadata.annotations.map(read_by_plans),
                    labels: metadata.labels.map(read_by_guards),
                    owner_references: metadata.owner_references,
                    deletion_timestamp: metadata.deletion_timestamp,
                    ..ObjectMeta::default()
                },
                spec: None,
                status: pod.status.map(reduced),
            },
            container,
        }
    }

    /// The workload it is a proxy of.
    pub fn workload(&self) -> &str {
        &self.workload
    }
}

impl Stored for PodTrace {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn index_keys(&self) -> Vec<String> {
        vec![self.workload.clone()]
    }
}

/// The annotations of the platform's own domains: those that tell of guards and restarts are among them. Every proxy has
/// the checksum, which no plan reads. In a map of their own: one that lost all of its entries keeps the memory of some.
fn read_by_plans(annotations: Annotations) -> Annotations {
    let own = |key: &str| key.split('/').next().is_some_and(|domain| domain.ends_with(mcp_api::names::GROUP));
    let read = |key: &str| own(key) && key != annotation::RUN_CONFIG_CHECKSUM;
    annotations.into_iter().filter(|(key, _)| read(key)).collect()
}

/// The label by which a pod names its ReplicaSet's template.
fn read_by_guards(mut labels: Annotations) -> Annotations {
    labels.retain(|key, _| key == TEMPLATE_HASH);
    labels
}

fn reduced(status: PodStatus) -> PodStatus {
    let containers = status.container_statuses.unwrap_or_default().into_iter().map(|container| ContainerStatus {
        name: container.name,
        ready: container.ready,
        started: container.started,
        state: container.state.map(|state| ContainerState {
            running: state.running.map(|it| ContainerStateRunning { started_at: it.started_at }),
            waiting: state
                .waiting
                .map(|waiting| ContainerStateWaiting { reason: waiting.reason, ..ContainerStateWaiting::default() }),
            terminated: state.terminated.map(|ended| ContainerStateTerminated {
                finished_at: ended.finished_at,
                exit_code: ended.exit_code,
                reason: ended.reason,
                ..ContainerStateTerminated::default()
            }),
        }),
        last_state: container.last_state.filter(|state| state.terminated.as_ref().is_some_and(detached::reports)),
        ..ContainerStatus::default()
    });
    PodStatus {
        phase: status.phase,
        reason: status.reason,
        pod_ip: status.pod_ip,
        container_statuses: Some(containers.collect()),
        ..PodStatus::default()
    }
}
