//! The hop to the server: pooled connections, redirects on the same host, no more.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use mcp_http::{Body, BoxError, empty, full};

use super::headers::remove_hop_by_hop;

/// Pauses before connecting once more: a server that restarts is back within a second or not soon.
const CONNECT_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];
const MAX_REDIRECTS: usize = 10;
const IDLE: Duration = Duration::from_mins(1);
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamError {
    /// No connection: nothing was sent.
    #[error("cannot connect to the MCP server: {0}")]
    Unreachable(#[source] BoxError),
    /// No answer in time.
    #[error("the MCP server did not answer in time")]
    Timeout,
    /// The connection ended before the head of an answer; the request may have been acted on.
    #[error("the MCP server ended the connection: {0}")]
    Broken(#[source] BoxError),
    /// Redirects that are not followed.
    #[error("the MCP server redirects to {0:?}; only redirects on the same host are followed, {MAX_REDIRECTS} at most")]
    Redirect(String),
}

impl UpstreamError {
    /// What a client may know.
    pub(super) fn to_client(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "the MCP server cannot be reached",
            Self::Timeout => "the MCP server did not answer in time",
            Self::Broken(_) => "the MCP server ended the connection",
            Self::Redirect(_) => "the MCP server redirects elsewhere",
        }
    }
}

/// A request on its way to the server.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    /// The client's target; its path and query are used.
    pub(super) target: Uri,
    pub(super) headers: HeaderMap,
    pub(super) payload: Payload,
}

#[derive(Debug)]
pub(super) enum Payload {
    /// Can be sent again.
    Whole(Bytes),
    /// Passes through once.
    Stream(Body),
}

/// A request that can be sent once more.
#[derive(Debug)]
pub(super) struct Repeat {
    pub(super) method: Method,
    pub(super) target: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Outgoing {
    /// The same request; `None` when its body can be sent only once.
    pub(super) fn again(&self) -> Option<Repeat> {
        let Payload::Whole(body) = &self.payload else { return None };
        Some(Repeat {
            method: self.method.clone(),
            target: self.target.clone(),
            headers: self.headers.clone(),
            body: body.clone(),
        })
    }
}

impl From<Repeat> for Outgoing {
    fn from(Repeat { method, target, headers, body }: Repeat) -> Self {
        Self { method, target, headers, payload: Payload::Whole(body) }
    }
}

/// The server, as a place to send requests to.
#[derive(Debug)]
pub(super) struct Upstream {
    client: Client<HttpConnector, Body>,
    authority: Authority,
    /// A path that replaces the request's.
    path: Option<String>,
    query: Option<String>,
    answer_timeout: Duration,
}

impl Upstream {
    pub(super) fn new(backend: &Uri, connect_timeout: Duration, answer_timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect_timeout));
        // Streams may be silent for hours; this is how a dead server is noticed.
        connector.set_keepalive(Some(TCP_KEEPALIVE));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        let path = Some(backend.path()).filter(|path| !matches!(*path, "" | "/")).map(str::to_owned);
        Self {
            client,
            authority: backend.authority().cloned().unwrap_or_else(|| Authority::from_static("localhost")),
            path,
            query: backend.query().filter(|query| !query.is_empty()).map(str::to_owned),
            answer_timeout,
        }
    }

    /// Sends a request and returns the head of its answer with the body to come. Dropping the future, or the body of the
    /// answer, ends the connection: that is how a client's leaving reaches the server.
    pub(super) async fn send(&self, outgoing: Outgoing) -> Result<Response<Body>, UpstreamError> {
        // A GET opens a stream, and some servers send its head with the first event only.
        if outgoing.method == Method::GET {
            return self.exchange(outgoing).await;
        }
        tokio::time::timeout(self.answer_timeout, self.exchange(outgoing)).await.map_err(|_| UpstreamError::Timeout)?
    }

    async fn exchange(&self, outgoing: Outgoing) -> Result<Response<Body>, UpstreamError> {
        let mut uri = self.uri(&outgoing.target);
        let Outgoing { method, headers, payload, .. } = outgoing;
        let bytes = match payload {
            Payload::Stream(body) => {
                let response = self.once(request(method, uri, headers, body)).await?;
                return if is_redirect(&response) {
                    Err(UpstreamError::Redirect(location(&response)))
                } else {
                    Ok(response)
                };
            }
            Payload::Whole(bytes) => bytes,
        };
        for _ in 0..=MAX_REDIRECTS {
            let response = self.connected(&method, &uri, &headers, &bytes).await?;
            if !is_redirect(&response) {
                return Ok(response);
            }
            let to = location(&response);
            uri = self.same_host(&to).ok_or(UpstreamError::Redirect(to))?;
        }
        Err(UpstreamError::Redirect(uri.to_string()))
    }

    /// One exchange, with the attempts to connect repeated: nothing was sent before there is a connection.
    async fn connected(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        bytes: &Bytes,
    ) -> Result<Response<Body>, UpstreamError> {
        let mut pauses = CONNECT_PAUSES.into_iter();
        loop {
            let attempt = request(method.clone(), uri.clone(), headers.clone(), full(bytes.clone()));
            match self.once(attempt).await {
                Err(UpstreamError::Unreachable(error)) => match pauses.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(UpstreamError::Unreachable(error)),
                },
                other => return other,
            }
        }
    }

    async fn once(&self, request: Request<Body>) -> Result<Response<Body>, UpstreamError> {
        match self.client.request(request).await {
            Ok(response) => {
                let (mut parts, body) = response.into_parts();
                remove_hop_by_hop(&mut parts.headers);
                parts.extensions.clear();
                Ok(Response::from_parts(parts, body.map_err(BoxError::from).boxed_unsync()))
            }
            Err(error) if error.is_connect() => Err(UpstreamError::Unreachable(error.into())),
            Err(error) => Err(UpstreamError::Broken(error.into())),
        }
    }

    /// Asks for a sign of life and returns the status.
    pub(super) async fn probe(&self, stateless: bool) -> Result<StatusCode, UpstreamError> {
        let (method, target, body) = if stateless {
            let ping = Bytes::from_static(br#"{"jsonrpc":"2.0","id":"health","method":"ping"}"#);
            (Method::POST, Uri::from_static("/mcp"), full(ping))
        } else {
            (Method::GET, Uri::from_static("/"), empty())
        };
        let mut headers = HeaderMap::new();
        if stateless {
            accept_answers(&mut headers);
        }
        let uri = if stateless { self.uri(&target) } else { self.assemble(PathAndQuery::from_static("/")) };
        Ok(self.once(request(method, uri, headers, body)).await?.status())
    }

    fn uri(&self, target: &Uri) -> Uri {
        let path = self.path.as_deref();
        let plain = || target.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        if path.is_none() && self.query.is_none() {
            return self.assemble(plain());
        }
        let mut text = path.unwrap_or_else(|| target.path()).to_owned();
        for (mark, query) in ['?', '&'].into_iter().zip([self.query.as_deref(), target.query()].into_iter().flatten()) {
            text.push(mark);
            text.push_str(query);
        }
        self.assemble(text.parse().unwrap_or_else(|_| plain()))
    }

    fn assemble(&self, path_and_query: PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path_and_query);
        // The three parts are valid and complete, so the fallback is never taken.
        Uri::from_parts(parts).unwrap_or_default()
    }

    /// Where a redirect leads, when that is this server: the same scheme, host and port.
    fn same_host(&self, location: &str) -> Option<Uri> {
        let uri: Uri = location.parse().ok()?;
        match (uri.scheme(), uri.authority()) {
            (None, None) if location.starts_with('/') && !location.starts_with("//") => {
                Some(self.assemble(uri.path_and_query()?.clone()))
            }
            (Some(scheme), Some(authority)) if *scheme == Scheme::HTTP && same(authority, &self.authority) => Some(uri),
            _ => None,
        }
    }
}

fn same(a: &Authority, b: &Authority) -> bool {
    a.host().eq_ignore_ascii_case(b.host()) && a.port_u16().unwrap_or(80) == b.port_u16().unwrap_or(80)
}

fn request(method: Method, uri: Uri, headers: HeaderMap, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
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

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(backend: &'static str) -> Upstream {
        Upstream::new(&Uri::from_static(backend), Duration::ZERO, Duration::ZERO)
    }

    #[test]
    fn a_base_path_replaces_the_requests_and_a_base_query_goes_before_it() {
        for (backend, target, expected) in [
            ("http://b:1", "/mcp?x=1", "http://b:1/mcp?x=1"),
            ("http://b:1/", "/mcp", "http://b:1/mcp"),
            ("http://b:1/api/mcp", "/mcp?x=1", "http://b:1/api/mcp?x=1"),
            ("http://b:1?k=v", "/mcp?x=1", "http://b:1/mcp?k=v&x=1"),
            ("http://b:1/p?k=v", "/mcp", "http://b:1/p?k=v"),
        ] {
            assert_eq!(upstream(backend).uri(&Uri::from_static(target)).to_string(), expected, "{backend} {target}");
        }
    }

    #[test]
    fn redirects_stay_on_the_host() {
        let upstream = upstream("http://b:80");
        for (location, expected) in [
            ("/mcp/", Some("http://b:80/mcp/")),
            ("http://B/mcp/", Some("http://B/mcp/")),
            ("https://b/mcp", None),
            ("http://b:81/mcp", None),
            ("http://other/mcp", None),
            ("//other/mcp", None),
            ("mcp/", None),
            ("", None),
        ] {
            let followed = upstream.same_host(location).map(|uri| uri.to_string());
            assert_eq!(followed.as_deref(), expected, "{location}");
        }
    }
}
