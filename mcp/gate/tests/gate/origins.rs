//! Web pages that call a proxy in a cluster.

use http::{HeaderMap, Method, Request};
use mcp_http::empty;
use mcp_middleware::ProxySettings;
use serde_json::json;

use crate::support::{CALL, Files, Proxy, post};

fn proxy(login: bool, listed: &[&str]) -> Proxy {
    let settings = ProxySettings { login, ..Files::new().settings() };
    Proxy::with(settings, json!([{"type": "origin", "parameters": {"allowed_origins": listed}}]))
}

fn allowed(headers: &HeaderMap) -> Option<&str> {
    headers.get("access-control-allow-origin").map(|value| value.to_str().unwrap())
}

const PAGE: &str = "https://app.example";

#[tokio::test]
async fn no_foreign_page_calls_a_proxy_without_a_login() {
    for (login, listed, origin, status, told) in [
        (false, &[][..], Some(PAGE), 403, None),
        // The page's name was made to resolve to the proxy: it is of the proxy's own origin to the browser.
        (false, &[], Some("http://evil.example:8080"), 403, None),
        (false, &[], Some("null"), 403, None),
        (false, &[], None, 200, None),
        (false, &[PAGE], Some(PAGE), 200, Some(PAGE)),
        (false, &[PAGE], Some("https://evil.example"), 403, None),
        (true, &[], Some(PAGE), 200, Some("*")),
        (true, &[PAGE], Some("https://evil.example"), 403, None),
    ] {
        let proxy = proxy(login, listed);
        let mut request = post("application/json", CALL);
        request.headers_mut().insert("host", "evil.example:8080".parse().unwrap());
        request.headers_mut().extend(origin.map(|origin| (http::header::ORIGIN, origin.parse().unwrap())));
        let case = format!("{login} {listed:?} {origin:?}");
        let answer = proxy.send(request).await;
        assert_eq!((answer.status, allowed(&answer.headers)), (status, told), "{case}");
        assert_eq!(proxy.forwarded().len(), usize::from(status == 200), "{case}");
        let names = answer.text.contains("portcullis.dev/allowed-origins") && answer.text.contains("--allowed-origins");
        assert_eq!(names, status == 403, "{case}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_browser_that_asks_beforehand_hears_what_it_would_hear_then() {
    for (login, listed, origin, status, told) in [
        (false, &[][..], Some(PAGE), 403, None),
        (false, &[PAGE], Some(PAGE), 204, Some(PAGE)),
        (true, &[], Some(PAGE), 204, Some("*")),
        (false, &[], None, 204, None),
    ] {
        let proxy = proxy(login, listed);
        let mut request = Request::builder().method(Method::OPTIONS).uri("/mcp");
        if let Some(origin) = origin {
            request = request.header("origin", origin).header("access-control-request-headers", "mcp-param-x");
        }
        let answer = proxy.send(request.body(empty()).unwrap()).await;
        assert_eq!((answer.status, allowed(&answer.headers)), (status, told), "{login} {listed:?} {origin:?}");
        let names = answer.headers.get("access-control-allow-headers");
        assert_eq!(names.is_some_and(|names| names == "mcp-param-x"), told.is_some());
        assert!(!answer.headers.contains_key("access-control-allow-credentials"));
        assert!(proxy.forwarded().is_empty());
    }
}
