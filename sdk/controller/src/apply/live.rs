//! What is kept of an object that exists: only what the decision to write needs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// How a controller marks the objects that it makes, and knows them again.
#[derive(Clone, Debug)]
pub struct FieldManager {
    /// Field manager of its writes; `<manager>-merge` is the one of the merges that make way for them.
    pub name: String,
    /// Annotation that holds the digest of the document that was applied last.
    pub digest: &'static str,
    /// Says of an object without an owner that our manager never applied that a predecessor of this operator made it, so
    /// that it may be taken over.
    pub adopts: fn(&ObjectMeta) -> bool,
}

/// The traces that matter of a live object. About a tenth of its metadata: `managedFields` of others are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion` as a number.
    pub version: u64,
    /// The digest annotation, when the object carries one.
    pub digest: Option<String>,
    /// The `uid` of the owner with `controller: true`.
    pub controller: Option<String>,
    /// Of an object without such an owner: the manager that may take it for a child, because it applied it or
    /// [adopts](FieldManager::adopts) it.
    pub maker: Option<String>,
    /// Has a `deletionTimestamp`.
    pub deleting: bool,
    /// The `fieldsV1` of our own apply entry, as compact JSON.
    pub held: Option<Box<str>>,
}

impl FieldManager {
    /// The annotation that is used unless another is said.
    pub const DIGEST: &'static str = "portcullis.dev/applied-digest";

    /// The marks of one field manager. Nothing is taken over.
    pub fn of(name: impl Into<String>) -> Self {
        Self { name: name.into(), digest: Self::DIGEST, adopts: |_| false }
    }

    /// Reads the traces from `metadata`.
    pub fn read(&self, metadata: &ObjectMeta) -> Live {
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let controller = owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone());
        let held = held_by(metadata, &self.name, None);
        let ours = controller.is_none() && (held.is_some() || (self.adopts)(metadata));
        Live {
            uid: metadata.uid.clone().unwrap_or_default(),
            version: version_number(metadata),
            digest: metadata.annotations.as_ref().and_then(|all| all.get(self.digest)).cloned(),
            controller,
            maker: ours.then(|| self.name.clone()),
            deleting: metadata.deletion_timestamp.is_some(),
            held,
        }
    }
}

/// `resourceVersion` as a number (comparable within one resource); 0 when absent or not one.
pub fn version_number(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// The `fieldsV1` of `manager`'s apply entry for `subresource`, as compact JSON.
pub(crate) fn held_by(metadata: &ObjectMeta, manager: &str, subresource: Option<&str>) -> Option<Box<str>> {
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
