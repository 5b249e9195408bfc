//! The transparent proxy in front of one streamable-HTTP server, beside it or remote (toolhive-runner §1.10).
//!
//! Bytes in, bytes out. What it adds: the refusals that keep policy whole (batches, broken Modern requests, unknown
//! sessions), headers of its own hop, and sessions that outlive a restart of the server.

mod headers;
mod recovery;
mod rejoin;
mod server_url;
mod sse;
mod upstream;

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, request::Parts};
use mcp_http::{Body, BoxService, Connecting, Silence, Unauthorized, is_type, json};
use mcp_middleware::RequestContext;
use mcp_store::{Bound, SessionRecord, SessionStore};
use mcp_wire::{ErrorBody, Revision, classify, code, headers as mcp};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tower::service_fn;

pub use self::headers::names_hop_by_hop_only;
use self::recovery::{Reopening, Said};
use self::upstream::{Answer, Outgoing, Upstream, UpstreamError};
use crate::modern::{protocol_version, revision_refusal};
use crate::sessions::{Named, Renewal, Renewing, Sender, message, not_found, unavailable, whole};
use crate::{BoxFuture, ClientUrl, Endpoints, FailedCheck, Transport, carriers};

/// Why a backend's URL cannot be served. Fix the URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// It is not an absolute URL.
    #[error("backend {0:?} is not a URL such as http://127.0.0.1:3001")]
    NotAUrl(String),
    /// Its scheme is not served.
    #[error("backend {0:?} must begin with http://; a server behind https is a remote server, which remote_url names")]
    Scheme(String),
}

/// How a [`Proxy`] is to run. The defaults fit a server beside it.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    backend: Uri,
    remote: Option<Connecting>,
    /// The server knows POST only and is asked for its health by `ping`. Default: no.
    pub stateless: bool,
    /// The server is asked for its health. Default: a server beside the proxy is, a remote one is not.
    pub checked: bool,
    /// Callers log in at this proxy, so where the server asks them to log in is not passed on. Default: no.
    pub login: bool,
    /// The server speaks HTTP+SSE (MCP 2024-11-05), and its clients reach it like this. Default: it speaks streamable HTTP.
    pub sse: Option<ClientUrl>,
    /// When a silent server is given up.
    pub silence: Silence,
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
        Ok(Self { checked: true, ..Self::of(uri, None) })
    }

    /// Defaults for the remote server at `url`, with or without TLS as its scheme says. Connections are made as `how` says, and its `tls` is
    /// used for https alone. A path and a query in the URL are used as [`new`](Self::new) does.
    ///
    /// # Errors
    /// A URL that is not one of http or https, or of https without `tls`.
    pub fn remote(url: &str, how: Connecting) -> Result<Self, BackendError> {
        let uri: Uri = url.parse().map_err(|_| BackendError::NotAUrl(url.to_owned()))?;
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") if how.tls.is_some() => how.tls,
            _ => return Err(BackendError::Scheme(url.to_owned())),
        };
        let remote = Some(Connecting { tls, ..how });
        Ok(Self::of(uri, remote))
    }

    /// The paths of the proxy where guards judge messages: those of its transport and `more`, where a path in the server's URL does not
    /// replace them all, and those that are `open`.
    pub fn endpoints(&self, more: &[String], open: &[String]) -> Endpoints {
        let own = if self.sse.is_some() { "/sse" } else { "/mcp" };
        let mcp = [own.to_owned()].into_iter().chain(more.iter().cloned()).collect();
        Endpoints::new((!self.replaces_paths()).then_some(mcp), open.to_vec(), self.sse.is_some())
    }

    /// Whether the server's URL has a path, which every request gets.
    pub fn replaces_paths(&self) -> bool {
        server_url::own_path(&self.backend).is_some()
    }

    fn of(backend: Uri, remote: Option<Connecting>) -> Self {
        let silence = Silence::default();
        Self { backend, remote, stateless: false, checked: false, login: false, sse: None, silence }
    }
}

/// Where a stream is to go on (MCP 2025-11-25, Resumability and Redelivery).
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Handshakes longer than this are not remembered; their sessions end with the server that made them.
const MAX_HANDSHAKE: usize = 8 << 10;

/// For how long a stream of a session waits for a server that is away, and the pause before it is tried again.
const AWAY: Duration = Duration::from_mins(1);
const AWAY_PAUSE: Duration = Duration::from_millis(500);

/// The proxy. Cheap to clone; clones share sessions and connections.
#[derive(Clone, Debug)]
pub struct Proxy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    upstream: Upstream,
    sessions: Arc<dyn SessionStore>,
    reopening: Reopening,
    stateless: bool,
    checked: bool,
    sse: Option<ClientUrl>,
    streams: Arc<sse::Streams>,
}

impl Proxy {
    /// A proxy that keeps its sessions in `sessions` and connects when the first request comes.
    pub fn new(config: ProxyConfig, sessions: Arc<dyn SessionStore>) -> Self {
        Self(Arc::new(Inner {
            sessions,
            reopening: Reopening::default(),
            stateless: config.stateless,
            checked: config.checked,
            sse: config.sse,
            streams: Arc::default(),
            upstream: Upstream::new(&config.backend, config.remote, config.silence, config.login),
        }))
    }
}

impl Transport for Proxy {
    fn service(&self) -> BoxService {
        let inner = Arc::clone(&self.0);
        BoxService::new(service_fn(move |request| {
            let inner = Arc::clone(&inner);
            async move { Ok::<_, Infallible>(inner.handle(request).await) }
        }))
    }

    fn sessions(&self) -> usize {
        self.0.sessions.len()
    }

    fn bounds(&self) -> Vec<Bound> {
        vec![self.0.upstream.bound()]
    }

    /// A server that is checked counts as available when it answers a GET of its root, or a `ping`, with any status from 200 to 499. It is asked for a
    /// GET first, unless it is stateless: that may open a stream whose head comes with its first event.
    fn ping(&self, timeout: Duration) -> Option<BoxFuture<'_, Result<(), FailedCheck>>> {
        if !self.0.checked {
            return None;
        }
        Some(Box::pin(async move {
            let failed = match self.0.check(self.0.stateless, timeout).await {
                Err(failed) if !self.0.stateless => failed,
                checked => return checked,
            };
            self.0.check(true, timeout).await.map_err(|_| failed)
        }))
    }
}

impl Inner {
    async fn check(&self, by_ping: bool, timeout: Duration) -> Result<(), FailedCheck> {
        let report = match tokio::time::timeout(timeout, self.upstream.probe(by_ping)).await {
            Ok(Ok(status)) if (200..500).contains(&status.as_u16()) => return Ok(()),
            Ok(Ok(status)) => format!("the MCP server answers HTTP {}", status.as_u16()),
            Ok(Err(error)) => {
                return Err(FailedCheck { report: error.to_client().to_owned(), log: error.to_string() });
            }
            Err(_) => format!("no answer from the MCP server within {} ms", timeout.as_millis()),
        };
        Err(FailedCheck { log: report.clone(), report })
    }

    async fn handle(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = match whole(body).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        if RequestContext::of(&parts.extensions).is_some_and(|context| context.is_open()) {
            return self.forward(parts, body, None, None, None).await;
        }
        if parts.method == Method::POST {
            return self.post(parts, body).await;
        }
        if let Some(sse) = self.sse.as_ref().filter(|_| parts.method == Method::GET) {
            return self.open_stream(sse, parts).await;
        }
        let over = self.over(&parts);
        let session = match Named::by(&*self.sessions, &parts).await {
            Named::Nothing => None,
            Named::Known(session) => Some(session),
            Named::Unknown => return not_found(None),
            Named::Unavailable => return unavailable(),
        };
        self.forward(parts, body, session, None, over).await
    }

    async fn post(&self, mut parts: Parts, body: Bytes) -> Response<Body> {
        let received = body.len();
        let owned = match message(&parts.extensions, body).await {
            Ok(message) => message,
            Err(error) => return json(StatusCode::BAD_REQUEST, error.body()),
        };
        let (message, body) = (owned.message(), owned.body().clone());
        if body.len() != received {
            // A byte order mark went, and the length with it.
            parts.headers.remove(CONTENT_LENGTH);
        }
        let revision = match classify(protocol_version(&parts.headers), message) {
            Ok(revision) => revision,
            Err(error) => return revision_refusal(&error, message),
        };
        let id = message.id().map(|id| id.raw());
        if self.sse.is_some() {
            // Its stream has opened the session, and every message belongs to one.
            let over = self.over(&parts);
            return match Named::by(&*self.sessions, &parts).await {
                Named::Known(session) => self.forward(parts, body, Some(session), id, over).await,
                Named::Nothing | Named::Unknown => not_found(id),
                Named::Unavailable => unavailable(),
            };
        }
        if message.method() == Some("initialize") {
            name_no_session(&mut parts);
            return self.initialize(parts, body, id).await;
        }
        let session = match revision {
            // The stateless era has no sessions: an id would reach one of somebody's at the server, unchecked.
            Revision::Modern => None,
            Revision::Legacy => match Named::by(&*self.sessions, &parts).await {
                Named::Nothing => None,
                Named::Known(session) => Some(session),
                Named::Unknown => return not_found(id),
                Named::Unavailable => return unavailable(),
            },
        };
        self.forward(parts, body, session, id, None).await
    }

    async fn initialize(&self, parts: Parts, body: Bytes, id: Option<&str>) -> Response<Body> {
        let sender = Sender::of(&parts.extensions);
        let outgoing = self.outgoing(parts, body);
        let (response, from) = match self.upstream.send(&outgoing).await {
            Ok(answer) => answer,
            Err(error) => return refusal(&error, id),
        };
        if response.status() == StatusCode::OK
            && let Some(session_id) = response.headers().get(mcp::SESSION_ID)
            && let Ok(name) = session_id.to_str()
            && let Some(principal) = sender.principal
        {
            // Text of its own: a slice of what was read would keep all of that alive.
            let mut record = SessionRecord::new(name, principal);
            record.backend_address = from;
            let handshake = Some(&outgoing.body).filter(|body| body.len() <= MAX_HANDSHAKE);
            record.handshake = handshake.and_then(|body| std::str::from_utf8(body).ok()).map(Into::into);
            match self.sessions.insert(record, &sender.client).await {
                Ok(Some(gone)) if gone.is_empty() => {}
                Ok(Some(gone)) => tracing::debug!(sessions = gone.len(), "forgot sessions that expired or did not fit"),
                Ok(None) => {
                    tracing::error!("the MCP server gave a client the id of another client's session");
                    let message = "the MCP server opened no session of its own";
                    let error = ErrorBody::new(code::INTERNAL, message).raw_id(id);
                    return json(StatusCode::BAD_GATEWAY, error.encode());
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot keep a session");
                    recovery::end(&self.upstream, &outgoing, session_id.clone(), from).await;
                    return unavailable();
                }
            }
        }
        response
    }

    /// Passes a request on, for as long as its session is not `over`.
    async fn forward(
        &self,
        mut parts: Parts,
        body: Bytes,
        session: Option<Arc<SessionRecord>>,
        id: Option<&str>,
        over: Option<CancellationToken>,
    ) -> Response<Body> {
        if session.is_none() {
            name_no_session(&mut parts);
        }
        let mut outgoing = self.outgoing(parts, body);
        let Some(session) = session else {
            let answer = self.upstream.send(&outgoing).await;
            return answer.map_or_else(|error| refusal(&error, id), |(response, _)| response);
        };
        if session.backend_id.is_some() {
            name_session(&mut outgoing, &session);
        }
        outgoing.to = self.upstream.address_of(&session);
        // Whatever path the client calls: the session takes messages where the server said, and nowhere else.
        outgoing.place = session.messages.as_ref().and_then(|place| place.parse().ok());
        let answer = tokio::select! {
            biased;
            () = cancelled(over.as_ref()) => return sse::over(outgoing.sent.into_inner(), id),
            answer = self.send_or_wait(&mut outgoing, &session, id) => answer,
        };
        match answer {
            Ok((mut response, _)) => {
                let ended = response.status().is_success() || response.status() == StatusCode::NOT_FOUND;
                if outgoing.method == Method::DELETE
                    && ended
                    && let Err(error) = self.sessions.remove(&session.id, &session.principal).await
                {
                    tracing::debug!(%error, "cannot forget a session that is over");
                    // A client that asks again ends it: other replicas would open it anew.
                    return unavailable();
                }
                if let Some(value) = response.headers_mut().get_mut(mcp::SESSION_ID)
                    && let Ok(id) = HeaderValue::from_str(&session.id)
                {
                    *value = id;
                }
                if let Some(over) = over {
                    return response.map(|body| sse::until(body, over));
                }
                // Other answers are over soon.
                if !is_type(response.headers(), "text/event-stream") {
                    return response;
                }
                let renewal = Renewal::new(Arc::clone(&self.sessions), session);
                response.map(|body| Body::new(Renewing { body, renewal }))
            }
            Err(error) => refusal(&error, id),
        }
    }

    fn outgoing(&self, mut parts: Parts, body: Bytes) -> Outgoing {
        let context = RequestContext::of(&parts.extensions);
        let client = context.map(|context| context.peer());
        let open = context.is_some_and(|context| context.is_open());
        headers::prepare(&mut parts.headers, &parts.uri, client, self.upstream.remote_scheme());
        if let Some(uri) = carriers::without_lookalikes(&parts.uri) {
            parts.uri = uri;
        }
        let signer = parts.extensions.get().cloned();
        Outgoing {
            method: parts.method,
            target: parts.uri,
            place: None,
            headers: parts.headers,
            body,
            to: None,
            open,
            signer,
            sent: AtomicBool::new(false),
        }
    }

    /// As [`send`](Self::send). A stream of a session waits for a server that is away: clients open theirs again when it breaks off, and some take a
    /// refusal of that, which is an answer, for the end of the session.
    async fn send_or_wait(
        &self,
        outgoing: &mut Outgoing,
        session: &SessionRecord,
        id: Option<&str>,
    ) -> Result<Answer, UpstreamError> {
        let until = Instant::now() + AWAY;
        loop {
            let answer = self.send(outgoing, session, id).await;
            let is_away = matches!(answer, Err(UpstreamError::Unreachable(_) | UpstreamError::Unnamed(_)));
            if outgoing.method != Method::GET || !is_away || Instant::now() >= until {
                return answer;
            }
            tracing::debug!("a stream waits for the MCP server, which cannot be reached");
            sleep(AWAY_PAUSE).await;
        }
    }

    /// Sends a session's request to the address that opened the session. Where that has lost it, or is gone, the session is opened anew and
    /// the request sent once more.
    async fn send(
        &self,
        outgoing: &mut Outgoing,
        session: &SessionRecord,
        id: Option<&str>,
    ) -> Result<Answer, UpstreamError> {
        let mut answer = self.upstream.send(outgoing).await;
        let gone = matches!(answer, Err(UpstreamError::Unreachable(_))) && outgoing.to.is_some();
        let lost = gone && outgoing.method != Method::DELETE || self.has_lost(&mut answer, outgoing, session, id).await;
        if lost && self.reopen(outgoing, session).await {
            return self.upstream.send(outgoing).await;
        }
        if gone {
            // Whoever serves the name now says whether the session lives.
            outgoing.to = None;
            answer = self.upstream.send(outgoing).await;
            // It may have come back a moment ago, and without the session.
            if self.has_lost(&mut answer, outgoing, session, id).await && self.reopen(outgoing, session).await {
                return self.upstream.send(outgoing).await;
            }
        }
        answer
    }

    /// Whether the server answers that it does not know the session of a request that does not end it.
    async fn has_lost(
        &self,
        answer: &mut Result<Answer, UpstreamError>,
        outgoing: &Outgoing,
        session: &SessionRecord,
        id: Option<&str>,
    ) -> bool {
        let Ok((response, _)) = answer else { return false };
        if outgoing.method == Method::DELETE {
            return false;
        }
        match recovery::said_of_session(response, id).await {
            Said::Lives => false,
            Said::Doubtful => session.handshake.is_some() && recovery::refuses_ping(&self.upstream, outgoing).await,
            Said::Lost => true,
        }
    }

    /// Opens the session anew, and names it so in the request. Returns whether that may be sent once more.
    async fn reopen(&self, outgoing: &mut Outgoing, session: &SessionRecord) -> bool {
        let reopened = recovery::recover(&self.upstream, &*self.sessions, &self.reopening, session, outgoing).await;
        if let Some(reopened) = &reopened {
            name_session(outgoing, reopened);
            outgoing.to = self.upstream.address_of(reopened);
        }
        reopened.is_some()
    }
}

/// Waits until the session is over, where that is known here.
async fn cancelled(over: Option<&CancellationToken>) {
    match over {
        Some(over) => over.cancelled().await,
        None => pending().await,
    }
}

/// Names the session as the MCP server does, where the client has named it.
fn name_session(outgoing: &mut Outgoing, session: &SessionRecord) {
    let id = session.backend_id.as_deref().unwrap_or(&session.id);
    if let Some(value) = outgoing.headers.get_mut(mcp::SESSION_ID) {
        // Made of a header's value, it is one.
        *value = HeaderValue::from_str(id).unwrap_or_else(|_| HeaderValue::from_static(""));
    }
    if let Some(target) = carriers::rename(&outgoing.target, Some(id)) {
        outgoing.target = target;
    }
}

/// Takes away what belongs to a session: its id, and the event that a stream of it is to go on behind, which nobody has checked.
fn name_no_session(parts: &mut Parts) {
    parts.headers.remove(mcp::SESSION_ID);
    parts.headers.remove(LAST_EVENT_ID);
    if let Some(uri) = carriers::rename(&parts.uri, None) {
        parts.uri = uri;
    }
}

/// What the client is told when there is no answer to pass on.
fn refusal(error: &UpstreamError, id: Option<&str>) -> Response<Body> {
    tracing::warn!(%error, "the MCP server gave no answer");
    let (status, code) = match error {
        UpstreamError::Timeout => (StatusCode::GATEWAY_TIMEOUT, code::INTERNAL),
        UpstreamError::TooLong => (StatusCode::URI_TOO_LONG, code::INVALID_REQUEST),
        _ => (StatusCode::BAD_GATEWAY, code::INTERNAL),
    };
    let mut response = json(status, ErrorBody::new(code, error.to_client()).raw_id(id).encode());
    if matches!(error, UpstreamError::Unreachable(_) | UpstreamError::Unnamed(_)) {
        response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if matches!(error, UpstreamError::Unauthorized) {
        response.extensions_mut().insert(Unauthorized);
    }
    response
}
