//! Replaces an MCP server that no proxy can reach again.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};
use mcp_plan::workload::detached::{Attached, is_detached, reported_at};
use portcullis::controller::{ControllerError, EventType, PlannedEvent, Reconcile};

use super::request::{gone, in_time};
use crate::workload::Workload;

/// Deletes the pod that the proxy attaches to, if one of the `proxies` has reported that its server keeps running.
pub(super) async fn replace_detached<W: Workload>(cx: &Reconcile<W>, proxies: &[&Pod]) -> Result<(), ControllerError> {
    let (Some(Attached { pod, container }), Some(reported)) = (cx.object.attached(), reported_at(proxies)) else {
        return Ok(());
    };
    let pods: Api<Pod> = Api::namespaced(cx.client(), &cx.key.namespace);
    let what = || format!("Pod {}/{pod}", cx.key.namespace);
    let Some(server) = in_time("get", what, pods.get_opt(&pod)).await? else { return Ok(()) };
    if !is_detached(&server, container, &reported) || !is_backend::<W>(&server, cx) {
        return Ok(());
    }
    cx.may_write().await?;
    // The precondition keeps its successor from being deleted.
    let preconditions = Some(Preconditions { uid: server.metadata.uid, resource_version: None });
    in_time("delete", what, gone(pods.delete(&pod, &DeleteParams { preconditions, ..DeleteParams::default() })))
        .await?;
    let note = format!(
        "deleted pod {pod}, which its StatefulSet creates again: the MCP server kept running after its stdin was \
         closed, so no proxy could reach it"
    );
    tracing::warn!(namespace = cx.key.namespace, name = cx.key.name, "{note}");
    cx.publish_events(&[PlannedEvent::new(EventType::Warning, "ServerReplaced", &note)]).await;
    Ok(())
}

/// Whether the workload's own StatefulSet made it.
fn is_backend<W: Workload>(server: &Pod, cx: &Reconcile<W>) -> bool {
    let owners = server.metadata.owner_references.as_deref().unwrap_or_default();
    cx.object.backend().is_some_and(|backend| {
        owners.iter().any(|owner| {
            owner.controller == Some(true) && owner.kind == backend.kind.as_str() && owner.name == backend.name
        })
    })
}
