//! Files for kustomize.

use serde_json::{Value, json};

/// A kustomization of these files, in their order.
///
/// It rewrites nothing: every name and namespace in the files is final, because kustomize does not know all references
/// between them (the Service in a CRD's conversion, names in roles and in arguments). An overlay can change what
/// nothing else refers to: image, replicas, resources.
pub fn kustomization<'a>(files: impl IntoIterator<Item = &'a str>) -> Value {
    json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": files.into_iter().collect::<Vec<_>>(),
    })
}
