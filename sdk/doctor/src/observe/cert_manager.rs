//! cert-manager's objects.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::Reading;
use crate::snapshot::{Issuance, Look, Place};

/// The most Certificates whose issuers are looked at.
const CERTIFICATES: usize = 4;

/// The objects of cert-manager for this installation.
pub(super) async fn issuance(reading: &Reading<'_>) -> Look<Issuance> {
    let (reader, own) = (reading.reader, reading.view.subject.namespace());
    let resource = |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", kind));
    let crds = Api::<CustomResourceDefinition>::all(reader.client.clone());
    match reader.get(crds, "customresourcedefinitions", "certificates.cert-manager.io").await {
        Look::Seen(Some(_)) => {}
        other => return other.map(|_| Issuance::default()),
    }
    let certificates: Api<DynamicObject> = Api::namespaced_with(reader.client.clone(), own, &resource("Certificate"));
    let what = format!("certificates.cert-manager.io in namespace {own}");
    let certificates = match reader.list(certificates, what, ListParams::default()).await {
        Look::Seen(list) => list,
        blind => return blind.map(|_| Issuance::default()),
    };
    let mut issuers = BTreeMap::new();
    for certificate in certificates.iter().take(CERTIFICATES) {
        let text = |pointer: &str| certificate.data.pointer(pointer).and_then(Value::as_str);
        let kind = text("/spec/issuerRef/kind").unwrap_or("Issuer");
        let Some(name) = text("/spec/issuerRef/name") else { continue };
        let place: Place = (kind.to_owned(), name.to_owned());
        if issuers.contains_key(&place) {
            continue;
        }
        let (api, what): (Api<DynamicObject>, _) = if kind == "ClusterIssuer" {
            (Api::all_with(reader.client.clone(), &resource(kind)), "clusterissuers.cert-manager.io".to_owned())
        } else {
            let api = Api::namespaced_with(reader.client.clone(), own, &resource("Issuer"));
            (api, format!("issuers.cert-manager.io in namespace {own}"))
        };
        match reader.get(api, what, name).await {
            Look::Seen(issuer) => issuers.insert(place, issuer),
            blind => return blind.map(|_| Issuance::default()),
        };
    }
    let injectors = Api::<Deployment>::all(reader.client.clone());
    let labelled = ListParams::default().labels("app.kubernetes.io/name=cainjector");
    let injectors = reader.list(injectors, "deployments in all namespaces", labelled).await;
    let injectors = injectors.seen().map(|found| found.to_vec());
    Look::Seen(Issuance { installed: true, certificates, issuers, injectors })
}
