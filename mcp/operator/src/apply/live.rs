//! What is kept of an object that exists: only what the decision to write needs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::names;

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
    /// Carries `toolhive: "true"`: made by this platform, by us or by the upstream's runner.
    pub platform: bool,
    /// Has a `deletionTimestamp`.
    pub deleting: bool,
    /// The `fieldsV1` of our own apply entry, as compact JSON.
    pub held: Option<Box<str>>,
}

impl Live {
    /// Reads the traces from `metadata`; `manager` is our field manager.
    pub fn read(metadata: &ObjectMeta, manager: &str) -> Self {
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            version: version_number(metadata),
            digest: metadata.annotations.as_ref().and_then(|all| all.get(names::APPLIED_DIGEST)).cloned(),
            controller: owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()),
            platform: metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get("toolhive"))
                .is_some_and(|value| value == "true"),
            deleting: metadata.deletion_timestamp.is_some(),
            held: held_by(metadata, manager, None),
        }
    }
}

/// `resourceVersion` as a number (comparable within one resource); 0 when absent or not one.
pub fn version_number(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// The `fieldsV1` of `manager`'s apply entry for `subresource`, as compact JSON.
pub(super) fn held_by(metadata: &ObjectMeta, manager: &str, subresource: Option<&str>) -> Option<Box<str>> {
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
