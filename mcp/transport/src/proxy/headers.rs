//! The headers that belong to one hop.

use std::net::SocketAddr;

use http::Uri;
use http::header::{
    CONNECTION, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use mcp_runconfig::is_claim_header;
use mcp_wire::headers::remove_where;

use crate::carriers;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// RFC 9110 §7.6.1, the `Proxy-*` of RFC 9110 §11.7, and `HTTP2-Settings` of RFC 7540 §3.2.1, which Java's clients send. An upgrade is
/// ignored (RFC 9110 §7.8).
const HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Makes a client's headers those of our own request: without what was meant for this hop, with what a server behind a
/// proxy is told. `Host` is written with the request, and is the server's. A remote server, called by the scheme `remote`, is not told by which
/// name the proxy was called: that is one of a network that it is not in.
pub(super) fn prepare(headers: &mut HeaderMap, uri: &Uri, client: Option<SocketAddr>, remote: Option<&str>) {
    remove_hop_by_hop(headers);
    // What the client claims about its way here is not believed.
    remove_where(headers, is_claim_header);
    if headers.get_all(COOKIE).iter().any(carriers::is_in_cookie) {
        headers.remove(COOKIE);
    }
    let host = headers.remove(HOST);
    let host = host.or_else(|| HeaderValue::from_str(uri.authority()?.as_str()).ok());
    if let Some(host) = host.filter(|_| remote.is_none()) {
        headers.insert(X_FORWARDED_HOST, host);
    }
    let scheme = if remote == Some("https") { "https" } else { "http" };
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    if let Some(address) = client.and_then(|client| HeaderValue::from_str(&client.ip().to_canonical().to_string()).ok())
    {
        headers.insert(X_FORWARDED_FOR, address);
    }
}

/// Whether `Connection` names no header that the proxy would not drop anyway. A client that names another one has the proxy drop it,
/// although a middleware may have checked it: refuse the request.
pub fn names_hop_by_hop_only(headers: &HeaderMap) -> bool {
    headers.get_all(CONNECTION).iter().all(|value| {
        value.to_str().is_ok_and(|value| {
            let mut options = value.split(',').map(str::trim).filter(|option| !option.is_empty());
            // `close` is an option that is no header.
            options.all(|option| {
                let is = |known: &str| known.eq_ignore_ascii_case(option);
                is("close") || HOP_BY_HOP.iter().any(|name| is(name.as_str()))
            })
        })
    })
}

/// Removes what RFC 9110 §7.6.1 says ends at this hop, including what `Connection` names.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_may_name_what_is_dropped_anyway_and_no_other_header() {
        // Values of several lines are lines of their own.
        for (values, allowed) in [
            ("close", true),
            ("", true),
            ("Keep-Alive, TE,,", true),
            ("upgrade\nproxy-connection", true),
            ("Upgrade, HTTP2-Settings", true),
            ("close\nmcp-session-id", false),
            ("keep-alive,Authorization", false),
            ("closed", false),
            ("t\u{e9}", false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values.lines() {
                headers.append(CONNECTION, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            assert_eq!(names_hop_by_hop_only(&headers), allowed, "{values:?}");
        }
    }

    #[test]
    fn a_request_loses_what_was_meant_for_this_hop_and_gains_what_a_proxy_says() {
        let told = |remote: Option<&str>| {
            let mut headers = HeaderMap::new();
            for (name, value) in [
                ("host", "gateway.example"),
                ("connection", "keep-alive, X-Secret-Hop"),
                ("x-secret-hop", "1"),
                ("keep-alive", "timeout=5"),
                ("te", "trailers"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("http2-settings", "AAEAAEAA"),
                ("proxy-authorization", "Basic eA=="),
                ("x-forwarded-for", "10.0.0.1"),
                ("x-forwarded-prefix", "/admin"),
                ("forwarded", "for=10.0.0.1"),
                ("x-real-ip", "10.0.0.1"),
                ("true-client-ip", "10.0.0.1"),
                ("x-original-url", "/admin"),
                ("x-rewrite-url", "/admin"),
                ("x-original-uri", "/admin"),
                ("x-http-method-override", "DELETE"),
                ("x-http-method", "DELETE"),
                ("x-method-override", "DELETE"),
                ("x-client-ip", "10.0.0.1"),
                ("proxy", "http://192.0.2.1"),
                ("x-forwarded", "for=10.0.0.1"),
                ("x-auth-request-user", "admin"),
                ("x-original-method", "DELETE"),
                ("x-script-name", "/admin"),
                ("remote-user", "admin"),
                ("x-remote-user", "admin"),
                ("x-envoy-original-path", "/admin"),
                ("cookie", "a=b; Mcp-Session-Id=x"),
                ("authorization", "Bearer t"),
                ("mcp-param-region", "eu"),
            ] {
                headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let client = "[::ffff:192.0.2.7]:4711".parse().unwrap();
            prepare(&mut headers, &Uri::from_static("/mcp"), Some(client), remote);
            let mut left: Vec<_> =
                headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            left.sort_unstable();
            left
        };
        let [authorization, region, client] =
            ["authorization: Bearer t", "mcp-param-region: eu", "x-forwarded-for: 192.0.2.7"];
        for (remote, host, proto) in [
            (None, Some("x-forwarded-host: gateway.example"), "x-forwarded-proto: http"),
            (Some("http"), None, "x-forwarded-proto: http"),
            (Some("https"), None, "x-forwarded-proto: https"),
        ] {
            let expected: Vec<_> = [authorization, region, client].into_iter().chain(host).chain([proto]).collect();
            assert_eq!(told(remote), expected);
        }
    }
}
