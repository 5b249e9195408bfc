//! Requests of a login, as an MCP client sends them.

use bytes::Bytes;
use form_urlencoded::Serializer;
use http::header::{
    ACCEPT, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CONTENT_TYPE, HeaderMap,
    HeaderName, HeaderValue, ORIGIN,
};
use http::{Method, Uri};
use mcp_authn::{ProviderMetadata, basic};
use mcp_middleware::Secret;
use mcp_wire::headers::SESSION_ID;
use serde_json::json;

use crate::check_login::answer::{Answer, Call};
use crate::check_login::browser;
use crate::check_login::caller::Caller;

/// Asks for a token by client credentials.
pub(crate) async fn ask_for_token(
    caller: &mut Caller,
    endpoint: &Uri,
    metadata: &ProviderMetadata,
    (id, secret): (&str, &Secret),
    resource: &str,
    scopes: &str,
) -> Call {
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials").append_pair("resource", resource);
    if !scopes.is_empty() {
        form.append_pair("scope", scopes);
    }
    let mut headers = json_headers(&[(CONTENT_TYPE, "application/x-www-form-urlencoded")]);
    // A provider that lists no methods takes Basic (RFC 8414 §2).
    let methods = metadata.list("token_endpoint_auth_methods_supported");
    if methods
        .is_some_and(|methods| !methods.contains(&"client_secret_basic") && methods.contains(&"client_secret_post"))
    {
        form.append_pair("client_id", id).append_pair("client_secret", secret.reveal());
    } else {
        headers.extend(basic(id, secret.reveal()).map(|value| (AUTHORIZATION, value)));
    }
    caller.call(Method::POST, endpoint, headers, form.finish().into()).await
}

/// Sends an `initialize`, as every client begins.
pub(crate) async fn greet(caller: &mut Caller, url: &Uri, token: Option<&Secret>, origin: Option<&str>) -> Call {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": mcp_wire::LEGACY_VERSION, "capabilities": {},
        "clientInfo": {"name": "mcp-runner check-login", "version": env!("CARGO_PKG_VERSION")},
    }});
    let mut headers =
        json_headers(&[(CONTENT_TYPE, "application/json"), (ACCEPT, "application/json, text/event-stream")]);
    headers.extend(token.and_then(bearer).map(|value| (AUTHORIZATION, value)));
    headers.extend(origin.and_then(|origin| HeaderValue::from_str(origin).ok()).map(|value| (ORIGIN, value)));
    caller.call(Method::POST, url, headers, message.to_string().into()).await
}

/// Whether the server takes the token for a stream, as servers of HTTP with SSE begin.
pub(crate) async fn streams(caller: &mut Caller, url: &Uri, token: &Secret) -> bool {
    let mut headers = header_map(&[(ACCEPT, "text/event-stream")]);
    headers.extend(bearer(token).map(|value| (AUTHORIZATION, value)));
    caller.opens_stream(url, headers).await
}

/// Ends the session that an answer opened.
pub(crate) async fn leave(caller: &mut Caller, url: &Uri, answer: &Answer, token: Option<&Secret>) {
    let Some(session) = answer.headers.get(SESSION_ID) else { return };
    let mut headers = HeaderMap::from_iter([(SESSION_ID, session.clone())]);
    headers.extend(token.and_then(bearer).map(|value| (AUTHORIZATION, value)));
    // A server that keeps no sessions says so, and one that is gone has none.
    let _ = caller.call(Method::DELETE, url, headers, Bytes::new()).await;
}

/// Calls as a page does, without a token. `documents`: the URLs of the resource's and of the provider's metadata.
pub(crate) async fn as_page(
    caller: &mut Caller,
    url: &Uri,
    origin: &str,
    documents: [Option<Uri>; 2],
) -> browser::Calls {
    let asks =
        [(ORIGIN, origin), (ACCESS_CONTROL_REQUEST_METHOD, "POST"), (ACCESS_CONTROL_REQUEST_HEADERS, browser::SENT)];
    let preflight = caller.call(Method::OPTIONS, url, header_map(&asks), Bytes::new()).await;
    let refused = greet(caller, url, None, Some(origin)).await;
    let from = [(ORIGIN, origin)];
    let mut documents = documents.map(|url| (url, None));
    for (url, call) in &mut documents {
        if let Some(url) = url {
            *call = Some(caller.get(url, json_headers(&from)).await);
        }
    }
    let [(_, resource), (_, provider)] = documents;
    browser::Calls { preflight, refused, resource, provider }
}

fn bearer(token: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

pub(crate) fn json_headers(others: &[(HeaderName, &str)]) -> HeaderMap {
    let mut headers = header_map(&[(ACCEPT, "application/json")]);
    headers.extend(header_map(others));
    headers
}

fn header_map(headers: &[(HeaderName, &str)]) -> HeaderMap {
    headers.iter().filter_map(|(name, value)| Some((name.clone(), HeaderValue::from_str(value).ok()?))).collect()
}
