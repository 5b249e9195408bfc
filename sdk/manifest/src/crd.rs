//! The conversion stanza of a custom resource definition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig, WebhookConversion,
};

use crate::ServiceRef;

/// The same CRD, whose objects are converted between its versions by the webhook at `path` behind `service`.
///
/// Names and namespace are final: nothing has to be filled in by a patch of kustomize or Helm. The CA bundle is left
/// out: its owner publishes it, and the manifest can be applied again without taking it out.
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

/// The same CRD for a cluster in which nobody converts: only the version that is stored is served. The others would be
/// read with the wrong schema, and lose what it does not know.
///
/// Where it was converted before, applying this is refused: the bundle in the old stanza belongs to who published it,
/// and no apply takes it away. `spec.conversion` has to be replaced first.
#[must_use]
pub fn without_conversion(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.served &= version.storage;
    }
    crd.spec.conversion = Some(CustomResourceConversion { strategy: "None".to_owned(), webhook: None });
    crd
}
