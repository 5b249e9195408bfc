//! `origin`: which web pages a request may come from (toolhive-runner §2.5), and on a loopback address, to which host.
//!
//! A page of anybody's can have a browser call a server that the browser's network reaches. `Origin` says which page it is. A page whose
//! name resolves to a loopback address (DNS rebinding) is of the server's own origin to the browser, and then `Host` bears that page's name.
//! Browsers ask by OPTIONS before they send a page's message: the proxy answers that itself, before any login, since no browser logs in there.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ALLOW, HOST, HeaderMap,
    HeaderValue, ORIGIN, VARY,
};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode};
use mcp_http::{Body, empty, json_error};
use mcp_middleware::{BuildContext, Guard, Middleware, Next, Outcome};
use mcp_runconfig::{OriginParameters, chain};
use mcp_wire::headers::remove_where;
use mcp_wire::{ErrorBody, code};

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
const EXPOSED: HeaderValue = HeaderValue::from_static("Mcp-Session-Id, WWW-Authenticate");
/// Seconds for which a browser may remember what it was told.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// Begins the names of all headers by which a server speaks to browsers about origins.
const CORS: &str = "access-control-";

/// Refuses foreign origins and, on a loopback address, foreign hosts. Tells browsers what pages of the others may do.
pub(crate) struct Origin {
    pages: Pages,
    guard: Guard,
}

/// The pages that may call, and how.
struct Pages {
    allowed: Allowed,
    /// Whether the proxy listens on a loopback address.
    loopback: bool,
}

/// The pages that may call.
#[derive(Debug)]
enum Allowed {
    /// Pages of these origins.
    Listed(Vec<String>),
    /// All: callers prove who they are, and browsers add no such proof to what a page sends.
    All,
}

const FOREIGN: &str = "Origin not allowed: list it in the workload's annotation portcullis.dev/allowed-origins, or for all workloads by \
                       --allowed-origins of the operator";

impl Origin {
    pub(crate) fn new(OriginParameters { allowed_origins }: OriginParameters, context: &BuildContext) -> Self {
        let address = context.settings.address;
        let loopback = address.ip().to_canonical().is_loopback();
        let allowed = match (allowed_origins.is_empty(), loopback) {
            (false, _) => Allowed::Listed(allowed_origins),
            (true, true) => Allowed::Listed(own(address)),
            (true, false) if context.settings.login => Allowed::All,
            (true, false) => Allowed::Listed(Vec::new()),
        };
        Self { pages: Pages { allowed, loopback }, guard: context.guard() }
    }
}

impl Pages {
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
        let Some(origin) = origins.next() else {
            // A page that does not want to read the answer gets its GETs sent without an origin.
            let says = |name: &str, values: &[&str]| {
                headers.get(name).is_some_and(|value| values.iter().any(|known| value == known))
            };
            let foreign =
                says("sec-fetch-site", &["cross-site", "same-site"]) && !says("sec-fetch-mode", &["navigate"]);
            return (foreign && matches!(self.allowed, Allowed::Listed(_))).then_some(FOREIGN);
        };
        let is_allowed = match &self.allowed {
            Allowed::All => true,
            Allowed::Listed(list) => {
                let origin = origin.to_str().unwrap_or_default();
                list.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
            }
        };
        // Which of several the browser meant, nobody can say.
        let refused = origins.next().is_some() || !is_allowed;
        refused.then_some(FOREIGN)
    }

    /// Puts what the browser is told in place of what the server says of it. `origin` is that of the request, and allowed.
    fn tell(&self, origin: Option<HeaderValue>, headers: &mut HeaderMap) {
        let Some(origin) = origin else { return };
        remove_where(headers, |name| name.starts_with(CORS));
        let origin = if let Allowed::All = self.allowed { HeaderValue::from_static("*") } else { origin };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }

    /// The answer to OPTIONS.
    fn options(&self, origin: Option<HeaderValue>, asked: &HeaderMap) -> Response<Body> {
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE, OPTIONS"));
        let is_page = origin.is_some();
        self.tell(origin, headers);
        if is_page {
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
            // Clients mirror arguments in headers of any name (`Mcp-Param-*`).
            for names in asked.get_all(ACCESS_CONTROL_REQUEST_HEADERS) {
                headers.append(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
            }
        }
        response
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
    // A malformed name keeps its beginning as `host`.
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
        let started = Instant::now();
        let refusal = self.pages.refusal(request.uri().authority(), request.headers());
        let outcome = if refusal.is_some() { Outcome::Denied } else { Outcome::Allowed };
        next.context().decided(&self.guard, outcome, started);
        if let Some(message) = refusal {
            next.context().deny(chain::ORIGIN, message);
            let error = ErrorBody::new(code::INVALID_REQUEST, message);
            return std::future::ready(json_error(StatusCode::FORBIDDEN, &error)).boxed();
        }
        let origin = request.headers().get(ORIGIN).cloned();
        if request.method() == Method::OPTIONS {
            return std::future::ready(self.pages.options(origin, request.headers())).boxed();
        }
        if origin.is_none() {
            return next.call(request);
        }
        async move {
            let mut response = next.call(request).await;
            self.pages.tell(origin, response.headers_mut());
            response
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(origin: &Pages, list: &[(&'static str, &'static str)]) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        origin.refusal(None, &headers)
    }

    #[test]
    fn a_page_that_is_not_listed_does_not_call_the_server() {
        let listed = Pages { allowed: Allowed::Listed(vec!["https://app.example".to_owned()]), loopback: false };
        let none = Pages { allowed: Allowed::Listed(vec![]), loopback: false };
        let login = Pages { allowed: Allowed::All, loopback: false };
        let [own, own_80] = [8080, 80].map(|port| Pages {
            allowed: Allowed::Listed(own(SocketAddr::from(([127, 0, 0, 1], port)))),
            loopback: true,
        });
        for (origin, headers, refused) in [
            (&listed, vec![], false),
            (&listed, vec![("origin", "https://app.example")], false),
            (&listed, vec![("origin", "HTTPS://App.Example")], false),
            (&listed, vec![("origin", "https://app.example:8443")], true),
            (&listed, vec![("origin", "https://app.example.evil.example")], true),
            (&listed, vec![("origin", "null")], true),
            (&listed, vec![("origin", "")], true),
            (&listed, vec![("origin", "https://app.example"), ("origin", "https://app.example")], true),
            (&none, vec![], false),
            (&none, vec![("origin", "https://evil.example")], true),
            (&none, vec![("host", "evil.example"), ("origin", "http://evil.example")], true),
            (&none, vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], true),
            (&listed, vec![("sec-fetch-site", "same-site")], true),
            (&none, vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], false),
            (&none, vec![("sec-fetch-site", "none")], false),
            (&login, vec![("sec-fetch-site", "cross-site")], false),
            (&login, vec![("origin", "https://evil.example")], false),
            (&login, vec![("origin", "null")], false),
            (&login, vec![("origin", "https://a"), ("origin", "https://b")], true),
            (&own, vec![("host", "localhost:8080"), ("origin", "http://localhost:8080")], false),
            (&own, vec![("host", "localhost:8080"), ("origin", "http://[::1]:8080")], false),
            (&own, vec![("host", "localhost:8080"), ("origin", "http://localhost:8081")], true),
            (&own, vec![("host", "localhost:8080"), ("origin", "http://localhost")], true),
            (&own, vec![("host", "localhost:8080"), ("origin", "http://evil.example")], true),
            (&own_80, vec![("host", "localhost"), ("origin", "http://localhost")], false),
            (&own_80, vec![("host", "localhost"), ("origin", "http://localhost:8080")], true),
        ] {
            let found = refusal(origin, &headers);
            let is_told =
                |told: &str| told.contains("portcullis.dev/allowed-origins") && told.contains("--allowed-origins");
            assert_eq!(found.map(is_told), refused.then_some(true), "{:?} {headers:?}", origin.allowed);
        }
    }

    #[test]
    fn a_name_that_was_made_to_resolve_to_this_machine_is_not_served_on_a_loopback_address() {
        let allowed = Allowed::Listed(own(SocketAddr::from(([127, 0, 0, 1], 80))));
        let local = Pages { allowed, loopback: true };
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
        let open = Pages { allowed: Allowed::All, loopback: false };
        assert_eq!(refusal(&open, &[("host", "evil.example.com")]), None);
    }
}
