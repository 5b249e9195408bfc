//! An MCP proxy and an identity provider that answer as a test says, over TLS: a login whose every step can be broken.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use portcullis_identity::unsigned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::tls::server_tls;

/// One answer.
#[derive(Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
    /// Nothing comes, ever.
    pub(crate) silent: bool,
}

impl Reply {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        let open = ["access-control-allow-origin", "access-control-allow-headers", "access-control-expose-headers"];
        let told =
            ["*", "authorization,content-type,mcp-protocol-version,mcp-session-id", "www-authenticate,mcp-session-id"];
        let cors = open.into_iter().zip(told.map(str::to_owned));
        let headers = cors.chain([("content-type", "application/json".to_owned())]).collect();
        Self { status, headers, body: body.to_string(), silent: false }
    }

    /// The same with this header in place of others of its name.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.push((name, value.into()));
        self
    }
}

/// The places of a login. Requests with a token have a place of their own.
pub(crate) const REFUSAL: &str = "proxy POST /mcp";
pub(crate) const ANSWER: &str = "proxy POST /mcp with a token";
pub(crate) const STREAM: &str = "proxy GET /mcp with a token";
pub(crate) const PREFLIGHT: &str = "proxy OPTIONS /mcp";
pub(crate) const RESOURCE: &str = "proxy GET /.well-known/oauth-protected-resource/mcp";
pub(crate) const ROOT: &str = "proxy GET /.well-known/oauth-protected-resource";
pub(crate) const PROVIDER: &str = "provider GET /.well-known/oauth-authorization-server/realm";
pub(crate) const INSERTED: &str = "provider GET /.well-known/openid-configuration/realm";
pub(crate) const APPENDED: &str = "provider GET /realm/.well-known/openid-configuration";
pub(crate) const TOKEN: &str = "provider POST /token";

/// The answers by place; elsewhere it is 404.
pub(crate) type Replies = HashMap<&'static str, Reply>;

#[derive(Default)]
struct State {
    replies: Replies,
    asked: Vec<String>,
}

pub(crate) struct Lab {
    proxy: SocketAddr,
    provider: SocketAddr,
    directory: TempDir,
    state: Arc<Mutex<State>>,
    /// The time of its start, in seconds since 1970: tokens of the same claims are equal.
    started: u64,
}

impl Lab {
    pub(crate) async fn start() -> Self {
        let (acceptor, ca) = server_tls("lab");
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("ca.crt"), ca).unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let [proxy, provider] = [bind().await, bind().await];
        let lab = Self {
            proxy: proxy.local_addr().unwrap(),
            provider: provider.local_addr().unwrap(),
            directory,
            state: Arc::clone(&state),
            started: std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(),
        };
        tokio::spawn(accept(proxy, acceptor.clone(), "proxy", Arc::clone(&state)));
        tokio::spawn(accept(provider, acceptor, "provider", state));
        lab
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/mcp", self.proxy)
    }

    pub(crate) fn issuer(&self) -> String {
        format!("https://{}/realm", self.provider)
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    /// A file with this in it.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A token with `change` over the claims of a good one.
    pub(crate) fn token(&self, change: &Value) -> String {
        let now = self.started;
        let mut claims = json!({"iss": self.issuer(), "aud": self.url(), "sub": "alice", "exp": now + 300, "nbf": now});
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        unsigned(&json!({"alg": "RS256", "typ": "at+jwt"}), &claims) + ".c2lnbmF0dXJl"
    }

    /// A login that works.
    pub(crate) fn good(&self) -> Replies {
        let resource = json!({
            "resource": self.url(), "authorization_servers": [self.issuer()], "scopes_supported": ["openid", "mcp"],
        });
        let base = format!("https://{}", self.provider);
        let provider = json!({
            "issuer": self.issuer(),
            "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
            "jwks_uri": format!("{base}/keys"), "registration_endpoint": format!("{base}/register"),
            "code_challenge_methods_supported": ["S256"], "scopes_supported": ["openid", "mcp"],
        });
        let challenge = format!(
            "Bearer resource_metadata=\"https://{}/.well-known/oauth-protected-resource/mcp\", scope=\"mcp\"",
            self.proxy
        );
        let greeting =
            json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-11-25", "capabilities": {}}});
        HashMap::from([
            (REFUSAL, Reply::json(401, &json!({"error": "invalid_request"})).with("www-authenticate", challenge)),
            (ANSWER, Reply::json(200, &greeting).with("mcp-session-id", "the-session")),
            (PREFLIGHT, Reply::json(204, &Value::Null)),
            (RESOURCE, Reply::json(200, &resource)),
            (PROVIDER, Reply::json(200, &provider)),
            (TOKEN, Reply::json(200, &json!({"access_token": self.token(&json!({})), "token_type": "Bearer"}))),
        ])
    }

    /// Answers like this from now on, and forgets what was asked.
    pub(crate) fn answers(&self, replies: Replies) {
        *self.state.lock().unwrap() = State { replies, asked: Vec::new() };
    }

    /// The requests so far: side, method, path and body.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }
}

async fn bind() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, side: &'static str, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            // A client that does not trust the certificate ends it here.
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let answer = service_fn(move |request| answer(side, Arc::clone(&state), request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(
    side: &'static str,
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let token = if side == "proxy" && head.headers.contains_key(AUTHORIZATION) { " with a token" } else { "" };
    let place = format!("{side} {} {}{token}", head.method, head.uri.path());
    let reply = {
        let mut state = state.lock().unwrap();
        state.asked.push(format!("{place} {body}"));
        state.replies.get(place.as_str()).cloned()
    };
    let reply = reply.unwrap_or_else(|| Reply::json(404, &json!({"error": "not_found"})));
    if reply.silent {
        std::future::pending::<()>().await;
    }
    let mut response = Response::new(Full::from(reply.body));
    *response.status_mut() = reply.status.try_into().unwrap();
    for (name, value) in reply.headers {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::try_from(value).unwrap());
    }
    Ok(response)
}
