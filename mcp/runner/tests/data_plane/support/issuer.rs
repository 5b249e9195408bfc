//! An OpenID Connect provider on loopback: it signs with real keys, and can be changed and stopped while it runs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self as crypto, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::tls::server_tls;

/// A key pair of the provider.
#[derive(Clone)]
pub(crate) struct Signer {
    kid: String,
    pair: Arc<Pair>,
}

enum Pair {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// What a provider got.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) form: String,
}

#[derive(Default)]
pub(crate) struct State {
    /// The keys that it publishes.
    pub(crate) keys: Vec<Signer>,
    /// What it says of opaque tokens; of others, that they are not active.
    pub(crate) opaque: HashMap<String, Value>,
    /// Answers this to everything.
    pub(crate) broken: Option<StatusCode>,
    pub(crate) asked: Vec<Asked>,
}

/// The provider. Its issuer is `<scheme>://<address>/realm`.
pub(crate) struct Issuer {
    pub(crate) address: SocketAddr,
    /// Held as long as the provider, running or not: nobody else gets its address.
    listener: Arc<TcpListener>,
    /// `None`: it speaks plain HTTP.
    tls: Option<TlsAcceptor>,
    state: Arc<Mutex<State>>,
    /// What answers connections, or closes them.
    running: JoinHandle<()>,
}

impl Signer {
    pub(crate) fn rsa(kid: &str) -> Self {
        Self::new(kid, Pair::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()))
    }

    pub(crate) fn ec(kid: &str) -> Self {
        Self::new(kid, Pair::P256(EcdsaKeyPair::generate(&crypto::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()))
    }

    pub(crate) fn ed(kid: &str) -> Self {
        Self::new(kid, Pair::Ed25519(Ed25519KeyPair::generate().unwrap()))
    }

    fn new(kid: &str, pair: Pair) -> Self {
        Self { kid: kid.to_owned(), pair: Arc::new(pair) }
    }

    /// The public half as it is published.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match &*self.pair {
            Pair::Rsa(pair) => {
                let public = crypto::RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({"kty": "RSA", "n": encode(&public.n), "e": encode(&public.e)})
            }
            Pair::P256(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y)})
            }
            Pair::Ed25519(pair) => json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref())}),
        };
        jwk["kid"] = json!(self.kid);
        jwk
    }

    /// A token with these claims, signed by `algorithm`.
    pub(crate) fn sign(&self, algorithm: &str, claims: &Value) -> String {
        self.sign_with(algorithm, &json!({"alg": algorithm, "typ": "JWT", "kid": self.kid}), claims)
    }

    /// The same with another header.
    pub(crate) fn sign_with(&self, algorithm: &str, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let message = signed.as_bytes();
        let random = SystemRandom::new();
        let signature = match &*self.pair {
            Pair::Rsa(pair) => {
                let padding: &'static dyn crypto::RsaEncoding =
                    if algorithm == "PS256" { &crypto::RSA_PSS_SHA256 } else { &crypto::RSA_PKCS1_SHA256 };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
            Pair::P256(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        };
        format!("{signed}.{}", encode(&signature))
    }
}

/// Header and claims of a token, as they are signed.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()))
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Issuer {
    /// A provider that publishes these keys.
    pub(crate) async fn start(keys: Vec<Signer>) -> Self {
        let mut issuer = Self::stopped(keys);
        issuer.up().await;
        issuer
    }

    /// One that answers nobody yet.
    pub(crate) fn stopped(keys: Vec<Signer>) -> Self {
        let state = Arc::new(Mutex::new(State { keys, ..State::default() }));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = Arc::new(TcpListener::from_std(listener).unwrap());
        let running = tokio::spawn(close(Arc::clone(&listener)));
        Self { address: listener.local_addr().unwrap(), listener, tls: None, state, running }
    }

    /// From its next start on it has a certificate of an authority that is made for it, which is returned as PEM.
    pub(crate) fn secure(&mut self) -> String {
        let (acceptor, ca) = server_tls("provider");
        self.tls = Some(acceptor);
        ca
    }

    pub(crate) async fn up(&mut self) {
        let (listener, base, tls) = (Arc::clone(&self.listener), self.base(), self.tls.clone());
        let serving = serve(listener, base, tls, Arc::clone(&self.state));
        self.instead(serving).await;
    }

    /// Ends all connections, and those that come. The address stays its own.
    pub(crate) async fn down(&mut self) {
        let closing = close(Arc::clone(&self.listener));
        self.instead(closing).await;
    }

    /// Does this with connections from now on.
    async fn instead(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.abort();
        let ended = (&mut self.running).await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "it ran until now");
        self.running = tokio::spawn(task);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// How often `path` was asked for.
    pub(crate) fn asked(&self, path: &str) -> usize {
        self.state().asked.iter().filter(|asked| asked.path == path).count()
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/realm", self.base())
    }

    fn base(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.address)
    }

    /// What tokens of `subject` for our server claim.
    pub(crate) fn claims(&self, subject: &str) -> Value {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        json!({"iss": self.url(), "aud": ["other", "mcp"], "sub": subject, "iat": now, "nbf": now, "exp": now + 600})
    }

    /// A login that takes its tokens, with `members` over it.
    pub(crate) fn login(&self, members: &Value) -> Value {
        let mut login = json!({
            "Issuer": self.url(), "Audience": "mcp", "InsecureAllowHTTP": self.tls.is_none(),
            "ResourceURL": "https://mcp.example.com/some/mcp", "Scopes": ["openid", "mcp"],
        });
        for (name, value) in members.as_object().unwrap() {
            login[name] = value.clone();
        }
        login
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Closes what comes.
async fn close(listener: Arc<TcpListener>) {
    while let Ok((stream, _)) = listener.accept().await {
        drop(stream);
    }
}

/// Answers what comes; all connections end with it.
async fn serve(listener: Arc<TcpListener>, base: String, tls: Option<TlsAcceptor>, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (state, base, tls) = (Arc::clone(&state), base.clone(), tls.clone());
        let answer = service_fn(move |request| answer(Arc::clone(&state), base.clone(), request));
        connections.spawn(async move {
            let http = http1::Builder::new();
            // Whoever does not trust it breaks off.
            let _ = match tls {
                None => http.serve_connection(TokioIo::new(stream), answer).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => http.serve_connection(TokioIo::new(stream), answer).await,
                    Err(_) => Ok(()),
                },
            };
        });
    }
}

async fn answer(
    state: Arc<Mutex<State>>,
    base: String,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let form = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let mut state = state.lock().unwrap();
    let path = head.uri.path().to_owned();
    state.asked.push(Asked { path: path.clone(), headers: head.headers, form: form.clone() });
    let json = match path.as_str() {
        _ if state.broken.is_some() => None,
        "/realm/.well-known/openid-configuration" => {
            Some(json!({"issuer": format!("{base}/realm"), "jwks_uri": format!("{base}/keys")}))
        }
        "/keys" => Some(json!({"keys": state.keys.iter().map(Signer::jwk).collect::<Vec<_>>()})),
        "/introspect" => {
            let token = form.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap_or_default();
            Some(state.opaque.get(token).cloned().unwrap_or(json!({"active": false})))
        }
        _ => None,
    };
    let mut response = Response::new(Full::from(json.as_ref().map(Value::to_string).unwrap_or_default()));
    if json.is_none() {
        *response.status_mut() = state.broken.unwrap_or(StatusCode::NOT_FOUND);
    }
    Ok(response)
}
