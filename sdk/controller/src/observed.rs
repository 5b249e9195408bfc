//! What is kept of the objects that a controller is for.

use std::sync::Arc;

use kube::Resource;
use kube::core::DeserializeGuard;
use serde::Serialize;
use serde_json::Value;

use super::apply::{StatusState, held_by, prune, version_number, without};
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
    /// What our status manager holds of it.
    pub(super) held_status: Option<Box<str>>,
    /// What our manager of the condition `Valid` holds of it.
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
            held_status: held_by(metadata, &managers.status, Some("status")),
            held_validity: held_by(metadata, &managers.validity, Some("status")),
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

impl<K: Resource<DynamicType = ()> + Serialize> Observed<K> {
    /// Whether this answer to a write of ours differs from the object `before` it in more than that write: somebody else
    /// changed the object in between. `finalizer` is what was written, if that was one.
    pub(super) fn changed_by_others(&self, before: &Self, finalizer: Option<&str>) -> bool {
        let held = [before, self].map(|it| [it.held_status.as_deref(), it.held_validity.as_deref()]);
        let held = held.concat().into_iter().flatten().filter_map(|held| serde_json::from_str(held).ok());
        let held: Vec<Value> = held.collect();
        let theirs = |observed: &Self| {
            let mut json = told(observed);
            if let Some(finalizers) = json.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
                finalizers.retain(|name| name.as_str() != finalizer);
            }
            // What is absent and what is null says the same here: a type may fill in either.
            prune(&mut json);
            for held in &held {
                without(&mut json, held);
            }
            json
        };
        self.uid != before.uid
            || self.deleting != before.deleting
            || self.object.as_ref().err() != before.object.as_ref().err()
            || theirs(self) != theirs(before)
    }
}

/// The object without its version.
fn told<K: Resource<DynamicType = ()> + Serialize>(observed: &Observed<K>) -> Value {
    let mut json = observed.json();
    if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    json
}

/// True when both sides exist and differ in nothing but their version: nobody needs to look.
pub(super) fn same<K: Resource<DynamicType = ()> + Serialize>(change: &Change<Observed<K>>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return false };
    old.deleting == new.deleting
        && old.object.as_ref().err() == new.object.as_ref().err()
        && old.held_status == new.held_status
        && old.held_validity == new.held_validity
        && told(old) == told(new)
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

    fn tokens(&self) -> Vec<String> {
        self.tokens.clone()
    }
}

#[cfg(test)]
mod tests {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "reconciler.example", version = "v1", kind = "Part", namespaced, status = "PartStatus")]
    struct PartSpec {
        size: u32,
    }

    #[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
    struct PartStatus {
        phase: Option<String>,
        theirs: Option<String>,
    }

    /// With this change made to it.
    fn part(change: &Value) -> Observed<Part> {
        let mut part = json!({
            "apiVersion": "reconciler.example/v1", "kind": "Part",
            "metadata": {"name": "a", "namespace": "team", "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": {"size": 1},
        });
        json_patch::merge(&mut part, change);
        Observed::of(serde_json::from_value(part).unwrap(), &Managers::of("parts"), |_| Vec::new())
    }

    fn held(fields: &Value) -> Value {
        json!([{"manager": "parts-status", "operation": "Apply", "subresource": "status", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": fields}}])
    }

    #[test]
    fn an_answer_to_a_write_tells_of_what_others_changed_in_between_and_of_nothing_else() {
        let written = json!({"metadata": {"resourceVersion": "9", "managedFields": held(&json!({"f:phase": {}}))}});
        let cases = [
            ("our status", json!({"status": {"phase": "On"}}), false),
            ("our finalizer", json!({"metadata": {"finalizers": ["ours"]}}), false),
            ("another's finalizer", json!({"metadata": {"finalizers": ["ours", "theirs"]}}), true),
            ("another's status", json!({"status": {"phase": "On", "theirs": "x"}}), true),
            ("the spec", json!({"spec": {"size": 2}, "metadata": {"generation": 2}, "status": {"phase": "On"}}), true),
            ("a label", json!({"metadata": {"labels": {"a": "b"}}}), true),
            ("a deletion", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), true),
            ("a successor", json!({"metadata": {"uid": "other"}}), true),
            ("what does not decode", json!({"spec": {"size": "large"}}), true),
        ];
        for (case, change, told) in cases {
            let mut after = written.clone();
            json_patch::merge(&mut after, &change);
            assert_eq!(part(&after).changed_by_others(&part(&json!({})), Some("ours")), told, "{case}");
        }
        // Of a status, no finalizer is expected to change.
        let with = part(&json!({"metadata": {"finalizers": ["ours"]}}));
        assert!(part(&json!({})).changed_by_others(&with, None), "somebody took it off");
        // What we stated before and state no more was ours, too.
        let before = part(&json!({
            "status": {"phase": "On", "theirs": "x"}, "metadata": {"managedFields": held(&json!({"f:phase": {}}))}
        }));
        let after = part(&json!({"status": {"theirs": "x"}, "metadata": {"resourceVersion": "9"}}));
        assert!(!after.changed_by_others(&before, None));
    }
}
