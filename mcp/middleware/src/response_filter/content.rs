//! The reading of an answer by a client, as the answer's headers say.

use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use mcp_http::Body;

/// The ways in which a client reads the body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Not as a message: the answer is an error.
    Unread,
    Json,
    Events,
    /// Either way: there is no type, more than one, or one that MCP does not have.
    Unknown,
    /// As something that cannot be shown to a filter, for this reason.
    Unreadable(&'static str),
}

impl Content {
    pub(super) fn of(response: &Response<Body>) -> Self {
        let headers = response.headers();
        let mut types = headers.get_all(CONTENT_TYPE).iter();
        let (value, second) = (types.next(), types.next());
        // A comma joins two values (RFC 9110 §5.3), and a quoted string may hide a semicolon.
        let ambiguous = |text: &str| text.contains([',', '"', '\\']) && !is_quoted_charset(text);
        let several = second.is_some() || value.is_some_and(|value| value.to_str().map_or(true, ambiguous));
        if !response.status().is_success() && !several {
            return Self::Unread;
        }
        if is_coded(headers) {
            return Self::Unreadable("it has a content coding");
        }
        let Some(value) = value.filter(|_| !several) else { return Self::Unknown };
        let mut parts = value.to_str().unwrap_or_default().split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        if !parts.all(is_utf_8) {
            return Self::Unreadable("it has another charset than UTF-8");
        }
        match essence.as_str() {
            "text/event-stream" => Self::Events,
            "application/json" => Self::Json,
            other if other.ends_with("+json") => Self::Json,
            _ => Self::Unknown,
        }
    }
}

fn is_coded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Whether the one quoted string in it is the value of the charset.
fn is_quoted_charset(content_type: &str) -> bool {
    let mut parts = content_type.split('"');
    let (Some(before), Some(charset), Some(""), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    before.to_ascii_lowercase().ends_with("charset=") && !charset.contains([',', ';', '\\'])
}

/// Whether a parameter leaves the body UTF-8. `charset*` is another spelling of it (RFC 8187).
fn is_utf_8(parameter: &str) -> bool {
    let parameter = parameter.to_ascii_lowercase();
    match parameter.strip_prefix("charset=") {
        Some(charset) => matches!(charset.trim_matches('"'), "utf-8" | "utf8" | "us-ascii"),
        None => !parameter.contains("charset"),
    }
}
