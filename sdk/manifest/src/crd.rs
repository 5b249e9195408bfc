//! The conversion stanza of a custom resource definition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig, WebhookConversion,
};

use crate::ServiceRef;

/// Returns the CRD with the conversion webhook at `path` behind `service`.
///
/// Names and namespace are final, so no patch by kustomize or Helm is needed. The CA bundle is left out: its owner
/// publishes it, and applying the manifest again does not remove it.
#[must_use]
pub fn with_conversion(
    mut crd: CustomResourceDefinition,
    path: &str,
    service: &ServiceRef,
) -> CustomResourceDefinition {
    let service = ServiceReference {
        name: service.name.clone(),
        namespace: service.namespace.clone(),
        path: Some(path.to_owned()),
        port: Some(service.port.into()),
    };
    crd.spec.conversion = Some(CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(WebhookClientConfig { service: Some(service), ..WebhookClientConfig::default() }),
            conversion_review_versions: vec!["v1".to_owned()],
        }),
    });
    crd
}

/// Returns the CRD for a cluster without conversion webhook: only the storage version is served. Other versions would
/// be read with the wrong schema, and lose the fields that it does not have.
///
/// Applying it fails where the CRD had a conversion webhook: the CA bundle in the old stanza has another field manager,
/// which no apply removes. Replace `spec.conversion` first.
#[must_use]
pub fn without_conversion(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.served &= version.storage;
    }
    crd.spec.conversion = Some(CustomResourceConversion { strategy: "None".to_owned(), webhook: None });
    crd
}
