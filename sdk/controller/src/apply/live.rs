//! The part of a live object that is kept: only the fields that the decision to write needs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;

/// The field manager of a controller's children, and how the controller recognises them.
#[derive(Clone, Debug)]
pub struct FieldManager {
    /// Field manager of the applies; a merge patch that has to precede one uses `<name>-merge`.
    pub name: String,
    /// Annotation with the digest of the last applied document.
    pub digest: &'static str,
    /// Finds what others hold of an object and must not: an apply leaves fields of others beside ours. From the kind of
    /// the object, the `fieldsV1` of another manager's entry and that of our own, it makes the strategic merge patch
    /// that takes such fields away, if the other holds any. The API server takes such patches of built-in kinds alone.
    pub exclusive: fn(&str, &Value, &Value) -> Option<Value>,
}

/// The part of a live object that decides whether it is written: about a tenth of its metadata, without the
/// `managedFields` of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion` as a number.
    pub version: u64,
    /// The digest annotation, if the object has one.
    pub digest: Option<String>,
    /// The `uid` of the owner with `controller: true`.
    pub controller: Option<String>,
    /// The manager that applied an object without such an owner, and so may treat it as a child.
    pub field_manager: Option<String>,
    /// Whether it has a `deletionTimestamp`.
    pub deleting: bool,
    /// The `fieldsV1` of our own apply entry, as compact JSON.
    pub owned_fields: Option<Box<str>>,
    /// The patches that take away what others hold and [must not](FieldManager::exclusive).
    pub foreign: Vec<Value>,
}

impl FieldManager {
    /// The default digest annotation.
    pub const DIGEST: &'static str = "portcullis.dev/applied-digest";

    /// Creates a field manager that leaves the fields of others alone.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), digest: Self::DIGEST, exclusive: |_, _, _| None }
    }

    /// Reads the part of a live object of this kind that the decision needs, from its `metadata`.
    pub fn read(&self, kind: &str, metadata: &ObjectMeta) -> Live {
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let controller = owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone());
        let owned_fields = owned_fields(metadata, &self.name, None);
        let ours = controller.is_none() && owned_fields.is_some();
        Live {
            uid: metadata.uid.clone().unwrap_or_default(),
            version: version_number(metadata),
            digest: metadata.annotations.as_ref().and_then(|all| all.get(self.digest)).cloned(),
            controller,
            field_manager: ours.then(|| self.name.clone()),
            deleting: metadata.deletion_timestamp.is_some(),
            foreign: self.foreign(kind, metadata),
            owned_fields,
        }
    }

    fn foreign(&self, kind: &str, metadata: &ObjectMeta) -> Vec<Value> {
        let (ours, others) = self.entries(metadata);
        others.into_iter().filter_map(|(_, theirs)| (self.exclusive)(kind, theirs, ours)).collect()
    }

    /// The `fieldsV1` of our own apply entry, and of all others with their field managers, but for those of
    /// subresources.
    pub(super) fn entries<'a>(&self, metadata: &'a ObjectMeta) -> (&'a Value, Vec<(&'a str, &'a Value)>) {
        let entries = metadata.managed_fields.as_deref().unwrap_or_default().iter();
        let entries = entries.filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty());
        let is_ours = |entry: &&ManagedFieldsEntry| {
            entry.manager.as_deref() == Some(&*self.name) && entry.operation.as_deref() == Some("Apply")
        };
        let (ours, others): (Vec<_>, Vec<_>) = entries.partition(is_ours);
        let ours = ours.first().and_then(|entry| entry.fields_v1.as_ref()).map_or(&Value::Null, |fields| &fields.0);
        let held = others
            .into_iter()
            .filter_map(|entry| Some((entry.manager.as_deref().unwrap_or_default(), &entry.fields_v1.as_ref()?.0)));
        (ours, held.collect())
    }
}

/// `resourceVersion` as a number (comparable within one resource); 0 when absent or not one.
pub fn version_number(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// The `fieldsV1` of `manager`'s apply entry for `subresource`, as compact JSON.
pub(crate) fn owned_fields(metadata: &ObjectMeta, manager: &str, subresource: Option<&str>) -> Option<Box<str>> {
    metadata
        .managed_fields
        .as_deref()
        .unwrap_or_default()
        .iter()
        .find(|entry| {
            entry.manager.as_deref() == Some(manager)
                && entry.operation.as_deref() == Some("Apply")
                && entry.subresource.as_deref().filter(|name| !name.is_empty()) == subresource
        })
        .and_then(|entry| entry.fields_v1.as_ref())
        .map(|fields| fields.0.to_string().into_boxed_str())
}
