//! A request webhook such as a user would write: HTTPS, signatures checked, one mutation and one refusal.
//!
//! - `POST /mutate` greets `bob` by his full name: it patches `params.arguments.name`.
//! - `POST /validate` refuses calls that name `mallory`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use aws_lc_rs::hmac;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use mcp_runconfig::webhook::{MAX_REQUEST_BYTES, SIGNATURE_HEADER, TIMESTAMP_HEADER};
use portcullis_pki::Pair;
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::RwLock;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The largest age of a signature, in seconds.
const FRESH_SECONDS: i64 = 300;

/// A running request webhook; dropping it ends it.
#[derive(Debug)]
pub struct RequestWebhook {
    /// Where it listens.
    pub address: SocketAddr,
    key: Arc<RwLock<hmac::Key>>,
    task: JoinHandle<()>,
}

impl Drop for RequestWebhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RequestWebhook {
    /// Serves on a free loopback port with `pair`, for callers who sign with `secret`.
    pub async fn start(pair: &Pair, secret: &[u8]) -> Result<Self> {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), pair, secret).await
    }

    /// [`start`](Self::start) at this address.
    pub async fn start_at(address: SocketAddr, pair: &Pair, secret: &[u8]) -> Result<Self> {
        let chain = CertificateDer::pem_slice_iter(pair.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let key = Arc::new(RwLock::new(hmac::Key::new(hmac::HMAC_SHA256, secret)));
        let task = tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&key)));
        Ok(Self { address, key, task })
    }

    /// From now on, only calls signed with `secret` are believed.
    pub async fn trust(&self, secret: &[u8]) {
        *self.key.write().await = hmac::Key::new(hmac::HMAC_SHA256, secret);
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, key: Arc<RwLock<hmac::Key>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, key) = (tls.clone(), key.clone());
        tokio::spawn(async move {
            stream.set_nodelay(true).ok();
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(move |request| {
                let key = key.clone();
                async move { Ok::<_, Infallible>(answer(request, &key).await) }
            });
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}

async fn answer(request: Request<Incoming>, key: &RwLock<hmac::Key>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let reply = match Limited::new(body, 2 * MAX_REQUEST_BYTES).collect().await {
        Ok(body) => review(&head, &body.to_bytes(), &*key.read().await),
        Err(error) => Err(anyhow::anyhow!(error)),
    };
    let (status, body) = match reply {
        Ok(review) => (StatusCode::OK, review.to_string()),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
}

fn review(head: &http::request::Parts, body: &[u8], key: &hmac::Key) -> Result<Value> {
    verify(head, body, key)?;
    let payload: Value = serde_json::from_slice(body)?;
    let name = payload["mcp_request"]["params"]["arguments"]["name"].as_str();
    Ok(match (head.uri.path(), name) {
        ("/mutate", Some("bob")) => json!({
            "version": payload["version"], "uid": payload["uid"], "allowed": true, "patch_type": "json_patch",
            "patch": [{ "op": "replace", "path": "/mcp_request/params/arguments/name", "value": "Robert" }],
        }),
        ("/validate", Some("mallory")) => json!({
            "version": payload["version"], "uid": payload["uid"], "allowed": false,
            "reason": "NotWelcome", "message": "mallory is not to be greeted",
        }),
        ("/mutate" | "/validate", _) => {
            json!({ "version": payload["version"], "uid": payload["uid"], "allowed": true })
        }
        (path, _) => anyhow::bail!("nothing is served at {path}"),
    })
}

/// The signature covers `TIMESTAMP.BODY`; `verify` of the library compares in constant time.
fn verify(head: &http::request::Parts, body: &[u8], key: &hmac::Key) -> Result<()> {
    let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    let timestamp = header(TIMESTAMP_HEADER).context("no timestamp")?;
    let signature = header(SIGNATURE_HEADER).and_then(|value| value.strip_prefix("sha256=")).context("no signature")?;
    let age = jiff::Timestamp::now().as_second() - timestamp.parse::<i64>()?;
    anyhow::ensure!(age.abs() <= FRESH_SECONDS, "the signature is {age} s old");
    let signed = [timestamp.as_bytes(), b".", body].concat();
    hmac::verify(key, &signed, &from_hex(signature)?).ok().context("the signature does not fit")
}

fn from_hex(text: &str) -> Result<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = text.as_bytes().chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
    bytes.collect::<Option<_>>().filter(|_| text.len().is_multiple_of(2)).context("the signature is not hex")
}
