//! A child as it should be: one JSON document, ready to be applied.

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{ConfigMap, Service, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::api::ApiResource;
use serde_json::{Map, Value};

use super::{digest, names};

/// The kinds of children this operator makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ChildKind {
    /// `v1` ConfigMap.
    ConfigMap,
    /// `v1` Service.
    Service,
    /// `v1` ServiceAccount.
    ServiceAccount,
    /// `rbac.authorization.k8s.io/v1` Role.
    Role,
    /// `rbac.authorization.k8s.io/v1` RoleBinding.
    RoleBinding,
    /// `apps/v1` Deployment.
    Deployment,
    /// `apps/v1` StatefulSet.
    StatefulSet,
}

/// Why a planned document cannot be applied. Every variant is a defect of the plan, not of the cluster.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocumentError {
    /// `apiVersion` and `kind` name nothing that this operator makes.
    #[error("planned child has apiVersion {api_version:?} and kind {kind:?}, which this operator does not make")]
    UnknownKind {
        /// The document's `apiVersion`.
        api_version: String,
        /// The document's `kind`.
        kind: String,
    },
    /// A member without which no apply can be addressed.
    #[error("planned child lacks {0}")]
    Missing(&'static str),
}

/// A child's desired document with its digest stamped on it.
#[derive(Clone, Debug)]
pub struct Desired {
    kind: ChildKind,
    namespace: String,
    name: String,
    digest: String,
    document: Value,
}

// === impl ChildKind ===

impl ChildKind {
    /// All kinds, in no particular order.
    pub const ALL: [Self; 7] = [
        Self::ConfigMap,
        Self::Service,
        Self::ServiceAccount,
        Self::Role,
        Self::RoleBinding,
        Self::Deployment,
        Self::StatefulSet,
    ];

    /// Group, version, kind and plural as the API server names them.
    pub fn api_resource(self) -> ApiResource {
        match self {
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            Self::Service => ApiResource::erase::<Service>(&()),
            Self::ServiceAccount => ApiResource::erase::<ServiceAccount>(&()),
            Self::Role => ApiResource::erase::<Role>(&()),
            Self::RoleBinding => ApiResource::erase::<RoleBinding>(&()),
            Self::Deployment => ApiResource::erase::<Deployment>(&()),
            Self::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        }
    }

    /// The kind with this `apiVersion` and `kind`.
    pub fn find(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|candidate| {
            let resource = candidate.api_resource();
            resource.api_version == api_version && resource.kind == kind
        })
    }
}

// === impl Desired ===

impl Desired {
    /// Takes a document with `apiVersion`, `kind`, `metadata.namespace` and `metadata.name`; drops null members and
    /// empty lists (server-side apply records no path for them), and stamps the digest of the rest.
    pub fn new(mut document: Value) -> Result<Self, DocumentError> {
        prune(&mut document);
        let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let api_version = text("/apiVersion").ok_or(DocumentError::Missing("apiVersion"))?;
        let kind = text("/kind").ok_or(DocumentError::Missing("kind"))?;
        let namespace = text("/metadata/namespace").ok_or(DocumentError::Missing("metadata.namespace"))?;
        let name = text("/metadata/name").ok_or(DocumentError::Missing("metadata.name"))?;
        let kind = ChildKind::find(&api_version, &kind).ok_or(DocumentError::UnknownKind { api_version, kind })?;
        let digest = digest::of(&document);
        let annotations = document
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
            .map(|metadata| metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new())))
            .and_then(Value::as_object_mut)
            .ok_or(DocumentError::Missing("metadata.annotations as an object"))?;
        annotations.insert(names::APPLIED_DIGEST.to_owned(), Value::String(digest.clone()));
        Ok(Self { kind, namespace, name, digest, document })
    }

    /// The child's kind.
    pub fn kind(&self) -> ChildKind {
        self.kind
    }

    /// The child's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The child's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The digest that the applied child carries.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The document as it is sent.
    pub fn document(&self) -> &Value {
        &self.document
    }
}

/// Drops null members and empty lists at every depth: server-side apply records no path for them. Empty objects stay:
/// `emptyDir: {}` means something.
pub fn prune(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| {
                prune(member);
                !member.is_null() && !member.as_array().is_some_and(Vec::is_empty)
            });
        }
        Value::Array(elements) => elements.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_pruned_stamped_and_addressed() {
        let desired = Desired::new(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "team", "labels": null},
            "spec": {"paused": null, "template": {"spec": {"containers": [], "volumes": [{"name": "t", "emptyDir": {}}]}}},
        }))
        .unwrap();
        assert_eq!((desired.kind(), desired.namespace(), desired.name()), (ChildKind::Deployment, "team", "web"));
        assert_eq!(
            desired.document(),
            &json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "team", "annotations": {names::APPLIED_DIGEST: desired.digest()}},
                "spec": {"template": {"spec": {"volumes": [{"name": "t", "emptyDir": {}}]}}},
            })
        );
    }

    #[test]
    fn what_cannot_be_addressed_is_refused_with_the_missing_member() {
        let error = |document| Desired::new(document).unwrap_err().to_string();
        assert_eq!(
            error(json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "b"}})),
            "planned child has apiVersion \"v1\" and kind \"Pod\", which this operator does not make"
        );
        assert_eq!(
            error(json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "a"}})),
            "planned child lacks metadata.namespace"
        );
    }

    #[test]
    fn every_kind_is_found_by_its_own_names() {
        for kind in ChildKind::ALL {
            let resource = kind.api_resource();
            assert_eq!(ChildKind::find(&resource.api_version, &resource.kind), Some(kind));
        }
        assert_eq!(ChildKind::find("v1", "Deployment"), None);
    }
}
