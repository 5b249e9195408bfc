//! The real cert-manager issues, injects and ends with its owner.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use portcullis_testing::{CertManager, ControlPlane, wait_for_object, wait_until};
use serde_json::json;

#[tokio::test]
async fn it_issues_a_certificate_and_fills_in_its_ca() {
    let cluster = ControlPlane::shared().await;
    CertManager::shared().await;
    let namespace = cluster.namespace("issued").await;
    let certificate = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": { "name": "serving", "namespace": namespace },
        "spec": { "secretName": "serving-tls", "dnsNames": [format!("webhook.{namespace}.svc")], "issuerRef": { "name": "self" } },
    });
    let issuer = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Issuer",
        "metadata": { "name": "self", "namespace": namespace }, "spec": { "selfSigned": {} },
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": namespace, "annotations": { "cert-manager.io/inject-ca-from": format!("{namespace}/serving") } },
        "webhooks": [{
            "name": "any.demo.example", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
            "clientConfig": { "service": { "name": "webhook", "namespace": namespace, "path": "/" } },
            "rules": [{ "apiGroups": ["none.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nones"] }],
        }],
    });
    cluster.apply(&[issuer, certificate, configuration]).await;

    let patience = Duration::from_mins(2);
    let secrets: Api<Secret> = Api::namespaced(cluster.admin(), &namespace);
    let filled =
        |secret: &Secret| secret.data.iter().flatten().any(|(key, value)| key == "tls.crt" && !value.0.is_empty());
    let secret = wait_for_object(&secrets, "serving-tls", "a certificate", patience, filled).await;
    let ca = secret.data.unwrap().remove("ca.crt").unwrap();
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin());
    wait_for_object(&configurations, &namespace, "the CA", patience, |configuration| {
        configuration.webhooks.iter().flatten().all(|webhook| webhook.client_config.ca_bundle.as_ref() == Some(&ca))
    })
    .await;
}

#[tokio::test]
async fn dropping_it_ends_its_process_and_removes_its_directory() {
    // One for each control plane: the other test has that of the shared one.
    let cluster = ControlPlane::shared_with_controller_manager().await;
    let cert_manager = CertManager::start(cluster).await.unwrap();
    let (processes, directory) = (cert_manager.process_ids(), cert_manager.directory().to_owned());
    let alive = |pid: &u32| PathBuf::from(format!("/proc/{pid}")).exists();
    assert!(processes.iter().all(alive) && cert_manager.log_path().is_file());
    tokio::task::spawn_blocking(move || drop(cert_manager)).await.unwrap();
    wait_until("its end", Duration::from_mins(1), || async {
        (!processes.iter().any(alive) && !directory.exists()).then_some(())
    })
    .await;
}
