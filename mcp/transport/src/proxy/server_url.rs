//! The URL of the server: what requests and redirects become of it.

use std::borrow::Cow;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

use crate::query::{ENDS, member};

/// The URL of the server, taken apart.
#[derive(Debug)]
pub(super) struct ServerUrl {
    scheme: Scheme,
    authority: Authority,
    /// A path that replaces the request's.
    path: Option<String>,
    /// A query that goes before the request's.
    query: Option<String>,
    /// The names in `query`, which no client has a say in.
    own: Vec<String>,
}

impl ServerUrl {
    pub(super) fn of(backend: &Uri) -> Self {
        let query = backend.query().filter(|query| !query.is_empty());
        let names = query.into_iter().flat_map(|query| query.split(ENDS)).filter_map(member);
        Self {
            scheme: backend.scheme().cloned().unwrap_or(Scheme::HTTP),
            authority: backend.authority().cloned().unwrap_or_else(|| Authority::from_static("localhost")),
            path: Some(backend.path()).filter(|path| !matches!(*path, "" | "/")).map(str::to_owned),
            own: names.map(|(name, _)| name).collect(),
            query: query.map(str::to_owned),
        }
    }

    pub(super) fn scheme(&self) -> &str {
        self.scheme.as_str()
    }

    /// Host and port, without a user and a password, which are no part of a `Host`.
    pub(super) fn host(&self) -> &str {
        let authority = self.authority.as_str();
        authority.rsplit_once('@').map_or(authority, |(_, host)| host)
    }

    /// Path and query of a request whose client asked for `target`. Never the client's own where the server's URL has one; `None` where the two
    /// are too long together.
    pub(super) fn target(&self, target: &Uri) -> Option<PathAndQuery> {
        let path = self.path.as_deref();
        if path.is_none() && self.query.is_none() {
            return Some(target.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
        }
        let mut text = path.unwrap_or_else(|| target.path()).to_owned();
        let theirs = target.query().map(|query| self.without_own(query)).filter(|query| !query.is_empty());
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
        let uri: Uri = location.parse().ok()?;
        match (uri.scheme(), uri.authority()) {
            (None, None) if location.starts_with('/') && !location.starts_with("//") => uri.path_and_query().cloned(),
            (Some(scheme), Some(authority)) if *scheme == self.scheme && self.is_authority(authority) => {
                Some(uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")))
            }
            _ => None,
        }
    }

    fn is_authority(&self, other: &Authority) -> bool {
        let port =
            |authority: &Authority| authority.port_u16().unwrap_or(if self.scheme == Scheme::HTTPS { 443 } else { 80 });
        self.authority.host().eq_ignore_ascii_case(other.host()) && port(&self.authority) == port(other)
    }
}

/// Scheme, host and path of what is to be a URL: without a user and a password, and without a query.
pub(super) fn without_secrets(location: &str) -> String {
    let place = location.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = place.split_once("//") else { return place.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}//{host}{path}")
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
    fn a_query_that_is_too_long_for_the_servers_url_does_not_go_out_without_that() {
        for (length, fits) in [(65_527, true), (65_528, false)] {
            let target: Uri = format!("/mcp?{}", "x".repeat(length)).parse().unwrap();
            assert_eq!(url("http://b:1/p?k=v").target(&target).is_some(), fits, "{length}");
            assert!(url("http://b:1").target(&target).is_some(), "{length}");
        }
    }

    #[test]
    fn the_place_of_a_redirect_is_told_without_what_may_be_a_secret() {
        for (location, told) in [
            ("https://b/login?code=hush#hush", "https://b/login"),
            ("https://user:hush@b:1/a/b//c", "https://b:1/a/b//c"),
            ("https://hush@b", "https://b"),
            ("//hush@b/x?hush", "//b/x"),
            ("/login?next=https://hush@b/", "/login"),
            ("mcp/", "mcp/"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(location), told, "{location}");
        }
    }

    #[test]
    fn redirects_stay_on_the_scheme_the_host_and_the_port() {
        for (backend, location, expected) in [
            ("http://b:80", "/mcp/", Some("/mcp/")),
            ("http://b:80", "http://B/mcp/", Some("/mcp/")),
            ("http://b:80", "https://b/mcp", None),
            ("http://b:80", "https://b:80/mcp", None),
            ("http://b:80", "http://b:81/mcp", None),
            ("http://b:80", "http://other/mcp", None),
            ("http://b:80", "//other/mcp", None),
            ("http://b:80", "mcp/", None),
            ("http://b:80", "", None),
            ("https://b/base", "/mcp/?k=v", Some("/mcp/?k=v")),
            ("https://b/base", "https://b:443/mcp/", Some("/mcp/")),
            ("https://b:8443", "https://b:8443", Some("/")),
            ("https://b:8443", "https://b/mcp", None),
            ("https://b", "http://b:443/mcp", None),
            ("https://b", "http://b/mcp", None),
            ("https://b", "https://b.evil/mcp", None),
            ("https://b", "https://b@evil/mcp", None),
        ] {
            let followed = url(backend).same_host(location).map(|path| path.to_string());
            assert_eq!(followed.as_deref(), expected, "{backend} {location}");
        }
    }
}
