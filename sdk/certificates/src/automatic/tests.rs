//! Rounds against an API server whose writes never take effect.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Mutex;

use http::{Method, Request, Response};
use jiff::SignedDuration;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use portcullis_testing::Log;

/// The number of requests in a minute above which nothing has waited.
const MANY: usize = 200;

/// An API server that accepts new Secrets, and answers every change with this status without making it.
#[derive(Default)]
struct Stubborn {
    status: u16,
    secrets: Mutex<BTreeMap<String, Value>>,
    asked: Mutex<usize>,
}

impl Stubborn {
    fn answering(status: u16) -> Arc<Self> {
        Arc::new(Self { status, ..Self::default() })
    }

    async fn answer(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        {
            let mut asked = self.asked.lock().unwrap();
            *asked += 1;
            assert!(*asked < MANY, "it is asked again and again without a pause");
        }
        let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
        let mut secrets = self.secrets.lock().unwrap();
        let (code, answer) = match parts.method {
            Method::GET => secrets.get(&name).map_or((404, Value::Null), |secret| (200, secret.clone())),
            Method::POST => {
                let mut secret: Value = serde_json::from_slice(&body).unwrap();
                secret["metadata"]["resourceVersion"] = json!("1");
                secrets.insert(secret["metadata"]["name"].as_str().unwrap().to_owned(), secret.clone());
                (201, secret)
            }
            // An admission policy may undo a write.
            _ if self.status == 200 => (200, secrets[&name].clone()),
            _ => (self.status, Value::Null),
        };
        let reason = if code == 404 { "NotFound" } else { "Unknown" };
        let failure = json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": reason});
        let answer = if answer.is_null() { failure } else { answer };
        let answer =
            Response::builder().status(code).header("content-type", "application/json").body(answer.to_string());
        Ok(answer.unwrap().map(|text| Body::from(text.into_bytes())))
    }

    fn source(self: &Arc<Self>) -> Automatic {
        let server = self.clone();
        let service = tower::service_fn(move |request| server.clone().answer(request));
        let client = Client::new(service, "default");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        Automatic::new(client, "team", "tls", vec!["hooks.team.svc".to_owned()], provider)
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_writes_fail_or_are_undone_backs_off() {
    for status in [409, 200] {
        let server = Stubborn::answering(status);
        let mut source = server.source();
        source.ensure().await.unwrap();
        let error = source.rotate().await.unwrap_err();
        assert!(matches!(error, CertificateError::Unsettled { .. }), "{status}: {error}");

        // The certificate expires soon, or cannot be read; the authorities are inconsistent, or cannot be read.
        for damage in [None, Some(("tls", "tls.crt")), Some(("tls-ca", "next.crt")), Some(("tls-ca", "ca.crt"))] {
            *server.asked.lock().unwrap() = 0;
            source.time_of_day = TimeOfDay::with_offset(SignedDuration::from_hours(24 * 350));
            let sound = server.secrets.lock().unwrap().clone();
            if let Some((secret, key)) = damage {
                source.time_of_day = TimeOfDay::system();
                server.secrets.lock().unwrap().get_mut(secret).unwrap()["data"][key] = json!("Z2FyYmFnZQ==");
            }
            // A failed attempt is fine while there is a pair to serve.
            if let Err(error) = source.ensure().await {
                assert!(matches!(error, CertificateError::Unsettled { .. }), "{status}, {damage:?}: {error}");
            }
            *server.secrets.lock().unwrap() = sound;
        }
    }
}

// A user who sets the maximum wants a certificate that never expires.
#[tokio::test(start_paused = true)]
async fn validities_beyond_the_end_of_time_end_there() {
    let mut source = Stubborn::answering(200).source();
    (source.timing.ca_validity, source.timing.leaf_validity) = (SignedDuration::MAX, SignedDuration::MAX);
    source.timing.settle = Duration::MAX;
    let made = source.ensure().await.unwrap();
    let leaf = portcullis_pki::Certificate::from_pem(made.cert_pem.as_bytes()).unwrap();
    assert!(leaf.not_after.duration_since(jiff::Timestamp::now()) > SignedDuration::from_hours(24 * 365 * 7000));
}

#[tokio::test(start_paused = true)]
async fn a_repair_that_is_refused_is_not_said_to_be_done() {
    let ((log, _guard), server) = (Log::listen(), Stubborn::answering(403));
    let source = server.source();
    let certificate = source.ensure().await.unwrap();
    for (key, cannot) in
        [("next.crt", "cannot repair the Secret of the CA"), ("ca.crt", "cannot replace the stored CA")]
    {
        log.take();
        server.secrets.lock().unwrap().get_mut("tls-ca").unwrap()["data"][key] = json!("Z2FyYmFnZQ==");
        assert_eq!(source.ensure().await.unwrap().cert_pem, certificate.cert_pem, "what there is goes on");
        let said = log.take();
        assert!(said.contains(cannot), "{said}");
        assert!(!said.contains("replaced the stored CA") && !said.contains("repaired the Secret"), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_is_named() {
    let silent = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let source = Automatic { client: Client::new(silent, "default"), ..Stubborn::answering(409).source() };
    let wait = timeout(Duration::from_mins(5), source.stored());
    let error = wait.await.expect("it ends").unwrap_err();
    assert_eq!(error.to_string(), "the API server does not answer for Secret team/tls-ca");
}
