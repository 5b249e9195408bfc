//! The RBAC rules that a controller needs.

use kube::core::ApiResource;
use portcullis_manifest::{Access, policy_rule};

use super::controller::{Owned, WatchedKind};
use super::{Controller, Kind, KindScope as _};

/// The verbs for reading objects, by watch and by name.
const READ: [&str; 3] = ["get", "list", "watch"];
/// The verbs for creating, changing and deleting children.
const KEEP: [&str; 3] = ["create", "patch", "delete"];

impl<K: Kind> Controller<K> {
    /// The controller's name: that of its field manager, and the suffix of its ServiceAccount's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rights that it needs: for the kinds that it reconciles, owns and watches, and what [`rbac`](Self::rbac)
    /// adds.
    pub fn access(&self) -> Access {
        let mut access = Access::default();
        let mut grant = |namespaced: bool, group: &str, resource: String, verbs: &[&str]| {
            let rules = if namespaced { &mut access.watched } else { &mut access.cluster };
            rules.push(policy_rule(group, &[resource], verbs));
        };
        let (namespaced, ApiResource { group, plural, .. }) = (K::Scope::NAMESPACED, ApiResource::erase::<K>(&()));
        grant(namespaced, &group, plural.clone(), &READ);
        if self.finalizer.is_some() {
            grant(namespaced, &group, plural.clone(), &["patch"]);
        }
        grant(namespaced, &group, format!("{plural}/status"), &["patch"]);
        if !self.owned.is_empty() {
            // Lets children name their owner as blocking its deletion, where the API server checks that
            // (OwnerReferencesPermissionEnforcement).
            grant(namespaced, &group, format!("{plural}/finalizers"), &["update"]);
        }
        for Owned { resource, children, follow } in self.owned.values() {
            let ApiResource { group, plural, .. } = resource;
            if follow.is_some() {
                grant(children.namespaced, group, plural.clone(), &READ);
            }
            grant(children.namespaced, group, plural.clone(), &KEEP);
        }
        for WatchedKind { resource: ApiResource { group, plural, .. }, namespaced, .. } in &self.watched {
            grant(*namespaced, group, plural.clone(), &READ);
        }
        grant(true, "events.k8s.io", "events".to_owned(), &["create"]);
        access.merge(self.access.clone())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, PersistentVolume, Secret};
    use kube::core::PartialObjectMeta;
    use std::future::ready;

    use super::*;
    use crate::{Cleanup, SharedController, Store};

    #[test]
    fn rights_follow_from_reconciled_owned_and_watched_kinds() {
        let read = |more: &[&'static str]| [&READ[..], more].concat();
        let maps = Controller::<ConfigMap>::new("maps")
            .finalizer("maps.example/hold", |_| ready(Ok::<_, std::fmt::Error>(Cleanup::Done)))
            .owns::<Secret>()
            .watches::<PartialObjectMeta<Node>>(|_, _| Vec::new())
            .rbac([policy_rule("", &["pods"], &["list"]), policy_rule("", &["secrets"], &["deletecollection"])]);
        let expected = Access {
            watched: vec![
                policy_rule("", &["configmaps"], &read(&["patch"])),
                policy_rule("", &["configmaps/status"], &["patch"]),
                policy_rule("", &["configmaps/finalizers"], &["update"]),
                policy_rule("", &["secrets"], &read(&[&KEEP[..], &["deletecollection"]].concat())),
                policy_rule("events.k8s.io", &["events"], &["create"]),
                policy_rule("", &["pods"], &["list"]),
            ],
            cluster: vec![policy_rule("", &["nodes"], &READ)],
            ..Access::default()
        };
        assert_eq!(maps.access(), expected);

        // A controller of a cluster-scoped kind accesses its objects in the cluster, and their children in their
        // namespaces.
        let owned_elsewhere =
            SharedController::new(Controller::<Namespace>::new("spaces").owns::<PersistentVolume>())
                .owns_with_store::<ConfigMap, crate::children::Child>(std::sync::Arc::<Store<_>>::default());
        let access = owned_elsewhere.access();
        let expected = Access {
            watched: vec![
                policy_rule("", &["configmaps"], &KEEP),
                policy_rule("events.k8s.io", &["events"], &["create"]),
            ],
            cluster: vec![
                policy_rule("", &["namespaces"], &READ),
                policy_rule("", &["namespaces/status"], &["patch"]),
                policy_rule("", &["namespaces/finalizers"], &["update"]),
                policy_rule("", &["persistentvolumes"], &read(&KEEP)),
            ],
            ..Access::default()
        };
        assert_eq!(access, expected);
    }
}
