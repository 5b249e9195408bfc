//! The RBAC rules that a controller needs.

use kube::core::ApiResource;
use portcullis_manifest::{Access, Grant};

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
        let mut grant = |namespaced: bool, group: &str, resource: String, verbs: &[&'static str]| {
            let grants = Access::from([Grant::new(group, &[resource], verbs)]);
            let grants = if namespaced { grants } else { Access { cluster: grants.watched, ..Access::default() } };
            access = std::mem::take(&mut access).and(grants);
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
        access.and(self.access.clone())
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
        let maps = Controller::<ConfigMap>::named("maps")
            .finalizer("maps.example/hold", |_| ready(Ok::<_, std::fmt::Error>(Cleanup::Done)))
            .owns::<Secret>()
            .watches::<PartialObjectMeta<Node>>(|_, _| Vec::new())
            .rbac([Grant::new("", &["pods"], &["list"]), Grant::new("", &["secrets"], &["deletecollection"])]);
        let expected = Access {
            watched: vec![
                Grant::new("", &["configmaps"], &read(&["patch"])),
                Grant::new("", &["configmaps/status"], &["patch"]),
                Grant::new("", &["configmaps/finalizers"], &["update"]),
                Grant::new("", &["secrets"], &read(&[&KEEP[..], &["deletecollection"]].concat())),
                Grant::new("events.k8s.io", &["events"], &["create"]),
                Grant::new("", &["pods"], &["list"]),
            ],
            cluster: vec![Grant::new("", &["nodes"], &READ)],
            ..Access::default()
        };
        assert_eq!(maps.access(), expected);

        // A controller of a cluster-scoped kind accesses its objects in the cluster, and their children in their
        // namespaces.
        let owned_elsewhere =
            SharedController::new(Controller::<Namespace>::named("spaces").owns::<PersistentVolume>())
                .owns_with_store::<ConfigMap, crate::children::Child>(std::sync::Arc::<Store<_>>::default());
        let access = owned_elsewhere.access();
        let of =
            |grants: &[Grant]| grants.iter().map(|it| (it.resources[0].clone(), it.verbs.clone())).collect::<Vec<_>>();
        let named = |resource: &str, verbs: Vec<&'static str>| (resource.to_owned(), verbs);
        assert_eq!(of(&access.watched), [named("configmaps", KEEP.to_vec()), named("events", vec!["create"])]);
        let cluster = [
            named("namespaces", READ.to_vec()),
            named("persistentvolumes", read(&KEEP)),
            named("namespaces/status", vec!["patch"]),
            named("namespaces/finalizers", vec!["update"]),
        ];
        assert_eq!(of(&access.cluster), cluster);
    }
}
