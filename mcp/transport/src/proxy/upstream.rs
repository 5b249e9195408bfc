//! The hop to the server: pooled connections, redirects on the same host, no more.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use mcp_http::{Body, BoxError, Connecting, Connections, Failure, ForbiddenAddress, Signer, Silence};
use mcp_middleware::beside;
use mcp_runconfig::endpoint::without_secrets;
use mcp_store::{Bound, SessionRecord};

use super::headers::remove_hop_by_hop;
use super::server_url::ServerUrl;

/// Pauses before connecting once more: a server that restarts is back within a second or not soon.
const CONNECT_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];
/// How long one attempt to connect may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the head of the answer to a POST or DELETE may take. Streams have no limit.
const ANSWER: Duration = Duration::from_mins(10);
const MAX_REDIRECTS: usize = 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamError {
    /// No connection: nothing was sent.
    #[error("cannot connect to the MCP server: {0}")]
    Unreachable(#[source] BoxError),
    /// No connection, as nobody says now which addresses the server's name has: nothing was sent.
    #[error("cannot look up the MCP server: {0}")]
    Unnamed(#[source] BoxError),
    /// No connection, as the server may not be called where it is.
    #[error("cannot connect to the MCP server: {0}")]
    Forbidden(#[source] ForbiddenAddress),
    /// No answer in time.
    #[error("the MCP server did not answer in time")]
    Timeout,
    /// The connection ended before the head of an answer; the request may have been acted on.
    #[error("the MCP server ended the connection: {0}")]
    Broken(#[source] BoxError),
    /// Redirects that are not followed, and where they lead: without what may be a secret there, as this is logged.
    #[error("the MCP server redirects to {0:?}; only redirects on the same host are followed, {MAX_REDIRECTS} at most")]
    Redirect(String),
    /// Nothing was sent: the server's own path and query with the client's query are more than a target can be.
    #[error("the request's query is too long behind the path and the query of the MCP server's URL")]
    TooLong,
    /// Nothing was sent: the server takes signed requests alone.
    #[error("cannot sign the request to the MCP server: {0}")]
    Unsigned(String),
    /// The server asks for a login where callers have logged in at the proxy.
    #[error("the MCP server answers 401: it does not take the credentials of the request")]
    Unauthorized,
}

impl UpstreamError {
    /// What a client may know.
    pub(super) fn to_client(&self) -> &'static str {
        match self {
            Self::Unreachable(_) | Self::Unnamed(_) => "the MCP server cannot be reached",
            Self::Forbidden(_) => "the MCP server may not be called at its address",
            Self::Timeout => "the MCP server did not answer in time",
            Self::Broken(_) => "the MCP server ended the connection",
            Self::Redirect(_) => "the MCP server redirects elsewhere",
            Self::TooLong => "the query of the request is too long",
            Self::Unsigned(_) => "the request cannot be signed",
            Self::Unauthorized => "the MCP server does not let the proxy in",
        }
    }
}

/// A request to the server, whole, so that it can be sent again.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    /// The client's target; its path and query are used, unless there is a `place`.
    pub(super) target: Uri,
    /// The path and query that the server itself has named.
    pub(super) place: Option<PathAndQuery>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The address that has to answer. `None`: any of the server's.
    pub(super) to: Option<SocketAddr>,
    /// Whether it is to a path that is open. Then a redirect is the client's to follow, since the proxy decides whether the new path passes, and the
    /// connection ends with the answer, since a server may take some of the body for another request.
    pub(super) open: bool,
    /// Signs each attempt, where the server takes nothing unsigned.
    pub(super) signer: Option<Signer>,
    /// Whether the server may have got it.
    pub(super) sent: AtomicBool,
}

/// The head of an answer with the body to come, and the address of the server to go on with.
pub(super) type Answer = (Response<Body>, Option<SocketAddr>);

/// The server, as a place to send requests to.
#[derive(Debug)]
pub(super) struct Upstream {
    connections: Connections,
    /// Whether it is somebody else's server, behind addresses that are nobody's business here: which one has a session, the name's owner
    /// decides at every request.
    remote: bool,
    /// Whether callers log in at the proxy: a server behind it has no say in where.
    login: bool,
    url: ServerUrl,
    host: HeaderValue,
}

impl Upstream {
    /// The server at `backend`, given up as `silence` says; to a remote one, connections are made as `remote` says. `login`: callers log in at
    /// the proxy.
    pub(super) fn new(backend: &Uri, remote: Option<Connecting>, silence: Silence, login: bool) -> Self {
        let url = ServerUrl::of(backend);
        let is_remote = remote.is_some();
        let how = Connecting { timeout: Some(CONNECT), silence, ..remote.unwrap_or_default() };
        Self {
            // An authority is a header's value always.
            host: HeaderValue::from_str(url.host()).unwrap_or_else(|_| HeaderValue::from_static("localhost")),
            connections: Connections::new(backend.clone(), how),
            remote: is_remote,
            login,
            url,
        }
    }

    pub(super) fn url(&self) -> &ServerUrl {
        &self.url
    }

    /// What a remote server is told of the scheme that it is called by.
    pub(super) fn remote_scheme(&self) -> Option<&str> {
        self.remote.then(|| self.url.scheme())
    }

    /// The address where the requests of a session go: none of a remote server, also where the record has one, as ToolHive's have.
    pub(super) fn address_of(&self, session: &SessionRecord) -> Option<SocketAddr> {
        session.backend_address.filter(|_| !self.remote)
    }

    /// Sends a request and returns the head of its answer with the body to come, and the address where what it opens has to stay: none of a
    /// remote server. Dropping the future, or the body of the answer, ends the connection: that is how a client's leaving reaches the server.
    pub(super) async fn send(&self, outgoing: &Outgoing) -> Result<Answer, UpstreamError> {
        // A GET opens a stream, and some servers send its head with the first event only.
        if outgoing.method == Method::GET {
            return self.follow(outgoing).await;
        }
        tokio::time::timeout(ANSWER, self.follow(outgoing)).await.map_err(|_| UpstreamError::Timeout)?
    }

    async fn follow(&self, outgoing: &Outgoing) -> Result<Answer, UpstreamError> {
        let place = outgoing.place.clone().or_else(|| self.url.target(&outgoing.target));
        let mut path = place.ok_or(UpstreamError::TooLong)?;
        for _ in 0..=MAX_REDIRECTS {
            let (mut response, from) = self.connected(outgoing, &path).await?;
            if !is_redirect(&response) {
                return Ok((self.without_challenge(response)?, from));
            }
            let to = location(&response);
            path = self.url.same_host(&to).ok_or_else(|| UpstreamError::Redirect(without_secrets(&to)))?;
            if outgoing.open {
                // The server knows itself by another name than the client does.
                let here = HeaderValue::from_str(path.as_str()).map_err(|error| UpstreamError::Broken(error.into()))?;
                response.headers_mut().insert(LOCATION, here);
                return Ok((self.without_challenge(response)?, from));
            }
        }
        Err(UpstreamError::Redirect(path.path().to_owned()))
    }

    /// An answer without what no client may see. Behind a login, the challenge of a server would lead the client away from the proxy's provider to one
    /// of that server's choice, and have it send the proxy's users there.
    fn without_challenge(&self, mut response: Response<Body>) -> Result<Response<Body>, UpstreamError> {
        if self.login {
            if response.status() == StatusCode::UNAUTHORIZED {
                return Err(UpstreamError::Unauthorized);
            }
            response.headers_mut().remove(WWW_AUTHENTICATE);
        }
        Ok(response)
    }

    /// One exchange, with the attempts to connect repeated: nothing was sent before there is a connection. Those to one address are repeated
    /// once: a session should not be lost with one connection that is refused, and another address may answer sooner than that one is back.
    async fn connected(&self, outgoing: &Outgoing, path: &PathAndQuery) -> Result<Answer, UpstreamError> {
        let pauses = if outgoing.to.is_some() { 1 } else { CONNECT_PAUSES.len() };
        let mut pauses = CONNECT_PAUSES.into_iter().take(pauses);
        loop {
            let Outgoing { method, headers, body, to, sent, open, signer, .. } = outgoing;
            let mut headers = headers.clone();
            if *open {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            let head = self.head(method.clone(), path.clone(), headers);
            let head = match signer {
                Some(signer) => signed(signer.clone(), head, body.clone()).await?,
                None => head,
            };
            match self.once(head, body.clone(), *to, sent).await {
                Err(error @ (UpstreamError::Unreachable(_) | UpstreamError::Unnamed(_))) => match pauses.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(error),
                },
                other => return other,
            }
        }
    }

    fn head(&self, method: Method, path: PathAndQuery, mut headers: HeaderMap) -> Parts {
        headers.insert(HOST, self.host.clone());
        let (mut head, ()) = Request::new(()).into_parts();
        (head.method, head.uri, head.headers) = (method, path.into(), headers);
        head
    }

    async fn once(
        &self,
        head: Parts,
        body: Bytes,
        to: Option<SocketAddr>,
        sent: &AtomicBool,
    ) -> Result<Answer, UpstreamError> {
        let request = Request::from_parts(head, Full::new(body));
        match self.connections.exchange_noting(request, to, sent).await {
            // No request asks for it, and whoever stands before this proxy would take what follows for another protocol.
            Ok((response, _)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                Err(UpstreamError::Broken("it switches to another protocol unasked".into()))
            }
            Ok((mut response, from)) => {
                remove_hop_by_hop(response.headers_mut());
                response.extensions_mut().clear();
                Ok((response, (!self.remote).then_some(from)))
            }
            Err(Failure::Unreachable(error)) => Err(UpstreamError::Unreachable(error)),
            Err(Failure::Unnamed(error)) => Err(UpstreamError::Unnamed(error)),
            Err(Failure::Forbidden(error)) => Err(UpstreamError::Forbidden(error)),
            Err(Failure::Broken(error)) => Err(UpstreamError::Broken(error)),
        }
    }

    pub(super) fn bound(&self) -> Bound {
        self.connections.bound()
    }

    /// Asks for a sign of life and returns the status.
    pub(super) async fn probe(&self, by_ping: bool) -> Result<StatusCode, UpstreamError> {
        let (mut headers, sent) = (HeaderMap::new(), AtomicBool::new(false));
        let answer = if by_ping {
            accept_answers(&mut headers);
            let ping = Bytes::from_static(br#"{"jsonrpc":"2.0","id":"health","method":"ping"}"#);
            let target = self.url.target(&Uri::from_static("/mcp")).ok_or(UpstreamError::TooLong)?;
            self.once(self.head(Method::POST, target, headers), ping, None, &sent).await
        } else {
            let head = self.head(Method::GET, PathAndQuery::from_static("/"), headers);
            self.once(head, Bytes::new(), None, &sent).await
        };
        Ok(answer?.0.status())
    }
}

/// The head with a signature of all of the request.
async fn signed(signer: Signer, mut head: Parts, body: Bytes) -> Result<Parts, UpstreamError> {
    let head = beside(body.len(), move || signer.sign(&mut head, &body).map(|()| head)).await;
    head.map_err(UpstreamError::Unsigned)
}

/// Says that both forms of an answer are understood.
pub(super) fn accept_answers(headers: &mut HeaderMap) {
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
}

fn is_redirect(response: &Response<Body>) -> bool {
    matches!(response.status().as_u16(), 301 | 302 | 307 | 308)
}

fn location(response: &Response<Body>) -> String {
    response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}
