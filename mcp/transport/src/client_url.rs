//! How clients reach the proxy, where a transport tells them a URL of it.

use http::HeaderMap;
use http::uri::PathAndQuery;

/// How clients reach the proxy. Servers of HTTP+SSE (MCP 2024-11-05) tell each client a URL to POST to.
#[derive(Clone, Debug, Default)]
pub struct ClientUrl {
    /// What the path of the URL begins with. Empty: nothing, or what a trusted `X-Forwarded-Prefix` says.
    pub prefix: String,
    /// Whether `X-Forwarded-Host` and `X-Forwarded-Prefix` say how clients reach the proxy. Default: no.
    pub trust_proxy_headers: bool,
}

impl ClientUrl {
    /// What stands before the path of a request with these headers: nothing, or a path that begins with a slash and ends without one. What
    /// is no path counts as nothing.
    pub(crate) fn prefix(&self, headers: &HeaderMap) -> String {
        as_prefix(&self.prefix).or_else(|| as_prefix(self.trusted(headers, "x-forwarded-prefix")?)).unwrap_or_default()
    }

    /// What a header of a proxy before this one says, if those are trusted.
    pub(crate) fn trusted<'a>(&self, headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
        self.trust_proxy_headers.then(|| outermost(headers, name)).flatten()
    }
}

/// What the outermost of several proxies says in the header `name`.
pub(crate) fn outermost<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get(name)?.to_str().ok()?;
    values.split(',').next().map(str::trim).filter(|value| !value.is_empty())
}

/// No client may read a host into it: browsers take a backslash for a slash.
fn as_prefix(text: &str) -> Option<String> {
    let text = text.trim_matches('/');
    let prefix = format!("/{text}");
    let path: PathAndQuery = prefix.parse().ok()?;
    (!text.is_empty() && !text.contains('\\') && path.path() == prefix).then_some(prefix)
}
