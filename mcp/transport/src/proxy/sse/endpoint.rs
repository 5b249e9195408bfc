//! The URL in an `endpoint` event: which session it names, and what the client is shown in its place (toolhive-runner §1.10).

use std::borrow::Cow;

use http::{HeaderMap, Request, Uri};

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

/// The session's id and the URL for the client, when the server at `stream` tells its client to POST to `url`. `None` where it names no session,
/// or no place at the server: the stream must end.
pub(super) fn read(url: &str, stream: &Uri, base: &Base) -> Option<(String, String)> {
    let path = if url.starts_with("http://") || url.starts_with("https://") {
        let uri: Uri = url.parse().ok()?;
        // The client comes through this proxy, whatever name the server knows itself by.
        local(uri.path_and_query()?.as_str())?
    } else if url.starts_with('/') {
        local(url)?
    } else {
        let folder = stream.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        local(&format!("{folder}/{url}"))?
    };
    let (parts, ()) = Request::get(&path).body(()).ok()?.into_parts();
    let id = match Carried::by(&parts) {
        Carried::Id(id) if !id.is_empty() => Cow::into_owned(id),
        _ => return None,
    };
    Some((id, format!("{}{path}", base.0)))
}

/// `path` as a path and query of one host. No client may read another host into it: `//host` is one, and browsers take a backslash for a slash.
fn local(path: &str) -> Option<Uri> {
    let uri: Uri = path.parse().ok()?;
    (path.starts_with('/') && !path.starts_with("//") && !path.contains('\\') && uri.authority().is_none())
        .then_some(uri)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn an_endpoint_names_its_session_and_leads_to_the_proxy_alone() {
        for (url, expected) in [
            ("/messages?sessionId=x", Some("/messages?sessionId=x")),
            ("/messages/?session_id=x&a=b", Some("/messages/?session_id=x&a=b")),
            ("messages?sessionid=x", Some("/v1/messages?sessionid=x")),
            ("?sessionid=x", Some("/v1/?sessionid=x")),
            ("http://10.0.0.1:80/messages?sessionId=x", Some("/messages?sessionId=x")),
            ("/messages", None),
            ("/messages?sessionId=", None),
            ("/messages?sessionId=x&session_id=y", None),
            ("//evil/messages?sessionId=x", None),
            ("http://10.0.0.1//evil?sessionId=x", None),
            ("/\\evil?sessionId=x", None),
            ("ftp://h/messages\n?sessionId=x", None),
        ] {
            let read = read(url, &Uri::from_static("/v1/sse"), &Base::default());
            assert_eq!(read, expected.map(|url| ("x".to_owned(), url.to_owned())), "{url}");
        }
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
