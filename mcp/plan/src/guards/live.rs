//! The guards of a proxy, from the annotation of its pods or of its Deployment.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use mcp_api::names::annotation::GUARDS;

/// Label of a Deployment's pods, which ends the name of their ReplicaSet.
pub const TEMPLATE_HASH: &str = "pod-template-hash";

/// The guards of a proxy: the mark of each, where the proxy says it, by kind and name.
pub(super) type Live = BTreeMap<(String, String), Option<String>>;

/// Whether a ReplicaSet of the Deployment of this name controls the pod: it is called `DEPLOYMENT-HASH`.
pub fn belongs_to(pod: &Pod, deployment: &str) -> bool {
    let hash = pod.metadata.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH));
    let set = controller(pod).filter(|owner| owner.kind == "ReplicaSet");
    set.zip(hash).is_some_and(|(set, hash)| set.name.strip_prefix(deployment) == Some(&format!("-{hash}")))
}

fn controller(pod: &Pod) -> Option<&OwnerReference> {
    pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The controllers of these pods and the way to delete them, a sentence for each controller. None where there are no
/// pods.
pub(super) fn deletions<'a>(pods: impl Iterator<Item = &'a &'a Pod>) -> Option<String> {
    let mut controlled: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    let mut namespace = "";
    for pod in pods {
        namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let owner = controller(pod).map(|owner| (&*owner.kind, &*owner.api_version, &*owner.name));
        controlled.entry(owner).or_default().insert(pod.metadata.name.as_deref().unwrap_or_default());
    }
    let each = controlled.into_iter().map(|(owner, pods)| {
        let pods = pods.into_iter().collect::<Vec<_>>().join(" ");
        let delete = format!("kubectl delete -n {namespace}");
        match owner {
            None => format!("nothing controls pod {pods}: {delete} pod {pods}"),
            // A static pod comes back whatever is deleted in the API.
            Some(("Node", _, name)) => {
                format!("Node {name} controls pod {pods}: remove the pod's manifest from that node")
            }
            Some((kind, version, name)) => {
                let group = version.split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
                format!("{kind} {name} controls pod {pods}: {delete} {}{group} {name}", kind.to_ascii_lowercase())
            }
        }
    });
    let each: Vec<_> = each.collect();
    if each.is_empty() { None } else { Some(each.join("; ")) }
}

/// Whether the pod has ended: it does not serve, and never will.
pub(super) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

pub(super) fn template(deployment: &Deployment) -> Option<&str> {
    annotation(deployment.spec.as_ref()?.template.metadata.as_ref()?, GUARDS)
}

pub(super) fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

pub(super) fn parse(digest: &str) -> Live {
    let each = digest.split(',').filter_map(|guard| {
        let mut parts = guard.splitn(3, '/');
        let (kind, name, mark) = (parts.next()?, parts.next()?, parts.next()?);
        Some(((kind.to_owned(), name.to_owned()), Some(mark.to_owned())))
    });
    each.collect()
}

/// The part of a guard's mark that identifies its content; the rest identifies its reference.
pub(super) fn content(mark: &str) -> &str {
    mark.split_once('/').map_or(mark, |(content, _)| content)
}
