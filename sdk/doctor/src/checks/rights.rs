//! H3 and H4: the rights that the operator was given.

use k8s_openapi::api::rbac::v1::Subject as Bound;
use kube::ResourceExt as _;

use super::{Note, absent, fail, info};
use crate::parts::View;
use crate::snapshot::Right;

const OUTSIDE: &str = "the operator runs outside of the cluster: its rights are not those of a ServiceAccount";

/// H3
pub(super) fn bindings(view: View<'_>) -> Vec<Note> {
    if !view.has_account() {
        return vec![info(OUTSIDE)];
    }
    let (subject, namespace, account) = (view.subject, view.subject.namespace(), view.account());
    let mut notes = Vec::new();
    if !view.accounts().iter().any(|one| one.name_any() == account) {
        notes.push(absent(format!("ServiceAccount {namespace}/{account} not found"), subject.apply("rbac")));
    }
    let ours = |bound: &Bound| {
        bound.kind == "ServiceAccount" && bound.name == account && bound.namespace.as_deref() == Some(namespace)
    };
    if !subject.rights.cluster.is_empty() {
        let role = subject.installation.role();
        match view.cluster_binding() {
            None => notes.push(fail(format!("ClusterRoleBinding {role} not found"), subject.apply("rbac"))),
            Some(binding) if !binding.subjects.iter().flatten().any(ours) => {
                let other = binding.subjects.iter().flatten().find(|bound| bound.kind == "ServiceAccount");
                let other = other.map_or_else(
                    || "nobody".to_owned(),
                    |bound| format!("{}/{}", bound.namespace.as_deref().unwrap_or_default(), bound.name),
                );
                let message = format!(
                    "ClusterRoleBinding {role} points to {other} and not to {namespace}/{account}: two installations under one name?"
                );
                notes.push(fail(message, format!("give one of them another --release; {}", subject.apply("rbac"))));
            }
            Some(_) => {}
        }
    }
    if !subject.rights.own_namespace.is_empty()
        && !view.role_bindings().iter().any(|binding| binding.subjects.iter().flatten().any(ours))
    {
        let message = format!("no RoleBinding in namespace {namespace} binds ServiceAccount {account}");
        notes.push(absent(message, subject.apply("rbac")));
    }
    notes
}

/// H4
pub(super) fn rights(view: View<'_>) -> Vec<Note> {
    if !view.has_account() {
        return vec![info(OUTSIDE)];
    }
    let refused = |rights: &[Right]| {
        let verbs: Vec<_> = rights.iter().filter(|right| !right.allowed).map(|right| right.verb.as_str()).collect();
        let on = &rights.first()?.on;
        (!verbs.is_empty()).then(|| format!("{} {on}", verbs.join(", ")))
    };
    let refused: Vec<_> = view.rights().chunk_by(|one, next| one.on == next.on).filter_map(refused).collect();
    if refused.is_empty() {
        return Vec::new();
    }
    // They come from one manifest: one finding, however many are missing.
    let message = format!("ServiceAccount {} cannot {}", view.account(), refused.join("\ncannot "));
    vec![fail(message, view.subject.apply("rbac"))]
}
