//! What a proxy says of its guards: in the annotation of its pods, or in those of its Deployment.

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

/// What controls these pods, each once; pods that nothing controls stand for themselves. None where there are no pods.
pub(super) fn controllers<'a>(pods: impl Iterator<Item = &'a &'a Pod>) -> Option<String> {
    const SAID: usize = 3;
    let all: BTreeSet<String> = pods
        .map(|pod| match controller(pod) {
            Some(owner) => format!("{} {}", owner.kind, owner.name),
            None => format!("Pod {}", pod.metadata.name.as_deref().unwrap_or_default()),
        })
        .collect();
    let mut said: Vec<String> = all.iter().take(SAID).cloned().collect();
    if let Some(more) = all.len().checked_sub(SAID).filter(|more| *more > 0) {
        said.push(format!("{more} more"));
    }
    if said.is_empty() { None } else { Some(said.join(", ")) }
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

/// Of the mark of a guard what tells its content; the rest tells what the reference says.
pub(super) fn content(mark: &str) -> &str {
    mark.split_once('/').map_or(mark, |(content, _)| content)
}
