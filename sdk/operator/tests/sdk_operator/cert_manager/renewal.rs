//! Leaf and authority are renewed.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use portcullis::certificates::ProvidedBy;
use portcullis::manifest::{IssuedCertificate, IssuerRef};
use portcullis_pki::{Certificate, bundle_fingerprints};
use portcullis_testing::{CertManager, wait_for_object, wait_until};
use serde_json::{Value, json};

use crate::PATIENCE;
use crate::external::fixture::{Place, Serving};
use crate::external::load::Load;

fn certificates(place: &Place) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"));
    Api::namespaced_with(place.admin.clone(), &place.name, &kind)
}

fn text(secret: &Secret, key: &str) -> String {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    value.map(|value| String::from_utf8(value.0.clone()).unwrap()).unwrap_or_default()
}

/// Has cert-manager issue a Certificate again, as its own `cmctl renew` does, and returns when its Secret is another.
async fn renew(place: &Place, certificate: &str) {
    let before = text(&place.secrets().get(certificate).await.unwrap(), "tls.crt");
    let certificates = certificates(place);
    let live = certificates.get(certificate).await.unwrap();
    let mut conditions = live.data["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(json!({
        "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    let status = json!({ "status": { "conditions": conditions } });
    certificates.patch_status(certificate, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let changed = |secret: &Secret| text(secret, "tls.crt") != before;
    wait_for_object(&place.secrets(), certificate, "a renewed certificate", PATIENCE, changed).await;
}

/// Returns when the pair that is in the Secret now is served.
async fn served(place: &Place, serving: &Serving) {
    wait_until("the renewed certificate to be served", PATIENCE, || async {
        let stored = place.secrets().get("pair").await.unwrap();
        let ends = Certificate::from_pem(text(&stored, "tls.crt").as_bytes()).unwrap().not_after.as_second();
        let metric = "portcullis_certificate_not_after_seconds{certificate=\"leaf\"}";
        (serving.metric(metric) == ends.to_string()).then_some(())
    })
    .await;
}

/// The authorities that callers trust by the first entry of the configuration.
async fn trusted(place: &Place) -> usize {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(place.admin.clone());
    let configuration = configurations.get(&place.name).await.unwrap();
    let bundle = configuration.webhooks.unwrap().remove(0).client_config.ca_bundle.unwrap();
    bundle_fingerprints(&bundle.0).unwrap().len()
}

/// A CRD whose objects the operator is said to convert, with the annotation.
fn crd(place: &Place, name: &str, port: u16, from: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": name, "annotations": { "cert-manager.io/inject-ca-from": from } },
        "spec": {
            "group": name.split_once('.').unwrap().1, "scope": "Namespaced",
            "names": { "kind": "Gate", "plural": "gates", "singular": "gate" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
            "conversion": { "strategy": "Webhook", "webhook": { "conversionReviewVersions": ["v1"], "clientConfig": {
                "service": { "name": "webhook", "namespace": place.name, "path": "/convert", "port": port } } } },
        },
    })
}

/// An operator whose certificates cert-manager makes, in the API server's way, under load.
async fn start(issuer: Option<IssuerRef>, more: &[Value]) -> (Place, Serving, Load) {
    let mut place = Place::new(ProvidedBy::CertManager).await;
    CertManager::shared().await;
    let crd_name = format!("gates.{}.example", place.name);
    place.crds = vec![crd_name.clone()];
    for object in more {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(place.name);
        place.cluster.apply(&[object]).await;
    }
    // As the generator prints it.
    let wanted = IssuedCertificate {
        name: "pair".to_owned(),
        namespace: place.name.clone(),
        dns_names: vec![place.server_name()],
        issuer,
    };
    place.cluster.apply(&wanted.manifests()).await;
    let full = |secret: &Secret| !text(secret, "tls.crt").is_empty() && !text(secret, "ca.crt").is_empty();
    wait_for_object(&place.secrets(), "pair", "a certificate", PATIENCE, full).await;

    let serving = place.serve().await;
    let port = serving.address.port();
    place.cluster.apply(&[crd(&place, &crd_name, port, &wanted.inject_ca_from())]).await;
    let annotations = json!({ "cert-manager.io/inject-ca-from": wanted.inject_ca_from() });
    let configuration = place.manifest(&[("one", None), ("two", None)], annotations);
    place.cluster.install_webhooks(&[configuration], port).await;
    let configurations = place.configurations();
    let mut missing = String::new();
    let published = serving.bundle.wait_until_published(&configurations, |said| said.clone_into(&mut missing));
    tokio::time::timeout(PATIENCE, published).await.unwrap_or_else(|_| panic!("waited in vain for {missing}"));
    let crds: Api<CustomResourceDefinition> = Api::all(place.admin.clone());
    let conversion = crds.get(&crd_name).await.unwrap().spec.conversion.unwrap();
    assert!(conversion.webhook.unwrap().client_config.unwrap().ca_bundle.is_some());
    place.in_force().await;
    let load = Load::start(&place.admin, &place.name);
    load.go_on(20).await;
    (place, serving, load)
}

// D4: the chain that `generate certificates` makes: self-signed root, an Issuer of type CA, the serving certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaf_and_its_authority_are_renewed_without_a_lost_call() {
    let (place, serving, load) = start(None, &[]).await;
    renew(&place, "pair").await;
    served(&place, &serving).await;
    load.go_on(20).await;
    assert_eq!(trusted(&place).await, 1);

    // Renewed with its key, as generated: what it signed before goes on being trusted, and nothing else happens
    // (cert-manager#2478) until the leaf is renewed.
    renew(&place, "pair-root").await;
    load.go_on(20).await;
    renew(&place, "pair").await;
    served(&place, &serving).await;
    load.go_on(20).await;

    // Created again with another key.
    let spec = json!({ "spec": { "privateKey": { "rotationPolicy": "Always" } } });
    certificates(&place).patch("pair-root", &PatchParams::default(), &Patch::Merge(spec)).await.unwrap();
    renew(&place, "pair-root").await;
    load.go_on(20).await;
    renew(&place, "pair").await;
    served(&place, &serving).await;
    load.go_on(40).await;
    assert!(trusted(&place).await > 1, "the injector keeps the former authorities");
    assert_eq!(serving.reload_failures(), 0);
    assert!(load.end().await > 140);
}

// cert-manager#5519: an issuer of the user's own that is self-signed, so that each leaf is its own authority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_users_self_signed_issuer_renews_without_a_lost_call() {
    let issuer = json!({ "apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": { "name": "mine" }, "spec": { "selfSigned": {} } });
    let (place, serving, load) = start(Some("Issuer/mine".parse().unwrap()), &[issuer]).await;
    for _ in 0..2 {
        renew(&place, "pair").await;
        served(&place, &serving).await;
        load.go_on(40).await;
    }
    load.end().await;
}

// A certificate that cert-manager cannot issue is reported, and the operator serves the previous pair.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_certificate_request_is_reported_by_name() {
    let (place, serving, load) = start(None, &[]).await;
    let names = json!({ "spec": { "dnsNames": ["elsewhere.svc"] } });
    certificates(&place).patch("pair", &PatchParams::default(), &Patch::Merge(names)).await.unwrap();
    wait_until("the certificate to be refused", PATIENCE, || async { (serving.reload_failures() > 0).then_some(()) })
        .await;
    let error = place.source().ensure().await.unwrap_err().to_string();
    let cure = format!("add '{}' to spec.dnsNames of Certificate {}/pair", place.server_name(), place.name);
    assert!(error.ends_with(&cure) && error.contains("(it names: elsewhere.svc)"), "{error}");
    load.go_on(20).await;
    load.end().await;
}
