//! Objects that have the names of children and do not name the workload as their owner. None is adopted, whatever its labels
//! say. What ToolHive's runner made behind a proxy is told apart by its StatefulSet: it owned the Services.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Service};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use mcp_plan::workload::{ChildKind, ChildRef, Owner};
use portcullis::controller::{
    ControllerError, EventType, PlannedEvent, Reconcile,
    apply::{Refusal, refusal},
};
use serde_json::json;

use super::{
    Stores, Trace,
    failure::ApplyFailure,
    request::{gone, in_time},
    traces::marks,
};
use crate::workload::{Plan, Workload};

/// Looks for objects that keep the children of `plan` from being made, and takes over those of ToolHive's runner. Returns
/// what is still in the way.
pub(super) async fn make_way<W: Workload>(
    stores: &Stores,
    cx: &Reconcile<W>,
    plan: &Plan,
) -> Result<Option<ApplyFailure>, ControllerError> {
    if plan.children.is_empty() {
        return Ok(None);
    }
    let (owner, manager) = (Owner::of(&*cx.object), marks(&W::kind(&())).name);
    let find = |child: &ChildRef| stores.children(child.kind).get(owner.namespace, &child.name);
    let refused = |trace: &Trace| refusal(&trace.live, owner.uid, &manager);
    let backend = cx.object.backend();
    let server = backend.as_ref().and_then(find);
    let is_predecessor = |trace: &Trace| trace.labelled && refused(trace) == Some(Refusal::NotOurs);

    // A Deployment that waits until old pods are gone is wanted too.
    let planned = plan.children.iter().map(|child| child.reference.clone());
    let waiting = cx.object.all_children().into_iter().filter(|child| child.kind == ChildKind::Deployment);
    let mut taken: Vec<ChildRef> = planned.chain(waiting).collect();
    taken.sort();
    taken.dedup();
    taken.retain(|child| {
        let found = find(child).filter(|trace| !trace.live.deleting);
        found.is_some_and(|trace| {
            refused(&trace) == Some(Refusal::NotOurs) && !(backend.as_ref() == Some(child) && is_predecessor(&trace))
        })
    });
    if !taken.is_empty() {
        return Ok(Some(ApplyFailure::NameTaken(not_ours(owner.namespace, &taken))));
    }

    let Some(server) = server else { return Ok(None) };
    let name = backend.map(|backend| backend.name).unwrap_or_default();
    if is_predecessor(&server) {
        if !server.live.deleting {
            replace(cx, &name, &server.live.uid).await?;
        }
        return Ok(Some(ApplyFailure::being_deleted(ChildKind::StatefulSet, &name)));
    }
    let mut handed_over = None;
    for child in plan.children.iter().filter(|child| child.reference.kind == ChildKind::Service) {
        let service =
            find(&child.reference).filter(|service| service.live.controller.as_ref() == Some(&server.live.uid));
        if let Some(service) = service.filter(|service| refused(&server).is_none() && !service.live.deleting) {
            hand_over(cx, &child.reference.name, &service.live.uid).await?;
            let note = format!(
                "Service {} was owned by ToolHive's StatefulSet {name} and gets this object as its owner; \
                 the next reconcile goes on",
                child.reference.name
            );
            handed_over = Some(ApplyFailure::TakenOver(note));
        }
    }
    Ok(handed_over)
}

/// The children of `plan` that this operator applied and that name no owner. They are deleted and created again, since any client
/// may write under its name. A ServiceAccount stays: it runs nothing, and the tokens of pods end with it.
pub(super) fn unowned<W: Workload>(stores: &Stores, cx: &Reconcile<W>, plan: &Plan) -> Vec<ChildRef> {
    let manager = marks(&W::kind(&())).name;
    let children = plan.children.iter().map(|child| &child.reference);
    let children = children.filter(|child| child.kind != ChildKind::ServiceAccount);
    let is_unowned = |child: &&ChildRef| {
        let found = stores.children(child.kind).get(&cx.key.namespace, &child.name);
        found
            .is_some_and(|trace| trace.live.controller.is_none() && trace.live.field_manager.as_ref() == Some(&manager))
    };
    children.filter(is_unowned).cloned().collect()
}

/// Says which objects are in the way, and how they are removed.
fn not_ours(namespace: &str, taken: &[ChildRef]) -> String {
    let each = taken.iter().map(|ChildRef { kind, name }| format!("{} {name}", kind.as_str()));
    let (names, refusal) = (each.collect::<Vec<_>>().join(", "), Refusal::NotOurs);
    let each = taken.iter().map(|ChildRef { kind, name }| {
        let (group, _) = kind.group_and_plural();
        let dot = if group.is_empty() { "" } else { "." };
        format!("{}{dot}{group}/{name}", kind.as_str().to_lowercase())
    });
    let line = each.collect::<Vec<_>>().join(" ");
    format!("{names}: {refusal}, or remove what is not needed: kubectl delete -n {namespace} {line}")
}

/// Deletes the StatefulSet of ToolHive's runner, and its Services and pods with it.
async fn replace<W: Workload>(cx: &Reconcile<W>, name: &str, uid: &str) -> Result<(), ControllerError> {
    cx.may_write().await?;
    let api: Api<StatefulSet> = Api::namespaced(cx.client(), &cx.key.namespace);
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    let what = || format!("StatefulSet {}/{name}", cx.key.namespace);
    in_time("delete", what, gone(api.delete(name, &params))).await?;
    let note = format!(
        "StatefulSet {name} of ToolHive's runner has no owner, so it is deleted, and created again when it is gone"
    );
    tracing::info!(namespace = cx.key.namespace, name = cx.key.name, "{note}");
    cx.publish_events(&[PlannedEvent::new(EventType::Normal, "StatefulSetReplaced", &note)]).await;
    Ok(())
}

/// Makes the workload the owner of a Service that its StatefulSet owns.
async fn hand_over<W: Workload>(cx: &Reconcile<W>, name: &str, uid: &str) -> Result<(), ControllerError> {
    cx.may_write().await?;
    let api: Api<Service> = Api::namespaced(cx.client(), &cx.key.namespace);
    let owners = Owner::of(&*cx.object).metadata(name, BTreeMap::default()).owner_references;
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "replace", "path": "/metadata/ownerReferences", "value": owners},
    ]);
    let patch = serde_json::from_value(patch).map(Patch::Json::<()>);
    let patch = patch.map_err(|source| ControllerError::Status { object: name.to_owned(), source })?;
    let params = PatchParams { field_manager: Some(marks(&W::kind(&())).name), ..PatchParams::default() };
    let what = || format!("Service {}/{name}", cx.key.namespace);
    in_time("patch", what, api.patch_metadata(name, &params, &patch)).await?;
    tracing::info!(
        namespace = cx.key.namespace,
        name = cx.key.name,
        service = name,
        "made this object the owner of a Service that ToolHive's StatefulSet owned"
    );
    Ok(())
}
