//! An OpenID Connect provider on loopback: it signs with real keys, and can be changed and stopped while it runs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use portcullis_identity::Signer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::runner::Answer;
use super::tls::server_tls;

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
    /// Its key set, where that is not what `keys` make of it.
    pub(crate) key_set: Option<String>,
    /// The status and the body of its answers to exchanges of tokens.
    pub(crate) exchange: Option<(u16, Value)>,
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

    /// The `WWW-Authenticate` of a runner with [`login`](Self::login).
    fn challenge(&self, error: &str, description: &str) -> String {
        format!(
            "Bearer realm=\"{}\", resource_metadata=\"https://mcp.example.com/.well-known/oauth-protected-resource/some/mcp\", \
             scope=\"openid mcp\", error=\"{error}\", error_description=\"{description}\"",
            self.url()
        )
    }

    /// Compares status, body and headers of what a caller is told who does not pass.
    pub(crate) fn refused(&self, case: &str, answer: &Answer, error: &str, description: &str) {
        let body = json!({"error": error, "error_description": description});
        assert_eq!((answer.status, answer.message()), (401, body), "{case}: {answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{case}");
        assert_eq!(answer.header("www-authenticate"), Some(self.challenge(error, description).as_str()), "{case}");
        assert_eq!((answer.header("retry-after"), answer.header("mcp-session-id")), (None, None), "{case}");
    }

    /// As [`refused`](Self::refused), of a token that is not valid.
    pub(crate) fn invalid(&self, case: &str, answer: &Answer) {
        self.refused(case, answer, "invalid_token", "Invalid token");
    }
}

/// The answer with an exchanged token, and `members` over it.
pub(crate) fn exchanged(members: &Value) -> Value {
    let mut body = json!({
        "access_token": "for-the-server", "token_type": "Bearer", "expires_in": 3600,
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
    });
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    body
}

/// Compares status, body and headers of what a caller is told while nobody can tell what the token is worth. Returns the seconds to wait.
pub(crate) fn unavailable(case: &str, answer: &Answer) -> u64 {
    let expected = (503, "authentication service temporarily unavailable", None);
    assert_eq!(
        (answer.status, answer.body.as_str(), answer.header("www-authenticate")),
        expected,
        "{case}: {answer:?}"
    );
    assert_eq!(
        (answer.header("content-type"), answer.header("mcp-session-id")),
        (Some("text/plain; charset=utf-8"), None),
        "{case}"
    );
    let seconds = answer.header("retry-after").unwrap_or_else(|| panic!("{case}: {answer:?}")).parse().unwrap();
    assert!((1..=10).contains(&seconds), "{case}: {seconds}");
    seconds
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
        "/keys" if state.key_set.is_some() => {
            return Ok(Response::new(Full::from(state.key_set.clone().unwrap_or_default())));
        }
        "/keys" => Some(json!({"keys": state.keys.iter().map(Signer::jwk).collect::<Vec<_>>()})),
        "/token" => {
            let (status, body) = state.exchange.clone().unwrap_or_else(|| (200, exchanged(&json!({}))));
            return Ok(Response::builder().status(status).body(Full::from(body.to_string())).unwrap());
        }
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
