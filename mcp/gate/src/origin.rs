//! `origin`: which web pages a request may come from (toolhive-runner §2.5), and on a loopback address, to which host.
//!
//! A page of anybody's can have a browser on this machine call a server here. `Origin` says which page it is. A page whose name resolves to a
//! loopback address (DNS rebinding) is of the server's own origin to the browser, and then `Host` bears that page's name.

use std::net::{IpAddr, SocketAddr};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{HOST, HeaderMap, ORIGIN};
use http::uri::Authority;
use http::{Request, Response, StatusCode};
use mcp_http::{Body, json_error};
use mcp_middleware::{BuildContext, Middleware, Next};
use mcp_runconfig::{OriginParameters, chain};
use mcp_wire::{ErrorBody, code};

/// Refuses foreign origins and, on a loopback address, foreign hosts.
pub(crate) struct Origin {
    /// Empty where every origin is let in.
    allowed: Vec<String>,
    /// Whether the proxy listens on a loopback address.
    loopback: bool,
}

impl Origin {
    pub(crate) fn new(OriginParameters { allowed_origins }: OriginParameters, context: &BuildContext<'_>) -> Self {
        let address = context.settings.address;
        let loopback = address.ip().to_canonical().is_loopback();
        let allowed = if allowed_origins.is_empty() && loopback { own(address) } else { allowed_origins };
        Self { allowed, loopback }
    }

    /// Why a request with these headers is refused.
    fn refusal(&self, authority: Option<&Authority>, headers: &HeaderMap) -> Option<&'static str> {
        if self.loopback {
            let hosts = headers.get_all(HOST).iter().map(|host| host.to_str().ok().and_then(|host| host.parse().ok()));
            let mut hosts = hosts.chain(authority.map(|authority| Some(authority.clone()))).peekable();
            if hosts.peek().is_none() || !hosts.all(|host| host.is_some_and(|host| is_loopback(&host))) {
                return Some("Host not allowed");
            }
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let origin = origins.next().filter(|_| !self.allowed.is_empty())?;
        let is_listed = || {
            let origin = origin.to_str().unwrap_or_default();
            self.allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
        };
        // Which of several the browser meant, nobody can say.
        (origins.next().is_some() || !is_listed()).then_some("Origin not allowed")
    }
}

/// The origins of the pages that a server at `address` would serve itself. Browsers leave out the port of `http` (RFC 6454 §6.2).
fn own(address: SocketAddr) -> Vec<String> {
    let port = Some(address.port()).filter(|port| *port != 80).map(|port| format!(":{port}")).unwrap_or_default();
    ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}{port}")).into()
}

fn is_loopback(authority: &Authority) -> bool {
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    // Of a malformed name, `host` is the beginning.
    let rest = authority.as_str().get(host.len()..).unwrap_or_default();
    let port = rest.strip_prefix(':').unwrap_or(rest);
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

impl Middleware for Origin {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let Some(message) = self.refusal(request.uri().authority(), request.headers()) else {
            return next.call(request);
        };
        next.context().deny(chain::ORIGIN, message);
        let error = ErrorBody::new(code::INVALID_REQUEST, message);
        std::future::ready(json_error(StatusCode::FORBIDDEN, &error)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(origin: &Origin, list: &[(&'static str, &'static str)]) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        origin.refusal(None, &headers)
    }

    #[test]
    fn a_page_that_is_not_listed_does_not_call_the_server() {
        let listed = Origin { allowed: vec!["https://app.example".to_owned()], loopback: false };
        let off = Origin { allowed: vec![], loopback: false };
        let [own, own_80] =
            [8080, 80].map(|port| Origin { allowed: own(SocketAddr::from(([127, 0, 0, 1], port))), loopback: true });
        for (origin, headers, refused) in [
            (&listed, vec![], false),
            (&listed, vec![("origin", "https://app.example")], false),
            (&listed, vec![("origin", "HTTPS://App.Example")], false),
            (&listed, vec![("origin", "https://app.example:8443")], true),
            (&listed, vec![("origin", "https://app.example.evil.example")], true),
            (&listed, vec![("origin", "null")], true),
            (&listed, vec![("origin", "")], true),
            (&listed, vec![("origin", "https://app.example"), ("origin", "https://app.example")], true),
            (&off, vec![("origin", "https://evil.example")], false),
            (&own, vec![("host", "localhost:8080"), ("origin", "http://localhost:8080")], false),
            (&own, vec![("host", "localhost:8080"), ("origin", "http://[::1]:8080")], false),
            (&own, vec![("host", "localhost:8080"), ("origin", "http://localhost:8081")], true),
            (&own, vec![("host", "localhost:8080"), ("origin", "http://localhost")], true),
            (&own, vec![("host", "localhost:8080"), ("origin", "http://evil.example")], true),
            (&own_80, vec![("host", "localhost"), ("origin", "http://localhost")], false),
            (&own_80, vec![("host", "localhost"), ("origin", "http://localhost:8080")], true),
        ] {
            let expected = refused.then_some("Origin not allowed");
            assert_eq!(refusal(origin, &headers), expected, "{:?} {headers:?}", origin.allowed);
        }
    }

    #[test]
    fn a_name_that_was_made_to_resolve_to_this_machine_is_not_served_on_a_loopback_address() {
        let local = Origin { allowed: own(SocketAddr::from(([127, 0, 0, 1], 80))), loopback: true };
        for (host, refused) in [
            ("localhost", false),
            ("LOCALHOST:8080", false),
            ("127.0.0.1:8080", false),
            ("127.1.2.3", false),
            ("[::1]:8080", false),
            ("evil.example.com", true),
            ("localhost.evil.example", true),
            ("127.0.0.1.evil.example:80", true),
            ("10.0.0.1", true),
            ("evil.example@localhost", true),
            ("localhost@evil.example", true),
            ("localhost:evil.example", true),
            ("[::1].evil.example", true),
            ("[::1]evil.example:80", true),
            ("", true),
        ] {
            assert_eq!(refusal(&local, &[("host", host)]), refused.then_some("Host not allowed"), "{host:?}");
        }
        assert!(refusal(&local, &[("host", "localhost"), ("host", "evil.example")]).is_some());
        assert!(refusal(&local, &[]).is_some(), "without Host nobody knows");
        let authority = Authority::from_static("evil.example");
        assert!(local.refusal(Some(&authority), &HeaderMap::new()).is_some());
        // Elsewhere the name is the cluster's or the user's.
        let open = Origin { allowed: vec![], loopback: false };
        assert_eq!(refusal(&open, &[("host", "evil.example.com")]), None);
    }
}
