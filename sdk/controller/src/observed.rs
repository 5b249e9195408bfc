//! The part of the objects of a controller that is kept.

use std::sync::Arc;

use kube::Resource;
use kube::core::DeserializeGuard;
use serde::Serialize;
use serde_json::Value;

use super::apply::{StatusState, owned_fields, version_number};
use super::kind_scope::full_name;
use super::{Change, Key, Store, Stored};

/// The field managers of one controller: one per concern, all named after it.
#[derive(Clone, Debug)]
pub(super) struct Managers {
    pub(super) status: String,
    pub(super) finalizers: String,
    pub(super) validity: String,
}

/// An object as the API server returned it.
#[derive(Debug)]
pub struct Observed<K> {
    namespace: String,
    name: String,
    version: u64,
    tokens: Vec<String>,
    /// `metadata.uid`.
    pub uid: String,
    /// The object without `managedFields`, or the error if it does not decode.
    pub object: Result<Arc<K>, String>,
    /// Its finalizers, also if it does not decode.
    pub finalizers: Vec<String>,
    /// Whether it is being deleted, also if it does not decode.
    pub deleting: bool,
    /// The fields that our status manager owns.
    pub(super) held_status: Option<Box<str>>,
    /// The fields that our manager of the condition `Valid` owns.
    pub(super) held_validity: Option<Box<str>>,
}

impl Managers {
    pub(super) fn of(manager: &str) -> Self {
        Self {
            status: format!("{manager}-status"),
            finalizers: format!("{manager}-finalizers"),
            validity: format!("{manager}-validity"),
        }
    }
}

impl<K: Resource<DynamicType = ()>> Observed<K> {
    pub(super) fn of(
        DeserializeGuard(object): DeserializeGuard<K>,
        managers: &Managers,
        tokens: fn(&K) -> Vec<String>,
    ) -> Self {
        let metadata = match &object {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        };
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            version: version_number(metadata),
            tokens: object.as_ref().map(tokens).unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            held_status: owned_fields(metadata, &managers.status, Some("status")),
            held_validity: owned_fields(metadata, &managers.validity, Some("status")),
            object: object.map_err(|invalid| invalid.error).map(|mut object| {
                object.meta_mut().managed_fields = None;
                Arc::new(object)
            }),
        }
    }

    /// Kind, namespace and name.
    pub(super) fn describe(&self) -> String {
        format!("{} {}", K::kind(&()), full_name(&self.namespace, &self.name))
    }
}

impl<K: Send + Sync + 'static> Store<Observed<K>> {
    /// The keys of the objects for which `holds` returns true, without those that do not decode. It scans all objects.
    pub fn keys_where(&self, holds: impl Fn(&K) -> bool) -> Vec<Key> {
        let keys = self.keys().into_iter().map(|(namespace, name)| Key::new(namespace, name));
        let holds =
            |key: &Key| self.get(&key.namespace, &key.name).is_some_and(|it| it.object.as_deref().is_ok_and(&holds));
        keys.filter(holds).collect()
    }
}

impl<K: Resource<DynamicType = ()> + Serialize> Observed<K> {
    /// The object as JSON; null when it does not decode.
    pub(super) fn json(&self) -> Value {
        self.object.as_ref().ok().and_then(|object| serde_json::to_value(&**object).ok()).unwrap_or_default()
    }

    /// Its status with what a manager holds of it.
    pub(super) fn status(&self, held: Option<&str>) -> StatusState {
        let status = self.json().get_mut("status").map(Value::take).unwrap_or_default();
        StatusState { value: status, held: held.map(Into::into) }
    }
}

/// Returns the object without its resource version.
fn without_version<K: Resource<DynamicType = ()> + Serialize>(observed: &Observed<K>) -> Value {
    let mut json = observed.json();
    if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    json
}

/// True when both sides exist and differ in nothing but their version: there is nothing to reconcile.
pub(super) fn same<K: Resource<DynamicType = ()> + Serialize>(change: &Change<Observed<K>>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return false };
    old.deleting == new.deleting
        && old.object.as_ref().err() == new.object.as_ref().err()
        && old.held_status == new.held_status
        && old.held_validity == new.held_validity
        && without_version(old) == without_version(new)
}

impl<K: Send + Sync + 'static> Stored for Observed<K> {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn index_keys(&self) -> Vec<String> {
        self.tokens.clone()
    }
}
