//! cert-manager's objects.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::read::Reader;
use crate::snapshot::{Issuance, Look, Place};
use crate::subject::Subject;
use portcullis_manifest::CertificateMode;

/// The most Certificates whose issuers are looked at.
const CERTIFICATES: usize = 4;

/// What cert-manager has for this installation.
pub(super) async fn issuance(reader: &Reader, subject: &Subject) -> Look<Issuance> {
    let own = subject.namespace();
    let resource = |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", kind));
    let crds = Api::<CustomResourceDefinition>::all(reader.client.clone());
    let found = reader.get(crds, "customresourcedefinitions", "certificates.cert-manager.io").await;
    match found {
        Look::Seen(Some(_)) => {}
        Look::Seen(None) => return Look::default(),
        Look::Refused(_) if subject.installation.certificates != CertificateMode::CertManager => {
            return Look::default();
        }
        blind => return blind.map(|_| Issuance::default()),
    }
    let certificates: Api<DynamicObject> = Api::namespaced_with(reader.client.clone(), own, &resource("Certificate"));
    let what = format!("certificates.cert-manager.io in namespace {own}");
    let certificates = match reader.list(certificates, what, ListParams::default()).await {
        Look::Seen(list) => list.items,
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
        let issuer = reader.get(api, what, name).await;
        issuers.insert(place, issuer);
    }
    let injectors = Api::<Deployment>::all(reader.client.clone());
    let labelled = ListParams::default().labels("app.kubernetes.io/name=cainjector");
    let injectors = reader.list(injectors, "deployments in all namespaces", labelled).await;
    Look::Seen(Issuance { installed: true, certificates, issuers, injectors })
}
