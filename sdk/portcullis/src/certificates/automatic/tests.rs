//! What an API server that never does as it is asked makes of a round.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write;
use std::sync::Mutex;

use http::{Method, Request, Response};
use jiff::SignedDuration;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// More than this in a minute is no waiting.
const MANY: usize = 200;

/// An API server that has Secrets made, and refuses every change with this status.
#[derive(Default)]
struct Stubborn {
    status: u16,
    secrets: Mutex<BTreeMap<String, Value>>,
    asked: Mutex<usize>,
}

impl Stubborn {
    fn refusing(status: u16) -> Arc<Self> {
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
async fn who_loses_every_write_waits_longer_and_longer() {
    let server = Stubborn::refusing(409);
    let mut source = server.source();
    source.ensure().await.unwrap();
    let error = source.rotate().await.unwrap_err();
    assert!(matches!(error, CertificateError::Unsettled { .. }), "{error}");

    *server.asked.lock().unwrap() = 0;
    // The certificate is about to end.
    source.time_of_day = TimeOfDay::off_by(SignedDuration::from_hours(24 * 350));
    let error = source.ensure().await.unwrap_err();
    assert!(matches!(error, CertificateError::Unsettled { .. }), "{error}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_repair_that_is_refused_is_not_said_to_be_done() {
    let (log, server) = (Log::default(), Stubborn::refusing(403));
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let source = server.source();
    let material = source.ensure().await.unwrap();
    for (key, cannot) in
        [("next.crt", "the stored authorities cannot be put in order"), ("ca.crt", "the stored CA cannot be replaced")]
    {
        log.0.lock().unwrap().clear();
        server.secrets.lock().unwrap().get_mut("tls-ca").unwrap()["data"][key] = json!("Z2FyYmFnZQ==");
        assert_eq!(source.ensure().await.unwrap().cert_pem, material.cert_pem, "what there is goes on");
        let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert!(said.contains(cannot), "{said}");
        assert!(!said.contains("the stored CA is replaced") && !said.contains("are put in order"), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_is_named() {
    let silent = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let source = Automatic { client: Client::new(silent, "default"), ..Stubborn::refusing(409).source() };
    let wait = timeout(Duration::from_mins(5), source.stored());
    let error = wait.await.expect("it ends").unwrap_err();
    assert_eq!(error.to_string(), "the API server does not answer for Secret team/tls-ca");
}
