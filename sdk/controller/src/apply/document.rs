//! A child as it should be: one JSON document, ready to be applied.

use kube::Resource;
use kube::core::ApiResource;
use serde_json::{Map, Value, json};

use super::{FieldManager, digest};

/// The reason why a child's document cannot be applied. Every variant is a bug in the controller, not a state of the
/// cluster.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocumentError {
    /// A required field is missing.
    #[error("planned child lacks {0}")]
    Missing(&'static str),
    /// The document's kind is not one that this controller [owns](crate::Controller::owns).
    #[error("the controller does not own the kind {kind} of {api_version}: add .owns::<{kind}>() where it is defined")]
    UnknownKind {
        /// The document's `apiVersion`.
        api_version: String,
        /// The document's `kind`.
        kind: String,
    },
    /// The child cannot be serialised to JSON.
    #[error("planned child cannot be serialised to JSON: {0}")]
    Json(String),
}

/// A child's desired document, annotated with its digest.
#[derive(Clone, Debug)]
pub struct Desired {
    resource: ApiResource,
    namespace: String,
    name: String,
    digest: String,
    document: Value,
}

impl Desired {
    /// Takes a document of `resource` with `metadata.namespace` and `metadata.name`. Drops nulls and empty lists
    /// (server-side apply records no path for them), and adds the digest of the rest as an annotation.
    ///
    /// # Errors
    /// When one of these fields is missing.
    pub fn new(resource: &ApiResource, document: Value, field_manager: &FieldManager) -> Result<Self, DocumentError> {
        Self::of(resource, document, field_manager, true)
    }

    /// Does as [`new`](Self::new), for a kind that may be cluster-scoped.
    fn of(
        resource: &ApiResource,
        mut document: Value,
        field_manager: &FieldManager,
        namespaced: bool,
    ) -> Result<Self, DocumentError> {
        prune(&mut document);
        let members = document.as_object_mut().ok_or(DocumentError::Missing("every member"))?;
        members.insert("apiVersion".to_owned(), json!(resource.api_version));
        members.insert("kind".to_owned(), json!(resource.kind));
        let text = |pointer: &'static str, name| {
            document.pointer(pointer).and_then(Value::as_str).map(str::to_owned).ok_or(DocumentError::Missing(name))
        };
        let namespace = if namespaced { text("/metadata/namespace", "metadata.namespace")? } else { String::new() };
        let name = text("/metadata/name", "metadata.name")?;
        let digest = digest::of(&document);
        let annotations = document
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
            .map(|metadata| metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new())))
            .and_then(Value::as_object_mut)
            .ok_or(DocumentError::Missing("metadata.annotations as an object"))?;
        annotations.insert(field_manager.digest.to_owned(), Value::String(digest.clone()));
        Ok(Self { resource: resource.clone(), namespace, name, digest, document })
    }

    /// A child of `owner`, under its owner reference, which is added to the document: it is deleted when its owner is,
    /// before it when that is deleted in the foreground, and its changes enqueue its owner. A child that lives in a
    /// namespace is in its owner's; of an owner that lives in none, in the one that the document names.
    ///
    /// # Errors
    /// When a member is missing, or the owner was read from no cluster.
    pub(crate) fn child_of<K: Resource<DynamicType = ()>>(
        owner: &K,
        resource: &ApiResource,
        mut document: Value,
        field_manager: &FieldManager,
        namespaced: bool,
    ) -> Result<Self, DocumentError> {
        let mut reference =
            owner.controller_owner_ref(&()).ok_or(DocumentError::Missing("an owner with name and uid"))?;
        reference.block_owner_deletion = Some(true);
        let metadata = document
            .as_object_mut()
            .map(|members| members.entry("metadata").or_insert_with(|| Value::Object(Map::new())))
            .and_then(Value::as_object_mut)
            .ok_or(DocumentError::Missing("metadata as an object"))?;
        match &owner.meta().namespace {
            Some(namespace) => _ = metadata.insert("namespace".to_owned(), json!(namespace)),
            None if !namespaced => _ = metadata.remove("namespace"),
            None => {}
        }
        metadata.insert("ownerReferences".to_owned(), json!([reference]));
        Self::of(resource, document, field_manager, namespaced)
    }

    /// The child's kind.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// The child's namespace; empty for a cluster-scoped kind.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The child's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its controlling owner, from its owner references.
    pub fn owner(&self) -> Option<&str> {
        let references = self.document.pointer("/metadata/ownerReferences")?.as_array()?;
        references.iter().find(|reference| reference["controller"] == true)?["name"].as_str()
    }

    /// The digest that the applied child carries.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// The document to apply.
    pub fn document(&self) -> &Value {
        &self.document
    }
}

/// Drops null members and empty lists at every depth: server-side apply records no path for them. Empty objects stay:
/// `emptyDir: {}` means something.
pub(crate) fn prune(value: &mut Value) {
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
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};

    use super::*;

    fn field_manager() -> FieldManager {
        FieldManager::new("test")
    }

    #[test]
    fn a_document_is_pruned_stamped_and_addressed() {
        let document = json!({
            "metadata": {"name": "web", "namespace": "team", "labels": null},
            "spec": {"paused": null, "template": {"spec": {"containers": [], "volumes": [{"name": "t", "emptyDir": {}}]}}},
        });
        let field_manager = FieldManager { digest: "example.com/digest", ..field_manager() };
        let desired = Desired::new(&ApiResource::erase::<Deployment>(&()), document, &field_manager).unwrap();
        assert_eq!((&*desired.resource().plural, desired.namespace(), desired.name()), ("deployments", "team", "web"));
        assert_eq!(
            desired.document(),
            &json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "team", "annotations": {"example.com/digest": desired.digest()}},
                "spec": {"template": {"spec": {"volumes": [{"name": "t", "emptyDir": {}}]}}},
            })
        );
    }

    #[test]
    fn a_child_is_in_its_owners_namespace_and_names_its_owner() {
        let mut owner = ConfigMap::default();
        let (resource, child) = (ApiResource::erase::<Secret>(&()), json!({"metadata": {"name": "c"}}));
        let error =
            Desired::child_of(&owner, &resource, child.clone(), &field_manager(), true).unwrap_err().to_string();
        assert_eq!(error, "planned child lacks an owner with name and uid");
        owner.metadata.name = Some("o".into());
        owner.metadata.namespace = Some("team".into());
        owner.metadata.uid = Some("u".into());
        let desired = Desired::child_of(&owner, &resource, child, &field_manager(), true).unwrap();
        assert_eq!(desired.namespace(), "team");
        let reference = &desired.document()["metadata"]["ownerReferences"][0];
        assert_eq!(
            reference,
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "controller": true, "blockOwnerDeletion": true})
        );
        assert_eq!(desired.owner(), Some("o"));
    }

    #[test]
    fn a_child_of_a_cluster_scoped_owner_keeps_its_namespace() {
        let mut owner = Namespace::default();
        (owner.metadata.name, owner.metadata.uid) = (Some("o".into()), Some("u".into()));
        let child = |namespace: &Value, namespaced| {
            let (resource, document) =
                (ApiResource::erase::<Secret>(&()), json!({"metadata": {"name": "c", "namespace": namespace}}));
            Desired::child_of(&owner, &resource, document, &field_manager(), namespaced)
        };
        assert_eq!(child(&json!("team"), true).unwrap().namespace(), "team");
        assert_eq!(child(&json!(null), true).unwrap_err().to_string(), "planned child lacks metadata.namespace");
        let without = child(&json!("team"), false).unwrap();
        assert_eq!((without.namespace(), without.document()["metadata"].get("namespace")), ("", None));
    }

    #[test]
    fn what_cannot_be_addressed_is_refused_with_the_missing_member() {
        let cases = [
            (json!({"metadata": {"name": "a"}}), "planned child lacks metadata.namespace"),
            (json!({"metadata": {"namespace": "a"}}), "planned child lacks metadata.name"),
            (json!("no object"), "planned child lacks every member"),
        ];
        for (document, message) in cases {
            let resource = ApiResource::erase::<Service>(&());
            assert_eq!(Desired::new(&resource, document, &field_manager()).unwrap_err().to_string(), message);
        }
    }
}
