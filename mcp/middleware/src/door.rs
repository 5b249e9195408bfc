//! The door in front of a chain that reads messages: what it could not read does not enter.

use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use mcp_http::{Body, text};

/// The refusal of a request that would carry a message past those who read messages: a POST that is not JSON (415), a body on another
/// method (400), a method that MCP does not have (405). ToolHive lets these skip its webhooks.
pub(crate) fn refuse(request: &Request<Body>) -> Option<Response<Body>> {
    match *request.method() {
        Method::POST if is_json(request.headers()) => None,
        Method::POST => Some(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json")),
        Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS => (!request.body().is_end_stream())
            .then(|| text(StatusCode::BAD_REQUEST, "request body is only accepted on POST")),
        _ => {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE, OPTIONS"));
            Some(response)
        }
    }
}

/// One content type, `application/json` in UTF-8, and no content coding.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (types.next(), types.next()) else { return false };
    let essence = value.to_str().unwrap_or_default().split(';').next().map(str::trim);
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) && is_plain(headers)
}

/// UTF-8, or no character set, and no content coding.
pub(crate) fn is_plain(headers: &HeaderMap) -> bool {
    let types = headers.get_all(CONTENT_TYPE).iter();
    let mut parameters = types.flat_map(|value| value.to_str().unwrap_or(";charset").split(';').skip(1).map(str::trim));
    parameters.all(is_harmless)
        && headers.get_all(CONTENT_ENCODING).iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Whether a body that no middleware parses may be JSON-RPC to some server: it has the name of the member that every message has,
/// in whatever encoding and with whatever escapes.
pub(crate) fn mentions_json_rpc(body: &[u8]) -> bool {
    // In UTF-16 and UTF-32, a letter of ASCII is that byte among zeros.
    let bytes: Vec<u8> = body.iter().copied().filter(|byte| *byte != 0).collect();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = &bytes[..];
    while let [first, after @ ..] = rest {
        let escaped = after.strip_prefix(b"u").filter(|_| *first == b'\\').and_then(|after| after.split_at_checked(4));
        let code = escaped.and_then(|(digits, _)| u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        if let (Some((_, behind)), Some(code)) = (escaped, code) {
            plain.push(u8::try_from(code).unwrap_or(u8::MAX));
            rest = behind;
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    plain.make_ascii_lowercase();
    // For readers without case the s may be the long one, which is one byte where it is escaped and two or more where it is not.
    let mut ends = plain.windows(5).enumerate().filter(|(_, window)| window == b"onrpc");
    ends.any(|(at, _)| plain[at.saturating_sub(4)..at].contains(&b'j'))
}

/// Whether a parameter leaves the body the UTF-8 that JSON is (RFC 8259 §8.1).
///
/// Servers on Express, and so the official TypeScript SDK, decode the body as `charset` says, and in UTF-7 another message can
/// hide in a string. A quoted value could hide a `;`, and `charset*` is another spelling (RFC 8187), so neither passes.
fn is_harmless(parameter: &str) -> bool {
    let parameter = parameter.to_ascii_lowercase();
    matches!(parameter.as_str(), "charset=utf-8" | "charset=\"utf-8\"")
        || !(parameter.contains("charset") || parameter.contains(['"', '\\']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_rpc_does_not_hide_in_the_body_to_an_open_path() {
        let utf16 = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
        for (body, found) in [
            (&br#"{"jsonrpc":"2.0","method":"tools/call"}"#[..], true),
            (br#"[{"JSONRPC":"2.0"}]"#, true),
            (br#"{"json\u0072pc":"2.0"}"#, true),
            (br#"{"\u006A\u0053onrpc":"2.0"}"#, true),
            (&utf16(r#"{"jsonrpc":"2.0"}"#), true),
            (&utf16(r#"{"json\u0072pc":"2.0"}"#), true),
            (&utf16("{\"j\u{17f}onrpc\":1}"), true),
            ("{\"j\u{17f}onrpc\":1}".as_bytes(), true),
            (br#"{"j\u017fonrpc":1}"#, true),
            (b"\xef\xbb\xbf{\"jsonrpc\":1}", true),
            (br#"{"jsonrp":"c"}"#, false),
            (br#"{"a":"\u00"}"#, false),
            (br#"{"a":"\u0g72"}"#, false),
            (b"a=b&json=rpc", false),
            (b"onrpc", false),
            (b"", false),
        ] {
            assert_eq!(mentions_json_rpc(body), found, "{}", String::from_utf8_lossy(body));
        }
    }
}
