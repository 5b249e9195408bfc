//! Where a redirect leads.

use http::Uri;
use http::uri::{PathAndQuery, Scheme};

/// Where a redirect of `url` to `location` leads, when it stays with the scheme, the host and the port of `url`. Credentials that were for that
/// server are shown to no other.
pub fn same_origin(url: &Uri, location: &str) -> Option<PathAndQuery> {
    let to: Uri = location.parse().ok()?;
    let stays = match to.authority() {
        // `//host/path` names a host.
        None => location.starts_with('/') && !location.starts_with("//"),
        Some(_) => to.scheme() == url.scheme() && host_and_port(&to) == host_and_port(url),
    };
    stays.then(|| to.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")))
}

fn host_and_port(url: &Uri) -> (Option<String>, u16) {
    let default = if url.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    (url.host().map(str::to_ascii_lowercase), url.port_u16().unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_on_the_scheme_the_host_and_the_port() {
        for (url, location, expected) in [
            ("http://b:80", "/mcp/", Some("/mcp/")),
            ("http://b:80", "http://B/mcp/", Some("/mcp/")),
            ("http://b:80", "https://b/mcp", None),
            ("http://b:80", "https://b:80/mcp", None),
            ("http://b:80", "http://b:81/mcp", None),
            ("http://b:80", "http://other/mcp", None),
            ("http://b:80", "//other/mcp", None),
            ("http://b:80", "mcp/", None),
            ("http://b:80", "", None),
            ("https://b/base?k", "/mcp/?k=v", Some("/mcp/?k=v")),
            ("https://b/base", "https://b:443/mcp/", Some("/mcp/")),
            ("https://b:8443", "https://b:8443", Some("/")),
            ("https://b:8443", "https://b/mcp", None),
            ("https://b", "https://B:443/keys", Some("/keys")),
            ("https://b", "https://b", Some("/")),
            ("https://b", "http://b:443/mcp", None),
            ("https://b", "http://b/mcp", None),
            ("https://b", "https://b.evil/mcp", None),
            ("https://b", "https://b@evil/mcp", None),
            ("https://b", "b", None),
        ] {
            let followed = same_origin(&Uri::from_static(url), location).map(|path| path.to_string());
            assert_eq!(followed.as_deref(), expected, "{url} {location}");
        }
    }
}
