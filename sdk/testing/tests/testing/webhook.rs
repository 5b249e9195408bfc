//! The API server calls a webhook inside the test, over TLS, under the Service's name.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use portcullis_pki::{Ca, CertificateParams, Usage};
use portcullis_testing::{ControlPlane, wait_until};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The calls that the server saw, each with the server name of the handshake and the path.
type Calls = Arc<Mutex<Vec<(String, String)>>>;

/// A webhook that refuses everything; returns its port and the CA that stands behind its certificate.
async fn refusing_webhook(server_name: &str, calls: Calls) -> (u16, String) {
    let (start, end) =
        (Timestamp::now() - SignedDuration::from_mins(5), Timestamp::now() + SignedDuration::from_hours(1));
    let ca = Ca::generate("webhook ca", start, end).unwrap();
    let names = [server_name.to_owned()];
    let wanted = CertificateParams {
        common_name: "webhook",
        organizations: &[],
        dns_names: &names,
        ip_addresses: &[],
        not_before: start,
        not_after: end,
        usage: Usage::Server,
    };
    let pair = ca.issue(&wanted).unwrap();
    let certificate = CertificateDer::from_pem_slice(pair.cert_pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap();
    let config =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // Ends with the test's runtime.
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let name = stream.get_ref().1.server_name().unwrap_or_default().to_owned();
            let calls = calls.clone();
            let service = service_fn(move |request| refuse(request, name.clone(), calls.clone()));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (port, ca.cert_pem().to_owned())
}

async fn refuse(
    request: hyper::Request<Incoming>,
    server_name: String,
    calls: Calls,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    calls.lock().unwrap().push((server_name, request.uri().path().to_owned()));
    let review: Value = serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let response = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": false, "status": {"message": "not at this gate"}},
    });
    Ok(hyper::Response::new(Full::from(response.to_string())))
}

#[tokio::test]
async fn the_api_server_calls_the_test_under_the_services_name() {
    use base64::Engine as _;
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("hooks").await;
    let calls = Calls::default();
    let server_name = format!("gatekeeper.{namespace}.svc");
    let (port, ca) = refusing_webhook(&server_name, calls.clone()).await;

    let manifest = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": format!("gate-{namespace}")},
        "webhooks": [{
            "name": "gate.demo.example", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {
                "caBundle": base64::engine::general_purpose::STANDARD.encode(ca),
                "service": {"namespace": namespace, "name": "gatekeeper", "port": 443, "path": "/validate"},
            },
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        }],
    });
    cluster.install_webhooks(&[manifest], port).await;

    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &namespace);
    let mut map = ConfigMap::default();
    map.metadata.name = Some("settings".to_owned());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let message = wait_until("the webhook to be in force", Duration::from_mins(1), || async {
        maps.create(&dry_run, &map).await.err().map(|error| error.to_string())
    })
    .await;
    assert!(message.contains("denied the request: not at this gate"), "{message}");
    assert_eq!(calls.lock().unwrap().first(), Some(&(server_name, "/validate".to_owned())));
}
