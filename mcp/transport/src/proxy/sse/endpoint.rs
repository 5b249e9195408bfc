//! The URL in an `endpoint` event: which session it names, and what the client is shown in its place (toolhive-runner §1.10).

use std::borrow::Cow;

use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Uri};

use super::super::server_url::ServerUrl;
use crate::ClientUrl;
use crate::carriers::Carried;

/// What the client puts before the path of the URL: nothing, a prefix, or a scheme, a host and a prefix.
#[derive(Debug, Default)]
pub(super) struct Base(String);

impl Base {
    /// What the document says, else what a trusted proxy before this one says in `headers`. A claim that makes no URL is ignored.
    pub(super) fn of(client_url: &ClientUrl, headers: &HeaderMap) -> Self {
        let trusted = |name| client_url.trusted(headers, name).unwrap_or_default();
        let prefix = client_url.prefix(headers);
        let (scheme, host) = (trusted("x-forwarded-proto"), trusted("x-forwarded-host"));
        let origin = format!("{scheme}://{host}");
        let is_origin = matches!(scheme, "http" | "https")
            && origin.parse::<Uri>().is_ok_and(|uri| uri.authority().is_some_and(|authority| authority == host));
        Self(if is_origin { origin + &prefix } else { prefix })
    }
}

/// Where a session takes messages.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) id: String,
    /// Path and query at the server.
    pub(super) place: PathAndQuery,
    /// The URL for the client.
    pub(super) shown: String,
}

impl Endpoint {
    /// What is meant when the `server`, in a stream at the path `stream` of it, tells its client to POST to `url`. `None` where that names no
    /// session, or no place at the server: the stream must end.
    pub(super) fn read(url: &str, stream: &str, server: &ServerUrl, base: &Base) -> Option<Self> {
        let place = if url.starts_with("http://") || url.starts_with("https://") {
            let uri: Uri = url.parse().ok()?;
            // The client comes through this proxy, whatever name the server knows itself by.
            local(uri.path_and_query()?.as_str())?
        } else if url.starts_with('/') {
            local(url)?
        } else if url.starts_with('?') {
            local(&format!("{stream}{url}"))?
        } else {
            let folder = stream.rsplit_once('/').map_or("", |(folder, _)| folder);
            local(&format!("{folder}/{url}"))?
        };
        let shown = server.for_clients(&place);
        let (parts, ()) = Request::get(&shown).body(()).ok()?.into_parts();
        let id = match Carried::by(&parts) {
            Carried::Id(id) if !id.is_empty() => Cow::into_owned(id),
            _ => return None,
        };
        Some(Self { id, place: server.named(&place)?, shown: format!("{}{shown}", base.0) })
    }
}

/// `text` as a path and query of one host. No client may read another host into it, or a place above: `//host` is one, browsers take a backslash for
/// a slash, and `%2e` for a dot that [`without_dots`] has not seen.
fn local(text: &str) -> Option<Uri> {
    let (path, query) = text.find('?').map_or((text, ""), |at| text.split_at(at));
    if path.to_ascii_lowercase().contains("%2e") {
        return None;
    }
    let text = without_dots(path) + query;
    let uri: Uri = text.parse().ok()?;
    (text.starts_with('/') && !text.starts_with("//") && !text.contains('\\') && uri.authority().is_none())
        .then_some(uri)
}

/// `path` without `.` and `..`, which clients resolve before they send it (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let mut left = Vec::new();
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "." => {}
            // The first one is what stands before the first slash.
            ".." => left.truncate(left.len().saturating_sub(1).max(1)),
            _ => {
                left.push(segment);
                continue;
            }
        }
        if segments.peek().is_none() {
            left.push("");
        }
    }
    left.join("/")
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn read(url: &str, server: &'static str, base: &Base) -> Option<Endpoint> {
        Endpoint::read(url, "/v1/sse", &ServerUrl::of(&Uri::from_static(server)), base)
    }

    #[test]
    fn an_endpoint_names_its_session_and_leads_to_the_proxy_alone() {
        for (url, expected) in [
            ("/messages?sessionId=x", Some("/messages?sessionId=x")),
            ("/messages/?session_id=x&a=b", Some("/messages/?session_id=x&a=b")),
            ("messages?sessionid=x", Some("/v1/messages?sessionid=x")),
            ("./messages?sessionid=x", Some("/v1/messages?sessionid=x")),
            ("../messages?sessionid=x", Some("/messages?sessionid=x")),
            ("/a/../../b/?sessionId=x/../y", None),
            ("/a/../../b/.?a=/../y&sessionId=x", Some("/b/?a=/../y&sessionId=x")),
            ("?sessionid=x", Some("/v1/sse?sessionid=x")),
            ("http://10.0.0.1:80/messages?sessionId=x", Some("/messages?sessionId=x")),
            ("/messages", None),
            ("/messages?sessionId=", None),
            ("/messages?sessionId=x&session_id=y", None),
            ("//evil/messages?sessionId=x", None),
            ("/a/..//evil?sessionId=x", None),
            ("http://10.0.0.1//evil?sessionId=x", None),
            ("/%2e%2E/other/messages?sessionId=x", None),
            (".%2e/messages?sessionId=x", None),
            ("/\\evil?sessionId=x", None),
            ("ftp://h/messages\n?sessionId=x", None),
        ] {
            let read = read(url, "http://b", &Base::default()).filter(|read| read.id == "x");
            assert_eq!(read.as_ref().map(|read| &*read.shown), expected, "{url}");
            assert_eq!(read.as_ref().map(|read| read.place.as_str()), expected, "{url}");
        }
    }

    #[test]
    fn the_query_of_the_servers_url_goes_to_the_server_and_is_not_shown() {
        let base = Base("/gateway".to_owned());
        let read = read("messages?key=v&sessionId=x", "https://b/v1/sse?key=v", &base).unwrap();
        assert_eq!((&*read.id, read.place.as_str()), ("x", "/v1/messages?key=v&sessionId=x"));
        assert_eq!(read.shown, "/gateway/v1/messages?sessionId=x");
    }

    #[test]
    fn the_document_names_the_prefix_and_headers_do_so_only_where_they_are_trusted() {
        for (prefix, trust_proxy_headers, headers, expected) in [
            ("", false, &[("x-forwarded-prefix", "/p")][..], ""),
            ("", true, &[("x-forwarded-prefix", "/p/")], "/p"),
            ("own/", true, &[("x-forwarded-prefix", "/p")], "/own"),
            ("", true, &[("x-forwarded-prefix", "//evil")], "/evil"),
            ("", true, &[("x-forwarded-prefix", "/p\\q")], ""),
            ("/a", true, &[("x-forwarded-host", "h:8"), ("x-forwarded-proto", "https")], "https://h:8/a"),
            ("", true, &[("x-forwarded-host", "h")], ""),
            ("", true, &[("x-forwarded-host", "h/x"), ("x-forwarded-proto", "https")], ""),
        ] {
            let client_url = ClientUrl { prefix: prefix.to_owned(), trust_proxy_headers };
            let headers = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            assert_eq!(Base::of(&client_url, &headers.collect()).0, expected, "{prefix} {expected}");
        }
    }
}
