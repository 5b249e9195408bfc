//! The CRDs: what the derive says of each kind, finished to the contract.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use crate::{names::AUTO_MIGRATE_STORAGE_VERSION_LABEL, v1alpha1, v1beta1};

/// The definitions of every kind of this crate, sorted by name, ready to be applied.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let newer = v1beta1::derived().into_iter().map(with_deprecated_v1alpha1);
    let mut all: Vec<_> = v1alpha1::derived().into_iter().chain(newer).map(finished).collect();
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}

/// Serves the one version of `crd` as `v1alpha1` too, with the same schema and a warning for who uses it.
///
/// No conversion is declared: the API server changes `apiVersion` and nothing else.
fn with_deprecated_v1alpha1(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let older = crd.spec.versions.first().map(|stored| {
        let mut older = stored.clone();
        older.name = "v1alpha1".into();
        older.storage = false;
        older.deprecated = Some(true);
        older.deprecation_warning = Some(format!("{}/v1alpha1 is deprecated; use {}", crd.spec.group, stored.name));
        older
    });
    crd.spec.versions.splice(0..0, older);
    crd
}

/// Removes from a derived CRD what the contract does not say, and labels it.
fn finished(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.metadata.labels.get_or_insert_default().insert(AUTO_MIGRATE_STORAGE_VERSION_LABEL.into(), "true".into());
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|validation| validation.open_api_v3_schema.as_mut()) {
            root.title = None;
            // The derive requires `spec`; the contract admits objects without one.
            root.required = None;
            remove_nullable(root);
        }
    }
    crd
}

/// Removes `nullable` everywhere: the derive sets it for every `Option`, while here an absent member is simply absent.
fn remove_nullable(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        remove_nullable(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        remove_nullable(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        remove_nullable(values);
    }
}
