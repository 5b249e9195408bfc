//! The owner of a workload's children, and the precedence of labels.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_core::Resource;

/// The owner of children: what every one of them needs to know of its workload.
#[derive(Clone, Debug)]
pub struct Owner<'a> {
    /// The workload's name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its uid.
    pub uid: &'a str,
    kind: Cow<'static, str>,
    api_version: Cow<'static, str>,
}

impl<'a> Owner<'a> {
    /// A fetched object always has a name, a namespace and a uid.
    pub fn of<W: Resource<DynamicType = ()>>(workload: &'a W) -> Self {
        let metadata = workload.meta();
        Self {
            name: metadata.name.as_deref().unwrap_or_default(),
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            uid: metadata.uid.as_deref().unwrap_or_default(),
            kind: W::kind(&()),
            api_version: W::api_version(&()),
        }
    }

    /// Metadata of a child: its name, its labels, its owner.
    pub fn metadata(&self, name: &str, labels: BTreeMap<String, String>) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(self.namespace.to_owned()),
            labels: some(labels),
            owner_references: Some(vec![OwnerReference {
                api_version: self.api_version.clone().into_owned(),
                kind: self.kind.clone().into_owned(),
                name: self.name.to_owned(),
                uid: self.uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        }
    }
}

/// Merges the values of the operator and a user; for a key that both set, the operator's value counts.
pub fn merged(operator: BTreeMap<String, String>, user: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut all = user.cloned().unwrap_or_default();
    all.extend(operator);
    all
}

/// A map to write: absent rather than empty.
pub fn some(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    if map.is_empty() { None } else { Some(map) }
}
