//! Plans the migration of one CRD from its versions.

use aws_lc_rs::digest::{SHA256, digest};
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::MigrateError;

/// The versions of one kind, as its CRD had them when the migration began.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The resource to request: in the storage version where that is served.
    pub(crate) resource: ApiResource,
    /// The storage version as `group/version`.
    pub(crate) group_version: String,
    /// Whether the storage version can be asked for.
    pub(crate) served: bool,
    /// The version in which objects are written.
    pub(crate) storage: String,
    /// The versions that there may be objects in.
    pub(crate) stored: Vec<String>,
    generation: i64,
}

impl Plan {
    pub(crate) fn of(crd: &CustomResourceDefinition) -> Result<Self, MigrateError> {
        let spec = &crd.spec;
        let name = || crd.metadata.name.clone().unwrap_or_default();
        let Some(storage) = spec.versions.iter().find(|version| version.storage) else {
            return Err(MigrateError::NoStorageVersion { crd: name() });
        };
        let served = if storage.served { Some(storage) } else { spec.versions.iter().find(|version| version.served) };
        let served = served.ok_or_else(|| MigrateError::NotServed { crd: name() })?;
        let kind = GroupVersionKind::gvk(&spec.group, &served.name, &spec.names.kind);
        let stored = crd.status.as_ref().and_then(|status| status.stored_versions.clone()).unwrap_or_default();
        Ok(Self {
            resource: ApiResource::from_gvk_with_plural(&kind, &spec.names.plural),
            group_version: format!("{}/{}", spec.group, storage.name),
            served: storage.served,
            storage: storage.name.clone(),
            stored,
            generation: crd.metadata.generation.unwrap_or_default(),
        })
    }

    /// Whether nothing is stored in another version.
    pub(crate) fn settled(&self) -> bool {
        self.stored == [self.storage.as_str()]
    }

    /// Whether the API server says of the storage version that it stores in it. It does so by a hash: the first eight
    /// bytes of the SHA-256 of group/version/kind (apiserver's `discovery.StorageVersionHash`).
    pub(crate) fn stored_as(&self, resources: &APIResourceList) -> bool {
        let (group_version, kind) = (&self.group_version, &self.resource.kind);
        let hash = digest(&SHA256, format!("{group_version}/{kind}").as_bytes());
        let wanted = serde_json::to_value(ByteString(hash.as_ref().iter().take(8).copied().collect())).ok();
        let said = resources.resources.iter().find(|resource| resource.name == self.resource.plural);
        let said = said.and_then(|resource| resource.storage_version_hash.as_deref());
        said.is_some() && said == wanted.as_ref().and_then(Value::as_str)
    }

    /// The JSON patch that leaves the storage version alone in `status.storedVersions`. It fails when anything was
    /// changed in the CRD since it was read: with another storage version in between, there may be objects in that one,
    /// even if the list still is what it was.
    pub(crate) fn prune(&self) -> Value {
        json!([
            { "op": "test", "path": "/metadata/generation", "value": self.generation },
            { "op": "test", "path": "/status/storedVersions", "value": self.stored },
            { "op": "replace", "path": "/status/storedVersions", "value": [self.storage] },
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(versions: Value, stored: Value) -> CustomResourceDefinition {
        serde_json::from_value(json!({
            "metadata": { "name": "people.demo.example", "generation": 7 },
            "spec": { "group": "demo.example", "scope": "Namespaced", "names": { "kind": "Person", "plural": "people" }, "versions": versions },
            "status": { "storedVersions": stored },
        }))
        .unwrap()
    }

    fn version(name: &str, served: bool, storage: bool) -> Value {
        json!({ "name": name, "served": served, "storage": storage })
    }

    #[test]
    fn objects_are_read_in_the_storage_or_a_served_version() {
        let asked = |versions| Plan::of(&crd(versions, json!(["v1"]))).map(|plan| plan.resource.api_version);
        let (old, new) = (version("v1", true, false), version("v2", true, true));
        assert_eq!(asked(json!([old, new])).unwrap(), "demo.example/v2");
        assert_eq!(asked(json!([version("v2", false, true), old])).unwrap(), "demo.example/v1");
        for (versions, problem) in [
            (
                json!([version("v2", false, true)]),
                "CRD people.demo.example serves no version: its objects cannot be read",
            ),
            (json!([old]), "CRD people.demo.example has no storage version"),
        ] {
            assert_eq!(asked(versions).unwrap_err().to_string(), problem);
        }
    }

    #[test]
    fn versions_are_pruned_only_from_the_crd_that_was_read() {
        let crd = crd(json!([version("v1", true, false), version("v2", true, true)]), json!(["v1", "v2"]));
        let plan = Plan::of(&crd).unwrap();
        assert!(!plan.settled());
        assert_eq!(
            plan.prune(),
            json!([
                { "op": "test", "path": "/metadata/generation", "value": 7 },
                { "op": "test", "path": "/status/storedVersions", "value": ["v1", "v2"] },
                { "op": "replace", "path": "/status/storedVersions", "value": ["v2"] },
            ])
        );
    }
}
