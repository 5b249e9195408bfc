//! The hop to the server: pooled connections, redirects on the same host, no more.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use mcp_http::{Body, BoxError, Connecting, Connections, Failure, ForbiddenAddress};

use super::headers::remove_hop_by_hop;
use crate::query::{ENDS, member};

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
    /// A remote server asks for a login where callers have logged in at the proxy.
    #[error("the MCP server answers 401: it does not take the credentials of the request")]
    Unauthorized,
}

impl UpstreamError {
    /// What a client may know.
    pub(super) fn to_client(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "the MCP server cannot be reached",
            Self::Forbidden(_) => "the MCP server may not be called at its address",
            Self::Timeout => "the MCP server did not answer in time",
            Self::Broken(_) => "the MCP server ended the connection",
            Self::Redirect(_) => "the MCP server redirects elsewhere",
            Self::TooLong => "the query of the request is too long",
            Self::Unauthorized => "the MCP server does not let the proxy in",
        }
    }
}

/// A request to the server, whole, so that it can be sent again.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    /// The client's target; its path and query are used.
    pub(super) target: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The address that has to answer. `None`: any of the server's.
    pub(super) to: Option<SocketAddr>,
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
    /// Whether callers log in at the proxy: a remote server has no say in where.
    login: bool,
    scheme: Scheme,
    authority: Authority,
    host: HeaderValue,
    /// A path that replaces the request's.
    path: Option<String>,
    query: Option<String>,
    /// The names in `query`, which no client has a say in.
    own: Vec<String>,
}

impl Upstream {
    /// The server at `backend`; to a remote one, connections are made as `remote` says. `login`: callers log in at the proxy.
    pub(super) fn new(backend: &Uri, remote: Option<Connecting>, login: bool) -> Self {
        let authority = backend.authority().cloned().unwrap_or_else(|| Authority::from_static("localhost"));
        let path = Some(backend.path()).filter(|path| !matches!(*path, "" | "/")).map(str::to_owned);
        let is_remote = remote.is_some();
        let how = Connecting { timeout: Some(CONNECT), ..remote.unwrap_or_default() };
        // Without a user and a password, which are no part of a Host.
        let host = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, host)| host);
        let query = backend.query().filter(|query| !query.is_empty());
        let names = query.into_iter().flat_map(|query| query.split(ENDS)).filter_map(member);
        Self {
            // An authority is a header's value always.
            host: HeaderValue::from_str(host).unwrap_or_else(|_| HeaderValue::from_static("localhost")),
            connections: Connections::new(backend.clone(), how),
            remote: is_remote,
            login,
            scheme: backend.scheme().cloned().unwrap_or(Scheme::HTTP),
            authority,
            path,
            own: names.map(|(name, _)| name).collect(),
            query: query.map(str::to_owned),
        }
    }

    /// What a remote server is told of the scheme that it is called by.
    pub(super) fn remote_scheme(&self) -> Option<&str> {
        self.remote.then(|| self.scheme.as_str())
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
        let mut path = self.path(&outgoing.target)?;
        for _ in 0..=MAX_REDIRECTS {
            let (response, from) = self.connected(outgoing, &path).await?;
            if !is_redirect(&response) {
                return Ok((self.without_challenge(response)?, from));
            }
            let to = location(&response);
            path = self.same_host(&to).ok_or_else(|| UpstreamError::Redirect(without_secrets(&to)))?;
        }
        Err(UpstreamError::Redirect(path.path().to_owned()))
    }

    /// What a client may see of an answer. Behind a login, the challenge of a remote server would lead the client away from the proxy's provider to
    /// one of that server's choice, and have it send the proxy's users there.
    fn without_challenge(&self, mut response: Response<Body>) -> Result<Response<Body>, UpstreamError> {
        if self.remote && self.login {
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
            let Outgoing { method, headers, body, to, .. } = outgoing;
            match self.once(method.clone(), path.clone(), headers.clone(), body.clone(), *to).await {
                Err(UpstreamError::Unreachable(error)) => match pauses.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(UpstreamError::Unreachable(error)),
                },
                other => return other,
            }
        }
    }

    async fn once(
        &self,
        method: Method,
        path: PathAndQuery,
        mut headers: HeaderMap,
        body: Bytes,
        to: Option<SocketAddr>,
    ) -> Result<Answer, UpstreamError> {
        headers.insert(HOST, self.host.clone());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.into();
        *request.headers_mut() = headers;
        match self.connections.exchange(request, to).await {
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
            Err(Failure::Forbidden(error)) => Err(UpstreamError::Forbidden(error)),
            Err(Failure::Broken(error)) => Err(UpstreamError::Broken(error)),
        }
    }

    /// Asks for a sign of life and returns the status.
    pub(super) async fn probe(&self, stateless: bool) -> Result<StatusCode, UpstreamError> {
        let mut headers = HeaderMap::new();
        let answer = if stateless {
            accept_answers(&mut headers);
            let ping = Bytes::from_static(br#"{"jsonrpc":"2.0","id":"health","method":"ping"}"#);
            self.once(Method::POST, self.path(&Uri::from_static("/mcp"))?, headers, ping, None).await
        } else {
            self.once(Method::GET, PathAndQuery::from_static("/"), headers, Bytes::new(), None).await
        };
        Ok(answer?.0.status())
    }

    /// Path and query of a request whose client asked for `target`. Never the client's own where the server's URL has one.
    fn path(&self, target: &Uri) -> Result<PathAndQuery, UpstreamError> {
        let path = self.path.as_deref();
        if path.is_none() && self.query.is_none() {
            return Ok(target.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
        }
        let mut text = path.unwrap_or_else(|| target.path()).to_owned();
        let theirs = target.query().map(|query| self.without_own(query)).filter(|query| !query.is_empty());
        for (mark, query) in ['?', '&'].into_iter().zip([self.query.as_deref(), theirs.as_deref()].into_iter().flatten()) {
            text.push(mark);
            text.push_str(query);
        }
        // It is made of parts of two targets, so it can only be too long.
        text.parse().map_err(|_| UpstreamError::TooLong)
    }

    /// A client's query without the members that the server's URL has: of two of one name, some servers take the first and some the last.
    fn without_own<'a>(&self, query: &'a str) -> Cow<'a, str> {
        let is_own = |text: &str| {
            let name = member(text.trim_end_matches(ENDS)).map(|(name, _)| name);
            name.is_some_and(|name| self.own.iter().any(|own| own.eq_ignore_ascii_case(&name)))
        };
        if !query.split_inclusive(ENDS).any(is_own) {
            return Cow::Borrowed(query);
        }
        let left: String = query.split_inclusive(ENDS).filter(|text| !is_own(text)).collect();
        Cow::Owned(left.trim_end_matches(ENDS).to_owned())
    }

    /// Where a redirect leads, when that is this server: the same scheme, host and port.
    fn same_host(&self, location: &str) -> Option<PathAndQuery> {
        let uri: Uri = location.parse().ok()?;
        match (uri.scheme(), uri.authority()) {
            (None, None) if location.starts_with('/') && !location.starts_with("//") => uri.path_and_query().cloned(),
            (Some(scheme), Some(authority)) if *scheme == self.scheme && self.is_authority(authority) => {
                Some(uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")))
            }
            _ => None,
        }
    }

    fn is_authority(&self, other: &Authority) -> bool {
        let port =
            |authority: &Authority| authority.port_u16().unwrap_or(if self.scheme == Scheme::HTTPS { 443 } else { 80 });
        self.authority.host().eq_ignore_ascii_case(other.host()) && port(&self.authority) == port(other)
    }
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

/// Scheme, host and path of what is to be a URL: without a user and a password, and without a query.
fn without_secrets(location: &str) -> String {
    let place = location.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = place.split_once("//") else { return place.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}//{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(backend: &'static str) -> Upstream {
        Upstream::new(&Uri::from_static(backend), None, false)
    }

    #[test]
    fn a_base_path_replaces_the_requests_and_a_base_query_goes_before_it() {
        for (backend, target, expected) in [
            ("http://b:1", "/mcp?x=1", "/mcp?x=1"),
            ("http://b:1/", "/mcp", "/mcp"),
            ("http://b:1/api/mcp", "/mcp?x=1", "/api/mcp?x=1"),
            ("http://b:1?k=v", "/mcp?x=1", "/mcp?k=v&x=1"),
            ("http://b:1/p?k=v", "/mcp", "/p?k=v"),
            ("http://b:1/p", "/mcp?k=w&;k=w", "/p?k=w&;k=w"),
            ("http://b:1/p?read_only=true", "/mcp?read_only=false", "/p?read_only=true"),
            ("http://b:1/p?read_only=true&k", "/mcp?a=%2F&read%5fonly=x&K;b", "/p?read_only=true&k&a=%2F&b"),
            ("http://b:1/p?read_only=true", "/mcp?+READ.only[]=x;a", "/p?read_only=true&a"),
        ] {
            let path = upstream(backend).path(&Uri::from_static(target)).unwrap();
            assert_eq!(path.to_string(), expected, "{backend} {target}");
        }
    }

    #[test]
    fn a_query_that_is_too_long_for_the_servers_url_does_not_go_out_without_that() {
        for (length, fits) in [(65_527, true), (65_528, false)] {
            let target: Uri = format!("/mcp?{}", "x".repeat(length)).parse().unwrap();
            assert_eq!(upstream("http://b:1/p?k=v").path(&target).is_ok(), fits, "{length}");
            assert!(upstream("http://b:1").path(&target).is_ok(), "{length}");
        }
    }

    #[test]
    fn the_place_of_a_redirect_is_told_without_what_may_be_a_secret() {
        for (location, told) in [
            ("https://b/login?code=hush#hush", "https://b/login"),
            ("https://user:hush@b:1/a/b//c", "https://b:1/a/b//c"),
            ("https://hush@b", "https://b"),
            ("//hush@b/x?hush", "//b/x"),
            ("/login?next=https://hush@b/", "/login"),
            ("mcp/", "mcp/"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(location), told, "{location}");
        }
    }

    #[test]
    fn redirects_stay_on_the_scheme_the_host_and_the_port() {
        for (backend, location, expected) in [
            ("http://b:80", "/mcp/", Some("/mcp/")),
            ("http://b:80", "http://B/mcp/", Some("/mcp/")),
            ("http://b:80", "https://b/mcp", None),
            ("http://b:80", "https://b:80/mcp", None),
            ("http://b:80", "http://b:81/mcp", None),
            ("http://b:80", "http://other/mcp", None),
            ("http://b:80", "//other/mcp", None),
            ("http://b:80", "mcp/", None),
            ("http://b:80", "", None),
            ("https://b/base", "/mcp/?k=v", Some("/mcp/?k=v")),
            ("https://b/base", "https://b:443/mcp/", Some("/mcp/")),
            ("https://b:8443", "https://b:8443", Some("/")),
            ("https://b:8443", "https://b/mcp", None),
            ("https://b", "http://b:443/mcp", None),
            ("https://b", "http://b/mcp", None),
            ("https://b", "https://b.evil/mcp", None),
            ("https://b", "https://b@evil/mcp", None),
        ] {
            let followed = upstream(backend).same_host(location).map(|path| path.to_string());
            assert_eq!(followed.as_deref(), expected, "{backend} {location}");
        }
    }
}
