//! Expiry of a provided certificate, with simulated time.

use std::convert::Infallible;

use http::{Request, Response};
use jiff::Timestamp;
use kube::client::Body;
use portcullis_pki::{Ca, CertificateParams, Pair, Usage};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use portcullis_testing::Log;

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// A Secret with a pair and its authority, which end after so many days.
fn secret(leaf: i32, ca: i32) -> Value {
    let now = Timestamp::now();
    let ca = Ca::generate("owner", now - DAY, now + DAY * ca).unwrap();
    let params = CertificateParams {
        common_name: "",
        organizations: &[],
        dns_names: &["webhook.team.svc".to_owned()],
        ip_addresses: &[],
        not_before: now - DAY,
        not_after: now + DAY * leaf,
        usage: Usage::Server,
    };
    let Pair { cert_pem, key_pem } = ca.issue(&params).unwrap();
    let bytes = |pem: &str| json!(k8s_openapi::ByteString(pem.as_bytes().to_vec()));
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "pair", "namespace": "team", "resourceVersion": "1" },
        "data": { "tls.crt": bytes(&cert_pem), "tls.key": bytes(&key_pem), "ca.crt": bytes(ca.cert_pem()) },
    })
}

/// An API server with this Secret. Its watches bring no events, or end again and again.
fn source(secret: &Value, watched: bool) -> ProvidedCertificates {
    let list = json!({
        "apiVersion": "v1", "kind": "SecretList", "metadata": { "resourceVersion": "1" }, "items": [secret],
    });
    let refusal = json!({ "kind": "Status", "status": "Failure", "code": 500, "message": "no", "reason": "" });
    let secret = secret.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let (code, answer) = match request.uri().path().ends_with("/pair") {
            true => (200, secret.to_string()),
            false if watch => (500, refusal.to_string()),
            false => (200, list.to_string()),
        };
        async move {
            match (watch, watched) {
                (true, true) => std::future::pending().await,
                (true, false) => sleep(LOOK_AGAIN / 2).await,
                (false, _) => {}
            }
            let answer = Response::builder().status(code).body(Body::from(answer.into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ProvidedCertificates::new(
        Client::new(service, "team"),
        "team",
        "pair",
        "webhook.team.svc",
        ProvidedBy::User,
        provider,
    )
}

#[tokio::test(start_paused = true)]
async fn a_warning_of_expiry_is_logged_every_day_without_any_event() {
    let soon = |log: &Log| log.take().matches("ends soon: have a new one issued").count();
    for (leaf, ca, watched) in [(40, 900, true), (40, 900, false), (400, 40, true)] {
        let (log, _guard) = Log::listen();
        let mut source = source(&secret(leaf, ca), watched);
        let material = source.ensure().await.unwrap();
        let (tls, stop) =
            (ArcSwap::from_pointee(material.tls_config(&source.provider).unwrap()), CancellationToken::new());
        let days = async |source: &ProvidedCertificates| {
            let bundle = source.bundle(&material);
            tokio::select! {
                () = source.maintain(material.clone(), &tls, &bundle, &stop) => {}
                () = sleep(Duration::from_hours(24 * 3 + 1)) => {}
            }
        };
        days(&source).await;
        assert_eq!(soon(&log), 0, "there are 40 days left");
        source.time_of_day = TimeOfDay::with_offset(DAY * 11);
        days(&source).await;
        assert_eq!(soon(&log), 3, "{leaf} {ca} {watched}");
        source.ensure().await.unwrap();
        assert_eq!(soon(&log), 1, "at start it is logged at once");
    }
}
