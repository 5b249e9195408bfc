//! The transparent proxy in front of one streamable-HTTP server (toolhive-runner §1.10).
//!
//! Bytes in, bytes out. What it adds: the refusals that keep policy whole (batches, broken Modern requests, unknown
//! sessions), headers of its own hop, and sessions that outlive a restart of the server.

mod headers;
mod recovery;
mod session;
mod upstream;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, request::Parts};
use http_body::Body as _;
use mcp_http::{Body, BoxService, CollectError, collect, json, text};
use mcp_middleware::RequestContext;
use mcp_wire::{ErrorBody, Message, Revision, classify, code, headers as mcp};
use tower::service_fn;

use self::session::{Held, Session};
use self::upstream::{Outgoing, Payload, Upstream, UpstreamError};
use crate::modern::{protocol_version, revision_refusal};
use crate::sessions::{Named, Sessions, not_found};

/// Why a backend's URL cannot be served. Fix the URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// It is not an absolute URL.
    #[error("backend {0:?} is not a URL such as http://127.0.0.1:3001")]
    NotAUrl(String),
    /// Its scheme is not served.
    #[error("backend {0:?} must begin with http://; servers behind https are remote servers, which are not built yet")]
    Scheme(String),
}

/// How a [`Proxy`] is to run. The defaults fit a server beside it.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    backend: Uri,
    /// The server knows POST only and is asked for its health by `ping`. Default: no.
    pub stateless: bool,
    /// How long a session lives without being used. Default: two hours.
    pub session_ttl: Duration,
    /// How many sessions are remembered; the one unused for longest goes first. Default: 10,000.
    pub max_sessions: usize,
    /// The longest request body in bytes. Default: 8 MiB.
    pub max_body_bytes: usize,
    /// How long one attempt to connect may take. Default: 5 s.
    pub connect_timeout: Duration,
    /// How long the head of the answer to a POST or DELETE may take. Streams have no limit. Default: ten minutes.
    pub answer_timeout: Duration,
}

impl ProxyConfig {
    /// Defaults for the server at `backend`, an `http://` URL. A path in it replaces the path of each request; a query in it
    /// is put before the request's.
    pub fn new(backend: &str) -> Result<Self, BackendError> {
        let uri: Uri = backend.parse().map_err(|_| BackendError::NotAUrl(backend.to_owned()))?;
        match (uri.scheme_str(), uri.authority()) {
            (Some("http"), Some(authority)) if !authority.host().is_empty() => {}
            (Some("http") | None, _) => return Err(BackendError::NotAUrl(backend.to_owned())),
            (Some(_), _) => return Err(BackendError::Scheme(backend.to_owned())),
        }
        Ok(Self {
            backend: uri,
            stateless: false,
            session_ttl: Duration::from_hours(2),
            max_sessions: 10_000,
            max_body_bytes: 8 << 20,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_mins(10),
        })
    }
}

/// The proxy. Cheap to clone; clones share sessions and connections.
#[derive(Clone, Debug)]
pub struct Proxy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    upstream: Upstream,
    sessions: Sessions<Session>,
    max_body_bytes: usize,
    stateless: bool,
}

impl Proxy {
    /// A proxy that connects when the first request comes.
    pub fn new(config: ProxyConfig) -> Self {
        Self(Arc::new(Inner {
            sessions: Sessions::new(config.session_ttl, config.max_sessions),
            max_body_bytes: config.max_body_bytes,
            stateless: config.stateless,
            upstream: Upstream::new(&config.backend, config.connect_timeout, config.answer_timeout),
        }))
    }

    /// The proxy as a service. Ask [`refuse_method`](crate::refuse_method) before it and every middleware.
    pub fn service(&self) -> BoxService {
        let inner = Arc::clone(&self.0);
        BoxService::new(service_fn(move |request| {
            let inner = Arc::clone(&inner);
            async move { Ok::<_, Infallible>(inner.handle(request).await) }
        }))
    }

    /// Whether the server answers at all: any status from 200 to 499 to a GET of its root, or to a `ping` where it is stateless.
    ///
    /// # Errors
    /// A sentence for the health report.
    pub async fn ping(&self, timeout: Duration) -> Result<(), String> {
        let probe = self.0.upstream.probe(self.0.stateless);
        match tokio::time::timeout(timeout, probe).await {
            Ok(Ok(status)) if (200..500).contains(&status.as_u16()) => Ok(()),
            Ok(Ok(status)) => Err(format!("the MCP server answers HTTP {}", status.as_u16())),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer from the MCP server within {} ms", timeout.as_millis())),
        }
    }

    /// How many sessions are remembered.
    pub fn sessions(&self) -> usize {
        self.0.sessions.len()
    }
}

impl Inner {
    async fn handle(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        if parts.method == Method::POST {
            match collect(body, self.max_body_bytes).await {
                Ok(body) => self.post(parts, body).await,
                Err(CollectError::TooLarge { .. }) => text(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large"),
                Err(CollectError::Broken(_)) => text(StatusCode::BAD_REQUEST, "Bad Request"),
            }
        } else {
            let payload = if body.is_end_stream() { Payload::Whole(Bytes::new()) } else { Payload::Stream(body) };
            let session = match self.sessions.named(&parts.headers) {
                Named::Nothing => None,
                Named::Known(id, session) => Some(Held { id, session }),
                Named::Unknown => return not_found(None),
            };
            self.forward(parts, payload, session, None).await
        }
    }

    async fn post(&self, mut parts: Parts, body: Bytes) -> Response<Body> {
        if mcp_wire::is_batch(&body) {
            return json(StatusCode::BAD_REQUEST, ErrorBody::batch().encode());
        }
        // What is no JSON-RPC message goes on as it is: the server says what it thinks of it.
        let message = Message::parse(&body).ok();
        let revision = match message.as_ref().map(|message| classify(protocol_version(&parts.headers), message)) {
            Some(Err(error)) => {
                return message.map_or_else(
                    || text(StatusCode::BAD_REQUEST, "Bad Request"),
                    |message| revision_refusal(&error, &message),
                );
            }
            Some(Ok(revision)) => revision,
            None => Revision::Legacy,
        };
        let session = if message.as_ref().and_then(Message::method) == Some("initialize") {
            parts.headers.remove(mcp::SESSION_ID);
            None
        } else if revision == Revision::Modern {
            None
        } else {
            match self.sessions.named(&parts.headers) {
                Named::Nothing => None,
                Named::Known(id, session) => Some(Held { id, session }),
                Named::Unknown => return not_found(message.as_ref()),
            }
        };
        let id = message.as_ref().and_then(Message::id).map(|id| id.raw().to_owned());
        let initialize = message.as_ref().and_then(Message::method) == Some("initialize");
        drop(message);
        if initialize {
            return self.initialize(parts, body, id.as_deref()).await;
        }
        self.forward(parts, Payload::Whole(body), session, id.as_deref()).await
    }

    async fn initialize(&self, parts: Parts, body: Bytes, id: Option<&str>) -> Response<Body> {
        let outgoing = outgoing(parts, Payload::Whole(body.clone()));
        match self.upstream.send(outgoing).await {
            Ok(response) => {
                if response.status() == StatusCode::OK
                    && let Some(session_id) = response.headers().get(mcp::SESSION_ID)
                    && let Ok(name) = session_id.to_str()
                {
                    let session = Session::new(session_id.clone(), body);
                    let gone = self.sessions.insert(name.to_owned(), Arc::new(session));
                    if !gone.is_empty() {
                        tracing::debug!(sessions = gone.len(), "forgot sessions that expired or did not fit");
                    }
                }
                response
            }
            Err(error) => refusal(&error, id),
        }
    }

    async fn forward(&self, parts: Parts, payload: Payload, session: Option<Held>, id: Option<&str>) -> Response<Body> {
        let method = parts.method.clone();
        let mut outgoing = outgoing(parts, payload);
        let Some(session) = session else {
            return self.upstream.send(outgoing).await.unwrap_or_else(|error| refusal(&error, id));
        };
        let known = session.session.backend_id();
        outgoing.headers.insert(mcp::SESSION_ID, known.clone());
        let again = if method == Method::DELETE { None } else { outgoing.again() };
        let mut answer = self.upstream.send(outgoing).await;
        if let (Ok(response), Some(mut again)) = (&mut answer, again)
            && recovery::session_is_lost(response, id).await
            && recovery::recover(&self.upstream, &session.session, &known, &again).await
        {
            again.headers.insert(mcp::SESSION_ID, session.session.backend_id());
            answer = self.upstream.send(again.into()).await;
        }
        match answer {
            Ok(mut response) => {
                let over = response.status().is_success() || response.status() == StatusCode::NOT_FOUND;
                if method == Method::DELETE && over {
                    self.sessions.remove(session.id.to_str().unwrap_or_default());
                }
                if let Some(value) = response.headers_mut().get_mut(mcp::SESSION_ID) {
                    value.clone_from(&session.id);
                }
                if method == Method::GET { response.map(|body| session.hold(body)) } else { response }
            }
            Err(error) => refusal(&error, id),
        }
    }
}

fn outgoing(mut parts: Parts, payload: Payload) -> Outgoing {
    let client = RequestContext::of(&parts.extensions).and_then(|context| context.peer());
    headers::prepare(&mut parts.headers, &parts.uri, client);
    Outgoing { method: parts.method, target: parts.uri, headers: parts.headers, payload }
}

/// What the client is told when there is no answer to pass on.
fn refusal(error: &UpstreamError, id: Option<&str>) -> Response<Body> {
    tracing::warn!(%error, "the MCP server gave no answer");
    let status = match error {
        UpstreamError::Timeout => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    let mut response = json(status, ErrorBody::new(code::INTERNAL, error.to_client()).raw_id(id).encode());
    if matches!(error, UpstreamError::Unreachable(_)) {
        response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
