//! What is kept of built-in objects.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod, PodStatus},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::api::PartialObjectMeta;
use mcp_api::names::label;
use portcullis::controller::{
    ChildTrace, Stored,
    apply::{Desired, Live, Marks, version_number},
};
use tokio::sync::OnceCell;

use crate::plan::names::GATE;

/// How the children of MCPServers are marked. What the upstream's runner made carries `toolhive: "true"` too, and is
/// taken over.
pub(super) fn marks() -> Marks {
    Marks { adopts: made_by_platform, ..Marks::of("portcullis-mcpserver") }
}

fn made_by_platform(metadata: &ObjectMeta) -> bool {
    metadata.labels.as_ref().and_then(|labels| labels.get(label::TOOLHIVE)).is_some_and(|value| value == "true")
}

/// What is kept of a child, or of a Secret or ConfigMap that a server may refer to.
#[derive(Debug)]
pub struct Trace {
    namespace: String,
    name: String,
    /// What the decision to write needs.
    pub live: Live,
    /// The [`GATE`] annotation of a Deployment.
    pub gate: Option<String>,
    /// The content of this version of a referenced object, once somebody needed it; `None` when it was gone.
    pub content: OnceCell<Option<BTreeMap<String, String>>>,
}

/// What is kept of a proxy's pod.
#[derive(Debug)]
pub struct PodTrace {
    namespace: String,
    name: String,
    version: u64,
    server: String,
    /// The parts of the pod that its server's status is made of.
    pub pod: Pod,
}

// === impl Trace ===

impl Trace {
    /// Keeps what matters of an object's metadata.
    pub fn read<K>(object: PartialObjectMeta<K>) -> Self {
        Self::of(&object.metadata)
    }

    /// Keeps what matters of `metadata`.
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self::new(
            metadata.namespace.clone().unwrap_or_default(),
            metadata.name.clone().unwrap_or_default(),
            marks().read(metadata),
            metadata.annotations.as_ref().and_then(|all| all.get(GATE)).cloned(),
        )
    }

    /// A trace from its parts.
    pub fn new(namespace: String, name: String, live: Live, gate: Option<String>) -> Self {
        Self { namespace, name, live, gate, content: OnceCell::new() }
    }

    /// As much of the Deployment as a plan reads.
    pub fn deployment(&self) -> Deployment {
        let gone = Time(jiff::Timestamp::UNIX_EPOCH);
        let deletion_timestamp = self.live.deleting.then_some(gone);
        Deployment {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                annotations: self.gate.clone().map(|gate| [(GATE.to_owned(), gate)].into()),
                deletion_timestamp,
                ..ObjectMeta::default()
            },
            ..Deployment::default()
        }
    }

    /// True when nothing that a plan or the apply engine reads differs.
    pub fn same(&self, other: &Self) -> bool {
        let version = other.live.version;
        self.gate == other.gate && Live { version, ..self.live.clone() } == other.live
    }
}

impl ChildTrace for Trace {
    fn live(&self) -> &Live {
        &self.live
    }

    fn written(desired: &Desired, live: Live) -> Self {
        let gate = desired.document().pointer("/metadata/annotations").and_then(|all| all.get(GATE));
        let gate = gate.and_then(|gate| gate.as_str()).map(str::to_owned);
        Self::new(desired.namespace().to_owned(), desired.name().to_owned(), live, gate)
    }

    fn deleting(&self) -> Self {
        let live = Live { deleting: true, ..self.live.clone() };
        Self::new(self.namespace.clone(), self.name.clone(), live, self.gate.clone())
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
    /// Selects the pods of proxies. `app` alone would also select the MCP server's pods where the server is called
    /// `mcpserver`: they carry their server's name in it.
    pub fn selector() -> String {
        let kind = label::APP_MCP_SERVER;
        format!("{}={kind},{}={kind},{}=true", label::APP, label::APP_NAME, label::TOOLHIVE)
    }

    /// Keeps what matters of a pod.
    pub fn read(pod: Pod) -> Self {
        let metadata = pod.metadata;
        let server = metadata.labels.as_ref().and_then(|labels| labels.get(label::TOOLHIVE_NAME)).cloned();
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            version: version_number(&metadata),
            server: server.unwrap_or_default(),
            pod: Pod {
                metadata: ObjectMeta {
                    name: metadata.name,
                    namespace: metadata.namespace,
                    deletion_timestamp: metadata.deletion_timestamp,
                    ..ObjectMeta::default()
                },
                spec: None,
                status: pod.status.map(reduced),
            },
        }
    }

    /// The server it is a proxy of.
    pub fn server(&self) -> &str {
        &self.server
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

    fn tokens(&self) -> Vec<String> {
        vec![self.server.clone()]
    }
}

fn reduced(status: PodStatus) -> PodStatus {
    let containers = status.container_statuses.unwrap_or_default().into_iter().map(|container| ContainerStatus {
        name: container.name,
        ready: container.ready,
        state: container.state.map(|state| ContainerState {
            running: None,
            waiting: state
                .waiting
                .map(|waiting| ContainerStateWaiting { reason: waiting.reason, ..ContainerStateWaiting::default() }),
            terminated: state.terminated.map(|ended| ContainerStateTerminated {
                exit_code: ended.exit_code,
                reason: ended.reason,
                ..ContainerStateTerminated::default()
            }),
        }),
        ..ContainerStatus::default()
    });
    PodStatus {
        phase: status.phase,
        reason: status.reason,
        container_statuses: Some(containers.collect()),
        ..PodStatus::default()
    }
}
