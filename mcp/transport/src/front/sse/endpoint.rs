//! The URL that a client is told to POST its messages to.

use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;

use crate::client_url::{ClientUrl, outermost};

/// The path on which sessions take messages.
pub(super) const MESSAGES: &str = "/messages";

/// Where `session` takes messages, as the client that sent a request with these `parts` reaches it.
///
/// It is absolute, as clients expect; without a usable host it is a path, which a client resolves against the URL that it called.
pub(super) fn url(client_url: &ClientUrl, parts: &Parts, session: &str) -> String {
    let header = |name| outermost(&parts.headers, name);
    let asked = || parts.uri.authority().map(Authority::as_str).or_else(|| header(HOST.as_str()));
    let host = client_url.trusted(&parts.headers, "x-forwarded-host").or_else(asked);
    let host = host.filter(|host| host.parse::<Authority>().is_ok());
    let prefix = client_url.prefix(&parts.headers);
    let path = format!("{prefix}{MESSAGES}?session_id={session}");
    let Some(host) = host else { return path };
    let https = header("x-forwarded-proto").is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let scheme = if https { "https" } else { "http" };
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn clients_are_told_a_url_that_leads_back_through_the_proxies_that_are_trusted() {
        let forwarded = [
            ("host", "proxy:8080"),
            ("x-forwarded-proto", "HTTPS, http"),
            ("x-forwarded-host", "mcp.example.com"),
            ("x-forwarded-prefix", "/weather/"),
        ];
        for (headers, prefix, trusted, expected) in [
            (&forwarded[..1], "", false, "http://proxy:8080/messages?session_id=s"),
            (&forwarded[..], "", false, "https://proxy:8080/messages?session_id=s"),
            (&forwarded[..], "", true, "https://mcp.example.com/weather/messages?session_id=s"),
            (&forwarded[..], "mine/", true, "https://mcp.example.com/mine/messages?session_id=s"),
            (&forwarded[..1], "/mine", false, "http://proxy:8080/mine/messages?session_id=s"),
            // What would lead elsewhere, or is no part of a URL, is left out.
            (
                &[("host", "[::1]:80"), ("x-forwarded-proto", "javascript")],
                "",
                false,
                "http://[::1]:80/messages?session_id=s",
            ),
            (&[("host", "a/b")], "", false, "/messages?session_id=s"),
            (&[("x-forwarded-prefix", "//evil.example")], "", true, "/evil.example/messages?session_id=s"),
            (&[("host", "a"), ("x-forwarded-prefix", "/x?y=z")], "", true, "http://a/messages?session_id=s"),
        ] {
            let client_url = ClientUrl { prefix: prefix.to_owned(), trust_proxy_headers: trusted };
            let request =
                headers.iter().fold(Request::get("/sse"), |request, (name, value)| request.header(*name, *value));
            let parts = request.body(()).unwrap().into_parts().0;
            assert_eq!(url(&client_url, &parts, "s"), expected, "{headers:?}");
        }
    }
}
