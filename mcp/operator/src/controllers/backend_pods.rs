//! The pods of what runs behind proxies: what is kept of them, and the replacement of those that keep their StatefulSet from rolling.

use std::sync::Arc;

use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{
            ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
            Pod, PodCondition, PodStatus,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Preconditions},
};
use mcp_api::names::label;
use mcp_plan::workload::backend::{is_own, runs};
use portcullis::controller::{ControllerError, EventType, PlannedEvent, Reconcile, Stored, apply::version_number};

use super::request::in_time;
use crate::workload::Workload;

/// Label by which a pod names the revision of its StatefulSet's template.
const REVISION: &str = "controller-revision-hash";

/// The parts of such a pod that are kept.
#[derive(Debug)]
pub(super) struct BackendPod {
    version: u64,
    workload: String,
    /// The parts of the pod that its workload's status is made of.
    pub(super) pod: Pod,
}

// === impl BackendPod ===

impl BackendPod {
    /// Selects the pods behind proxies.
    pub(super) fn selector() -> String {
        format!("{}=true,{}", label::TOOLHIVE, label::TOOLHIVE_BASENAME)
    }

    /// Keeps what matters of a pod.
    pub(super) fn read(pod: Pod) -> Self {
        let ObjectMeta { name, namespace, uid, labels, owner_references, deletion_timestamp, .. } =
            pod.metadata.clone();
        let labels = labels.unwrap_or_default();
        let kept = labels.iter().filter(|(key, _)| *key == REVISION).map(|(key, value)| (key.clone(), value.clone()));
        let labels_kept = Some(kept.collect());
        Self {
            version: version_number(&pod.metadata),
            workload: labels.get(label::TOOLHIVE_BASENAME).cloned().unwrap_or_default(),
            pod: Pod {
                metadata: ObjectMeta {
                    name,
                    namespace,
                    uid,
                    labels: labels_kept,
                    owner_references,
                    deletion_timestamp,
                    ..ObjectMeta::default()
                },
                spec: None,
                status: pod.status.map(reduced),
            },
        }
    }

    /// The workload that it is behind the proxy of.
    pub(super) fn workload(&self) -> &str {
        &self.workload
    }
}

impl Stored for BackendPod {
    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn index_keys(&self) -> Vec<String> {
        vec![self.workload.clone()]
    }
}

fn reduced(status: PodStatus) -> PodStatus {
    let containers =
        |all: Option<Vec<ContainerStatus>>| all.map(|all| all.into_iter().map(reduced_container).collect());
    let conditions = status.conditions.unwrap_or_default().into_iter().filter(|it| it.type_ == "PodScheduled");
    let conditions = conditions.map(|it| PodCondition {
        type_: it.type_,
        status: it.status,
        reason: it.reason,
        ..PodCondition::default()
    });
    PodStatus {
        phase: status.phase,
        reason: status.reason,
        conditions: Some(conditions.collect()),
        container_statuses: containers(status.container_statuses),
        init_container_statuses: containers(status.init_container_statuses),
        ..PodStatus::default()
    }
}

fn reduced_container(container: ContainerStatus) -> ContainerStatus {
    let ended = |end: ContainerStateTerminated| ContainerStateTerminated {
        exit_code: end.exit_code,
        reason: end.reason,
        started_at: end.started_at,
        finished_at: end.finished_at,
        ..ContainerStateTerminated::default()
    };
    let state = |state: ContainerState| ContainerState {
        running: state.running.map(|it| ContainerStateRunning { started_at: it.started_at }),
        terminated: state.terminated.map(ended),
        waiting: state.waiting.map(waiting),
    };
    ContainerStatus {
        name: container.name,
        image: container.image,
        ready: container.ready,
        restart_count: container.restart_count,
        state: container.state.map(state),
        last_state: container.last_state.map(state),
        ..ContainerStatus::default()
    }
}

fn waiting(ContainerStateWaiting { reason, message }: ContainerStateWaiting) -> ContainerStateWaiting {
    // Others change while the reason stays.
    let message = message.filter(|_| reason.as_deref() == Some("CreateContainerConfigError"));
    ContainerStateWaiting { reason, message }
}

/// Deletes those of `pods` that do not run and are of before the last change of their StatefulSet, which waits until they are ready before
/// it replaces them. Returns false where it is not known yet which those are.
pub(super) async fn replace_outdated<W: Workload>(
    cx: &Reconcile<W>,
    pods: &[Arc<BackendPod>],
) -> Result<bool, ControllerError> {
    let Some(backend) = cx.object.backend() else { return Ok(true) };
    let now = jiff::Timestamp::now();
    let stays = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && is_own(pod, &backend.name);
    let waiting: Vec<_> = pods.iter().filter(|kept| stays(&kept.pod) && !runs(&kept.pod, now)).collect();
    if waiting.is_empty() {
        return Ok(true);
    }
    let (namespace, name) = (&cx.key.namespace, &backend.name);
    let api: Api<StatefulSet> = Api::namespaced(cx.client(), namespace);
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = in_time("list", || format!("StatefulSet {namespace}/{name}"), api.list(&params)).await?;
    let Some(set) = found.items.into_iter().next() else { return Ok(true) };
    let Some(status) = set.status.filter(|status| status.observed_generation == set.metadata.generation) else {
        return Ok(false);
    };
    let pods: Api<Pod> = Api::namespaced(cx.client(), namespace);
    for kept in waiting {
        let metadata = &kept.pod.metadata;
        let revision = metadata.labels.as_ref().and_then(|labels| labels.get(REVISION));
        if status.update_revision.is_none() || revision == status.update_revision.as_ref() {
            continue;
        }
        cx.may_write().await?;
        // Not one that has come to run meanwhile.
        let preconditions =
            Preconditions { uid: metadata.uid.clone(), resource_version: Some(kept.version.to_string()) };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let deleted = async {
            match pods.delete(kept.name(), &params).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
                deleted => deleted.map(|_| true),
            }
        };
        if in_time("delete", || format!("Pod {namespace}/{}", kept.name()), deleted).await? {
            let note = format!(
                "deleted pod {}, which its StatefulSet creates again: it did not run, and is of an older revision",
                kept.name()
            );
            tracing::info!(namespace, name = cx.key.name, "{note}");
            cx.publish_events(&[PlannedEvent::new(EventType::Normal, "PodReplaced", &note)]).await;
        }
    }
    Ok(true)
}
