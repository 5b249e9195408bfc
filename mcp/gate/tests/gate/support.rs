//! Certificates, files, and a chain around a backend that records what reaches it.

use std::convert::Infallible;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, Once};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use mcp_http::{Body, BoxService, full};
use mcp_middleware::{BuildError, Chain, Identity, Middleware, Next, ProxySettings, RequestContext};
use mcp_runconfig::{MiddlewareConfig, NoParameters};
use mcp_store::Bound;
use portcullis_pki::{Ca, CertificateParams, Pair, Usage};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

pub(crate) fn authority(name: &str) -> Ca {
    let now = Timestamp::now();
    Ca::generate(name, now - SignedDuration::from_hours(1), now + SignedDuration::from_hours(24)).unwrap()
}

pub(crate) fn issue(ca: &Ca, usage: Usage, address: [u8; 4]) -> Pair {
    let now = Timestamp::now();
    ca.issue(&CertificateParams {
        common_name: "test",
        organizations: &[],
        dns_names: &[],
        ip_addresses: &[IpAddr::V4(Ipv4Addr::from(address))],
        not_before: now - SignedDuration::from_hours(1),
        not_after: now + SignedDuration::from_hours(12),
        usage,
    })
    .unwrap()
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// Serves `pair`; with `clients`, only to those whom it issued a certificate.
pub(crate) fn server(pair: &Pair, clients: Option<&Ca>) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add(certificate(ca.cert_pem())).unwrap();
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap(),
            )
        }
        None => builder.with_no_client_auth(),
    };
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap();
    builder.with_single_cert(vec![certificate(&pair.cert_pem)], key).unwrap()
}

/// Serves 127.0.0.1 under `ca`.
pub(crate) fn local_server(ca: &Ca) -> ServerConfig {
    server(&issue(ca, Usage::Server, [127, 0, 0, 1]), None)
}

/// A directory that stands for `/` in the document's paths.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes the file of a document's `path` in place of what was there, at once.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let new = path.with_extension("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, path).unwrap();
    }

    pub(crate) fn settings(&self) -> ProxySettings {
        ProxySettings {
            server_name: "demo".into(),
            transport: "streamable-http".into(),
            files_root: Some(self.0.path().to_owned()),
            local_user: "alice".into(),
            ..ProxySettings::new(SocketAddr::from(([0, 0, 0, 0], 8080)), provider())
        }
    }
}

pub(crate) fn configs(value: Value) -> Vec<MiddlewareConfig> {
    let list: Vec<Value> = serde_json::from_value(value).unwrap();
    list.into_iter()
        .map(|entry| MiddlewareConfig {
            kind: entry["type"].as_str().unwrap().to_owned(),
            parameters: entry["parameters"].clone(),
        })
        .collect()
}

/// One webhook of the document: trusts `/ca.crt`; `more` adds members or replaces them.
pub(crate) fn webhook(url: &str, policy: &str, more: Value) -> Value {
    let mut webhook = json!({
        "name": "policy", "url": url, "timeout": 20_000_000_000_i64, "failure_policy": policy,
        "tls_config": {"ca_bundle_path": "/ca.crt"},
    });
    for (name, value) in more.as_object().cloned().unwrap_or_default() {
        webhook[name] = value;
    }
    webhook
}

/// A middleware entry with these webhooks.
pub(crate) fn entry(kind: &str, webhooks: Vec<Value>) -> Value {
    json!({"type": kind, "parameters": {"webhooks": webhooks, "server_name": "demo", "transport": "stdio"}})
}

/// The operator's chain around `webhooks`, which are middleware entries.
pub(crate) fn chain(webhooks: Vec<Value>) -> Value {
    let mut entries = vec![
        json!({"type": "bodylimit", "parameters": {}}),
        json!({"type": "auth", "parameters": {}}),
        json!({"type": "mcp-parser", "parameters": {}}),
    ];
    entries.extend(webhooks);
    entries.push(json!({"type": "usagemetrics", "parameters": {}}));
    entries.push(json!({"type": "recovery", "parameters": null}));
    Value::from(entries)
}

/// A middleware that says who calls, as a login does.
#[derive(Deserialize)]
struct Caller {
    subject: String,
    #[serde(default)]
    logged_in: bool,
}

impl Middleware for Caller {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let claims = Map::from_iter([("iss".to_owned(), json!("https://i")), ("sub".to_owned(), json!(self.subject))]);
        let (logged_in, subject) = (self.logged_in, self.subject.clone());
        next.context().identify(Arc::new(Identity { logged_in, subject, claims, ..Identity::default() }));
        next.call(request)
    }
}

/// A middleware that names the caller, by the identity among the extensions of the request.
struct Identified;

impl Middleware for Identified {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        if let Some(identity) = request.extensions().get::<Arc<Identity>>() {
            next.context().identify(Arc::clone(identity));
        }
        next.call(request)
    }
}

/// A mark among the extensions of a request: nobody gives a credential for its caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoCredential;

/// A middleware that refuses requests with this mark.
struct Credentials;

impl Middleware for Credentials {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        match request.extensions().get::<NoCredential>() {
            Some(NoCredential) => Box::pin(async { mcp_http::text(StatusCode::FORBIDDEN, "no credential") }),
            None => next.call(request),
        }
    }
}

/// The requests that reached the backend.
#[derive(Clone, Debug)]
pub(crate) struct Forwarded {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The chain of these entries.
pub(crate) fn build(files: &Files, entries: Value) -> Result<Chain, BuildError> {
    build_with(files.settings(), entries)
}

fn build_with(settings: ProxySettings, entries: Value) -> Result<Chain, BuildError> {
    let mut registry = mcp_gate::registry();
    mcp_authn::register(&mut registry);
    registry.register("caller", |caller: Caller, _| async move { Ok(caller) });
    registry.register("identified", |NoParameters, _| async { Ok(Identified) });
    registry.register("credentials", |NoParameters, _| async { Ok(Credentials) });
    registry.build(&configs(entries), settings).now_or_never().expect("no middleware here waits")
}

/// A chain in front of a backend that answers 200 `done`.
pub(crate) struct Proxy {
    chain: Chain,
    backend: BoxService,
    forwarded: Arc<Mutex<Vec<Forwarded>>>,
}

/// The answer to a client.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Proxy {
    pub(crate) fn new(files: &Files, entries: Value) -> Self {
        Self::with(files.settings(), entries)
    }

    pub(crate) fn with(settings: ProxySettings, entries: Value) -> Self {
        Self::answering(settings, entries, || Response::new(full("done")))
    }

    /// In front of a backend that answers so.
    pub(crate) fn answering(
        settings: ProxySettings,
        entries: Value,
        answer: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
    ) -> Self {
        let chain = build_with(settings, entries).unwrap_or_else(|error| panic!("{error}"));
        let forwarded = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&forwarded);
        let backend = tower::service_fn(move |request: Request<Body>| {
            let (record, answer) = (Arc::clone(&record), answer.clone());
            async move {
                let (head, body) = request.into_parts();
                assert!(head.uri.path() != "/panic", "the backend's own fault");
                let Ok(body) = body.collect().await else {
                    return Ok(Response::builder().status(400).body(full("broken")).unwrap());
                };
                record.lock().unwrap().push(Forwarded { headers: head.headers, body: body.to_bytes() });
                Ok::<_, Infallible>(answer())
            }
        });
        Self { chain, backend: BoxService::new(backend), forwarded }
    }

    pub(crate) fn forwarded(&self) -> Vec<Forwarded> {
        self.forwarded.lock().unwrap().clone()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        self.send_from([10, 244, 0, 9], request).await
    }

    /// Sends a request as the client at `address`.
    pub(crate) async fn send_from(&self, address: [u8; 4], request: Request<Body>) -> Answer {
        self.observed(address, request).await.1
    }

    /// Sends a request as the client at `address`, and returns its context beside the answer.
    pub(crate) async fn observed(&self, address: [u8; 4], request: Request<Body>) -> (Arc<RequestContext>, Answer) {
        let context = self.chain.context(SocketAddr::from((address, 51874)));
        let response = self.chain.serve(&context, request, &self.backend).await;
        let (head, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        (context, Answer { status: head.status.as_u16(), headers: head.headers, text })
    }

    /// Ends the chain, which waits for its shadows.
    pub(crate) async fn close(&self) {
        self.chain.close().await;
    }

    /// The bound of this name.
    pub(crate) fn bound(&self, name: &str) -> Bound {
        self.chain.bounds().find(|bound| bound.name == name).unwrap()
    }

    /// Posts a message as a client does.
    pub(crate) async fn post(&self, body: impl Into<Bytes>) -> Answer {
        self.send(post("application/json", body)).await
    }
}

pub(crate) fn post(content_type: &str, body: impl Into<Bytes>) -> Request<Body> {
    let body = body.into();
    Request::post("/mcp")
        .header("content-type", content_type)
        .header("content-length", body.len())
        .header("accept", "application/json, text/event-stream")
        .body(full(body))
        .unwrap()
}

/// A call of tool `echo` with id 7.
pub(crate) const CALL: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}"#;

/// The log of this thread, from now until it is dropped.
pub(crate) struct Log {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: tracing::subscriber::DefaultGuard,
}

#[derive(Clone)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn capture() -> Self {
        // Whether anybody listens is settled for each line of the source when it logs for the first time, and a
        // listener that another thread adds just then is missed. So there is always one, who hears everything and
        // writes nothing.
        static LISTENER: Once = Once::new();
        LISTENER.call_once(|| tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap());
        let text = Arc::new(Mutex::new(Vec::new()));
        let sink = Sink(Arc::clone(&text));
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || sink.clone()).finish();
        Self { text, _guard: tracing::subscriber::set_default(subscriber) }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.text.lock().unwrap().clone()).unwrap()
    }
}
