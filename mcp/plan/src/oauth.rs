//! The words of HTTP and OAuth that specs have: names of headers, scopes, and URLs of endpoints.

use http::Uri;
use mcp_runconfig::{endpoint::without_secrets, is_reserved_header};

use crate::problem::Problem;

/// Says what keeps a name from being that of a header which a proxy adds, and how to mend it.
pub fn header_problem(name: &str) -> Option<String> {
    // RFC 9110 §5.1: a field name is a token.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Some(format!("{name:?} cannot name a header; use letters, digits and -"));
    }
    is_reserved_header(name).then(|| {
        format!("{name:?} is not for others to add: it belongs to the connection or to each client; remove it")
    })
}

/// The scopes in a list at `field` that are no scope tokens (RFC 6749 §3.3).
pub fn scope_problems(field: &str, scopes: Option<&[String]>) -> Vec<Problem> {
    let is_scope = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'))
    };
    let wrong = scopes.unwrap_or_default().iter().enumerate().filter(|(_, scope)| !is_scope(scope));
    let problem = |(at, scope): (usize, &String)| {
        let message = format!("{scope:?} is not a scope; write one word of ASCII without quotes and backslashes");
        Problem::new(format!("{field}[{at}]"), message)
    };
    wrong.map(problem).collect()
}

/// Says what keeps a text from being the URL of an endpoint that a proxy calls, of https or where `http` allows it of http.
pub fn url_problem(url: &str, http: bool) -> Option<String> {
    // The message is in statuses and events, which more people read than the spec.
    let shown = without_secrets(url);
    let uri = url.parse::<Uri>().ok();
    let authority = uri.as_ref().and_then(Uri::authority).filter(|it| !it.host().is_empty());
    let (Some(uri), Some(authority)) = (&uri, authority) else {
        return Some(format!("{shown:?} is not a URL; write one such as https://idp.example.com/token"));
    };
    if authority.as_str().contains('@') || url.contains('#') {
        return Some(format!("{shown:?} has a user name or a fragment in it; remove that"));
    }
    match uri.scheme_str() {
        Some("https") => None,
        Some("http") if http => None,
        _ => Some(format!("{shown:?} is not a URL of https; use https")),
    }
}
