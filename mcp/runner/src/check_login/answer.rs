//! Answers as the steps judge them, and what is wrong with one that should be a document.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Method, StatusCode, Uri};
use mcp_runconfig::endpoint::without_secrets;
use serde_json::{Map, Value};

use crate::check_login::verdict::{Cause, Finding};
use crate::text::quoted;

/// An answer, with the times of its request and of its end, in Unix seconds of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) asked: i64,
    pub(crate) at: i64,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) enum NoAnswer {
    Slow(Duration),
    TooLong(usize),
    Certificate(String),
    Unreachable(String),
}

/// A request and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) url: Uri,
    pub(crate) answer: Result<Answer, NoAnswer>,
}

/// The verdicts on a document that cannot be had.
#[derive(Debug)]
pub(crate) struct Causes {
    pub(crate) unreachable: Cause,
    pub(crate) certificate: Cause,
    pub(crate) slow: Cause,
    pub(crate) too_long: Cause,
    pub(crate) redirects: Cause,
    /// An error of the server's own, or too many requests.
    pub(crate) fails: Cause,
    /// Any other status than 200.
    pub(crate) missing: Cause,
    pub(crate) no_json: Cause,
}

impl Answer {
    /// The value of a header, if it is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The object in its body.
    pub(crate) fn object(&self) -> Option<Map<String, Value>> {
        serde_json::from_slice(&self.body).ok()
    }
}

impl Call {
    /// Whether nothing is at its URL, so that a client looks elsewhere.
    pub(crate) fn finds_nothing(&self) -> bool {
        self.answer.as_ref().is_ok_and(|answer| answer.status.is_client_error() && !fails(answer.status))
    }

    /// The answer with a JSON object in it, or the verdict on what is there instead.
    fn document(&self, causes: &Causes) -> Result<&Answer, (Cause, String)> {
        let cause = match &self.answer {
            Ok(answer) => match answer.status {
                StatusCode::OK if answer.object().is_some() => return Ok(answer),
                StatusCode::OK => causes.no_json,
                status if status.is_redirection() => causes.redirects,
                status if fails(status) => causes.fails,
                _ => causes.missing,
            },
            Err(NoAnswer::Slow(_)) => causes.slow,
            Err(NoAnswer::TooLong(_)) => causes.too_long,
            Err(NoAnswer::Certificate(_)) => causes.certificate,
            Err(NoAnswer::Unreachable(_)) => causes.unreachable,
        };
        let is = if cause == causes.no_json { ", which is no JSON object" } else { "" };
        Err((cause, format!("{self}{is}")))
    }
}

/// Says what was asked for, and what came.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.method, shown(&self.url.to_string()))?;
        match &self.answer {
            Ok(answer) => {
                write!(f, "{}", answer.status)?;
                if answer.status.is_redirection() {
                    let location = answer.header(LOCATION.as_str()).unwrap_or_default();
                    write!(f, " to {}", quoted(&shown(location)))?;
                } else if let Some(kind) = answer.header(CONTENT_TYPE.as_str()) {
                    write!(f, " ({kind})")?;
                }
                Ok(())
            }
            Err(NoAnswer::Slow(time)) => write!(f, "no answer within {time:?}"),
            Err(NoAnswer::TooLong(bytes)) => write!(f, "the answer is longer than {bytes} bytes"),
            Err(NoAnswer::Certificate(text) | NoAnswer::Unreachable(text)) => f.write_str(text),
        }
    }
}

/// The document that the last of `calls` brought: those before it found nothing.
pub(crate) fn document<'a>(calls: &'a [Call], causes: &Causes) -> Result<(&'a Call, &'a Answer), Finding> {
    let Some((last, before)) = calls.split_last() else {
        return Err(Finding::failed(causes.missing, "no place to look at"));
    };
    last.document(causes).map(|answer| (last, answer)).map_err(|(cause, seen)| {
        let all: Vec<_> = before.iter().map(Call::to_string).chain([seen]).collect();
        Finding::failed(cause, all.join("; "))
    })
}

/// Whether a server of this answer cannot say at present what is there.
pub(crate) fn fails(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// A URL as a report shows it: whether it has a query or a fragment, and not which, since secrets may be there.
pub(crate) fn shown(url: &str) -> String {
    let mark = url.chars().find(|c| matches!(c, '?' | '#')).map(|c| format!("{c}…"));
    without_secrets(url) + &mark.unwrap_or_default()
}

/// Whether a login may send secrets to `url`: over TLS, or within this machine (OAuth 2.1, section 1.5).
pub(crate) fn is_safe(url: &Uri) -> bool {
    url.scheme_str() == Some("https") || is_loopback(url)
}

/// Whether the server at `from` may lead a client to `to`: over TLS, or within this machine if the server is there too. No
/// other server has a reason to have this machine's plain services called.
pub(crate) fn may_lead(from: &Uri, to: &Uri) -> bool {
    to.scheme_str() == Some("https") || is_loopback(to) && is_loopback(from)
}

/// Whether the host of `url` is this machine by name or address.
pub(crate) fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// `text` as an absolute URL of http or https with a valid port, if any, and without a user name.
pub(crate) fn absolute(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let authority = url.authority()?;
    let (host, whole) = (authority.host(), authority.as_str());
    let is_named = !host.is_empty() && !whole.contains('@');
    let has_port = whole == host || authority.port_u16().is_some_and(|port| port != 0);
    (is_named && has_port && matches!(url.scheme_str(), Some("http" | "https"))).then_some(url)
}

/// The scheme, host and port of `url` as text.
pub(crate) fn origin(url: &Uri) -> String {
    let authority = url.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    format!("{}://{authority}", url.scheme_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_safe_on_this_machine_alone() {
        for (url, safe) in [
            ("https://idp.example", true),
            ("http://idp.example", false),
            ("http://localhost:9", true),
            ("http://127.0.0.1", true),
            ("http://[::1]:8", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example", false),
        ] {
            assert_eq!(is_safe(&Uri::from_static(url)), safe, "{url}");
        }
    }

    #[test]
    fn a_server_elsewhere_leads_to_no_plain_service_of_ours() {
        for (from, to, may) in [
            ("https://mcp.example", "https://127.0.0.1", true),
            ("https://mcp.example", "http://127.0.0.1", false),
            ("http://mcp.ns.svc", "http://localhost", false),
            ("https://localhost:1", "http://[::1]:2", true),
            ("https://localhost:1", "http://mcp.example", false),
        ] {
            assert_eq!(may_lead(&Uri::from_static(from), &Uri::from_static(to)), may, "{from} {to}");
        }
    }

    #[test]
    fn urls_are_shown_with_the_mark_of_a_query_alone() {
        for (url, expected) in [
            ("https://h/p", "https://h/p"),
            ("https://h/p?key=s3cret#f", "https://h/p?…"),
            ("https://h/p#s3cret", "https://h/p#…"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn urls_need_a_host_a_real_port_and_no_user() {
        for (text, taken) in [
            ("https://h/p", true),
            ("/p", false),
            ("ftp://h", false),
            ("https://u@h", false),
            ("https://[::1]:8443/p?q", true),
            ("https://h:99999", false),
            ("https://h:0", false),
            ("https://h:", false),
            ("h", false),
            ("", false),
        ] {
            assert_eq!(absolute(text).is_some(), taken, "{text}");
        }
    }
}
