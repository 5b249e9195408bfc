//! Where clients learn who issues tokens for this server (RFC 9728; toolhive-auth §1.8).

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE,
    ALLOW, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use http::{Method, Response, StatusCode, Uri};
use mcp_http::{Body, empty, json, text};
use mcp_runconfig::OidcConfig;
use serde_json::json;

/// Where the metadata of a resource without a path is.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The metadata of a server whose callers have to log in.
#[derive(Clone, Debug)]
pub(crate) struct ProtectedResource {
    /// `None` where nobody said by which URL clients know the server.
    document: Option<Bytes>,
}

impl ProtectedResource {
    /// The metadata of the login `oidc`.
    pub(crate) fn of(oidc: &OidcConfig) -> Self {
        let document = || {
            let servers = Some(&oidc.issuer).filter(|issuer| !issuer.is_empty());
            let scopes = if oidc.scopes.is_empty() { &["openid".to_owned()][..] } else { &oidc.scopes };
            // In the order of upstream's, which a map would not keep.
            let members = [
                ("resource", json!(oidc.resource_url)),
                ("authorization_servers", json!(servers.into_iter().collect::<Vec<_>>())),
                ("bearer_methods_supported", json!(["header"])),
                ("scopes_supported", json!(scopes)),
            ];
            let members = members.map(|(name, value)| format!("\"{name}\":{value}"));
            Bytes::from(format!("{{{}}}\n", members.join(",")))
        };
        Self { document: (!oidc.resource_url.is_empty()).then(document) }
    }

    /// Answers a request for it, and none for another path. Pages of any origin may read it: it is meant for all who
    /// have no token yet.
    pub(crate) fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
        path.strip_prefix(WELL_KNOWN).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        let mut response = match (&self.document, method) {
            (_, &Method::OPTIONS) => status(StatusCode::NO_CONTENT),
            (None, _) => status(StatusCode::NOT_FOUND),
            (Some(document), &Method::GET | &Method::HEAD) => json(StatusCode::OK, document.clone()),
            (Some(_), _) => {
                let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
                refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
                refusal
            }
        };
        let origin = headers.get(ORIGIN).cloned().unwrap_or(HeaderValue::from_static("*"));
        response.headers_mut().extend([
            (ACCESS_CONTROL_ALLOW_ORIGIN, origin),
            (VARY, HeaderValue::from_static("Origin")),
            (ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, OPTIONS")),
            (
                ACCESS_CONTROL_ALLOW_HEADERS,
                HeaderValue::from_static("mcp-protocol-version, Content-Type, Authorization"),
            ),
            (ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400")),
        ]);
        Some(response)
    }
}

/// Where the metadata of the resource at `url` is (RFC 9728 §3.1).
pub fn metadata_url(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    let path = if url.path() == "/" { "" } else { url.path() };
    Some(format!("{}://{}{WELL_KNOWN}{path}", url.scheme_str()?, url.authority()?))
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_members_and_the_order_of_upstreams() {
        let oidc = |scopes: &[&str], issuer: &str| OidcConfig {
            issuer: issuer.into(),
            resource_url: "https://mcp.example.com/".into(),
            scopes: scopes.iter().map(ToString::to_string).collect(),
            ..OidcConfig::default()
        };
        let document = |oidc| String::from_utf8(ProtectedResource::of(&oidc).document.unwrap().into()).unwrap();
        assert_eq!(
            document(oidc(&["a", "b"], "https://idp")),
            "{\"resource\":\"https://mcp.example.com/\",\"authorization_servers\":[\"https://idp\"],\"bearer_methods_supported\":[\"header\"],\"scopes_supported\":[\"a\",\"b\"]}\n"
        );
        assert!(document(oidc(&[], "")).contains(r#""authorization_servers":[],"#));
        assert!(document(oidc(&[], "")).ends_with("\"scopes_supported\":[\"openid\"]}\n"));
    }

    #[test]
    fn any_page_may_read_it_and_there_is_none_without_a_resource_url() {
        let none = ProtectedResource::of(&OidcConfig::default());
        let some = ProtectedResource::of(&OidcConfig { resource_url: "https://r".into(), ..OidcConfig::default() });
        let origin = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static("https://page"))]);
        for (resource, method, headers, status, allowed) in [
            (&none, Method::GET, &HeaderMap::new(), 404, "*"),
            (&some, Method::GET, &HeaderMap::new(), 200, "*"),
            (&some, Method::HEAD, &origin, 200, "https://page"),
            (&some, Method::OPTIONS, &origin, 204, "https://page"),
            (&some, Method::POST, &origin, 405, "https://page"),
        ] {
            let answer = resource.answer(&method, WELL_KNOWN, headers).unwrap();
            assert_eq!(
                (answer.status().as_u16(), &answer.headers()[ACCESS_CONTROL_ALLOW_ORIGIN]),
                (status, &HeaderValue::from_static(allowed))
            );
        }
    }
}
