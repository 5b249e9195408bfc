//! Stores of children.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::apply::{Desired, FieldManager, Live};
use super::store::ListEpoch;
use super::{Store, Stored};

/// The stored form of a child, for controllers that keep more of it than the default
/// ([`SharedController::owns_with_store`](super::SharedController::owns_with_store)).
pub trait ChildTrace: Stored {
    /// The part that decides whether the child is written, from [`FieldManager::read`].
    fn live(&self) -> &Live;

    /// The stored form of a child after `desired` was applied, with `live` as the result.
    fn written(desired: &Desired, live: Live) -> Self;

    /// Marks the child as being deleted.
    #[must_use]
    fn deleting(&self) -> Self;
}

/// The children of one kind, in any stored form.
pub(super) trait ChildStore: Send + Sync {
    fn live(&self, namespace: &str, name: &str) -> Option<Live>;
    fn begin(&self) -> ListEpoch;
    fn written(&self, desired: &Desired, live: Live, begun: ListEpoch);
    fn deleting(&self, namespace: &str, name: &str, live: &Live);
    fn clear(&self);
}

impl<T: ChildTrace> ChildStore for Store<T> {
    fn live(&self, namespace: &str, name: &str) -> Option<Live> {
        self.get(namespace, name).map(|child| child.live().clone())
    }

    fn begin(&self) -> ListEpoch {
        Self::begin(self)
    }

    fn written(&self, desired: &Desired, live: Live, begun: ListEpoch) {
        Self::written(self, T::written(desired, live), begun);
    }

    fn deleting(&self, namespace: &str, name: &str, live: &Live) {
        if let Some(child) = self.get(namespace, name).filter(|child| child.version() == live.version) {
            self.amended(child.deleting());
        }
    }

    fn clear(&self) {
        Self::clear(self);
    }
}

/// A child: the part of its metadata that the decision needs, and its owner.
#[derive(Debug)]
pub(super) struct Child {
    namespace: String,
    name: String,
    live: Live,
    owner: Option<String>,
}

impl Child {
    /// Reads the `metadata` of a child of this kind. Owners are of the kind `owner`.
    pub(super) fn read(kind: &str, metadata: &ObjectMeta, field_manager: &FieldManager, owner: &str) -> Self {
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let owner = owners.iter().find(|it| it.controller == Some(true) && it.kind == owner);
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            live: field_manager.read(kind, metadata),
            owner: owner.map(|owner| owner.name.clone()),
        }
    }

    /// The name of its owner.
    pub(super) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }
}

impl ChildTrace for Child {
    fn live(&self) -> &Live {
        &self.live
    }

    fn written(desired: &Desired, live: Live) -> Self {
        Self {
            namespace: desired.namespace().to_owned(),
            name: desired.name().to_owned(),
            live,
            owner: desired.owner().map(str::to_owned),
        }
    }

    fn deleting(&self) -> Self {
        let live = Live { deleting: true, ..self.live.clone() };
        Self { namespace: self.namespace.clone(), name: self.name.clone(), live, owner: self.owner.clone() }
    }
}

impl Stored for Child {
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

/// The children of one kind.
#[derive(Clone)]
pub(super) struct Children {
    pub(super) store: Arc<dyn ChildStore>,
    /// Whether they live in namespaces.
    pub(super) namespaced: bool,
}
