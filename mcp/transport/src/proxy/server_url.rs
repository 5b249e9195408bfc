//! The URL of the server: what requests and redirects become of it.

use std::borrow::Cow;

use http::Uri;
use http::uri::{Authority, PathAndQuery};
use mcp_http::location::same_origin;

use crate::query::{ENDS, member};

/// The URL of the server, taken apart.
#[derive(Debug)]
pub(super) struct ServerUrl {
    url: Uri,
    /// A path that replaces the request's.
    path: Option<String>,
    /// A query that goes before the request's.
    query: Option<String>,
    /// The names in `query`, which no client has a say in.
    own: Vec<String>,
}

/// The path in the URL of a server that every request gets, where it has one.
pub(super) fn own_path(backend: &Uri) -> Option<&str> {
    Some(backend.path()).filter(|path| !matches!(*path, "" | "/"))
}

impl ServerUrl {
    pub(super) fn of(backend: &Uri) -> Self {
        let query = backend.query().filter(|query| !query.is_empty());
        let names = query.into_iter().flat_map(|query| query.split(ENDS)).filter_map(member);
        Self {
            url: backend.clone(),
            path: own_path(backend).map(str::to_owned),
            own: names.map(|(name, _)| name).collect(),
            query: query.map(str::to_owned),
        }
    }

    pub(super) fn scheme(&self) -> &str {
        self.url.scheme_str().unwrap_or("http")
    }

    /// Host and port, without a user and a password, which are no part of a `Host`.
    pub(super) fn host(&self) -> &str {
        let authority = self.url.authority().map_or("localhost", Authority::as_str);
        authority.rsplit_once('@').map_or(authority, |(_, host)| host)
    }

    /// Path and query of a request whose client asked for `target`. Never the client's own where the server's URL has one; `None` where the two
    /// are too long together.
    pub(super) fn target(&self, target: &Uri) -> Option<PathAndQuery> {
        let path = self.path.as_deref();
        if path.is_none() && self.query.is_none() {
            return Some(target.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
        }
        self.with_own(path.unwrap_or_else(|| target.path()), target.query())
    }

    /// Path and query of a place that the server itself has named.
    pub(super) fn named(&self, place: &Uri) -> Option<PathAndQuery> {
        self.with_own(place.path(), place.query())
    }

    /// The same as a client is shown it: what the server's URL adds to each request may be a secret.
    pub(super) fn for_clients(&self, place: &Uri) -> String {
        let query = place.query().map(|query| self.without_own(query)).filter(|query| !query.is_empty());
        query.map_or_else(|| place.path().to_owned(), |query| format!("{}?{query}", place.path()))
    }

    /// `path` with the query of the server's URL, and then what of `query` has other names.
    fn with_own(&self, path: &str, query: Option<&str>) -> Option<PathAndQuery> {
        let mut text = path.to_owned();
        let theirs = query.map(|query| self.without_own(query)).filter(|query| !query.is_empty());
        for (mark, query) in
            ['?', '&'].into_iter().zip([self.query.as_deref(), theirs.as_deref()].into_iter().flatten())
        {
            text.push(mark);
            text.push_str(query);
        }
        // It is made of parts of two targets, so it can only be too long.
        text.parse().ok()
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
    pub(super) fn same_host(&self, location: &str) -> Option<PathAndQuery> {
        same_origin(&self.url, location)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(backend: &'static str) -> ServerUrl {
        ServerUrl::of(&Uri::from_static(backend))
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
            let path = url(backend).target(&Uri::from_static(target)).unwrap();
            assert_eq!(path.to_string(), expected, "{backend} {target}");
        }
    }

    #[test]
    fn a_place_that_the_server_names_keeps_its_path_and_clients_do_not_see_the_servers_own_query() {
        for (backend, place, at_server, for_clients) in [
            ("http://b:1", "/m?sessionId=x", "/m?sessionId=x", "/m?sessionId=x"),
            ("http://b:1/sse?k=v", "/m?sessionId=x", "/m?k=v&sessionId=x", "/m?sessionId=x"),
            ("http://b:1/sse?k=v", "/m?k=v&sessionId=x", "/m?k=v&sessionId=x", "/m?sessionId=x"),
            ("http://b:1/sse?k=v", "/m?K=w", "/m?k=v", "/m"),
        ] {
            let (url, place) = (url(backend), Uri::from_static(place));
            assert_eq!(url.named(&place).unwrap(), at_server, "{backend} {place}");
            assert_eq!(url.for_clients(&place), for_clients, "{backend} {place}");
        }
    }

    #[test]
    fn a_query_that_is_too_long_for_the_servers_url_does_not_go_out_without_that() {
        for (length, fits) in [(65_527, true), (65_528, false)] {
            let target: Uri = format!("/mcp?{}", "x".repeat(length)).parse().unwrap();
            assert_eq!(url("http://b:1/p?k=v").target(&target).is_some(), fits, "{length}");
            assert!(url("http://b:1").target(&target).is_some(), "{length}");
        }
    }
}
