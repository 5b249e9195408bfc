//! Answers as the steps judge them, and what is wrong with one that should be a document.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Method, StatusCode, Uri};
use mcp_runconfig::endpoint::without_secrets;
use serde_json::{Map, Value};

use crate::check_login::text::quoted;
use crate::check_login::verdict::{Cause, Finding};

/// An answer, with the time at which it came, in Unix seconds of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
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
    /// An error of the server's own.
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
    /// The answer, or the verdict on there being none.
    pub(crate) fn answered(&self, causes: &Causes) -> Result<&Answer, (Cause, String)> {
        self.answer.as_ref().map_err(|error| {
            let cause = match error {
                NoAnswer::Slow(_) => causes.slow,
                NoAnswer::TooLong(_) => causes.too_long,
                NoAnswer::Certificate(_) => causes.certificate,
                NoAnswer::Unreachable(_) => causes.unreachable,
            };
            (cause, self.to_string())
        })
    }

    /// The answer with a JSON object in it, or the verdict on what is there instead.
    fn document(&self, causes: &Causes) -> Result<&Answer, (Cause, String)> {
        let answer = self.answered(causes)?;
        let cause = match answer.status {
            StatusCode::OK if answer.object().is_some() => return Ok(answer),
            StatusCode::OK => causes.no_json,
            status if status.is_redirection() => causes.redirects,
            status if status.is_server_error() => causes.fails,
            _ => causes.missing,
        };
        let is = if cause == causes.no_json { ", which is no JSON object" } else { "" };
        Err((cause, format!("{self}{is}")))
    }
}

/// Says what was asked for, and what came.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.method, shown(&self.url))?;
        match &self.answer {
            Ok(answer) => {
                write!(f, "{}", answer.status)?;
                if answer.status.is_redirection() {
                    let location = answer.header(LOCATION.as_str()).unwrap_or_default();
                    write!(f, " to {}", quoted(&without_secrets(location)))?;
                } else if let Some(kind) = answer.header(CONTENT_TYPE.as_str()) {
                    write!(f, " ({})", quoted(kind).trim_matches('"'))?;
                }
                Ok(())
            }
            Err(NoAnswer::Slow(time)) => write!(f, "no answer within {time:?}"),
            Err(NoAnswer::TooLong(bytes)) => write!(f, "the answer is longer than {bytes} bytes"),
            Err(NoAnswer::Certificate(text) | NoAnswer::Unreachable(text)) => {
                write!(f, "{}", quoted(text).trim_matches('"'))
            }
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

/// A URL as a report shows it: its query may hold secrets.
pub(crate) fn shown(url: &Uri) -> String {
    without_secrets(&url.to_string())
}

/// Whether a login may send secrets to `url`: over TLS, or within this machine (OAuth 2.1, section 1.5).
pub(crate) fn is_safe(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    url.scheme_str() == Some("https") || url.scheme_str() == Some("http") && is_loopback
}

/// `text` as an absolute URL of http or https without a user name.
pub(crate) fn absolute(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let is_named =
        url.authority().is_some_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'));
    (is_named && matches!(url.scheme_str(), Some("http" | "https"))).then_some(url)
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
    fn urls_without_host_or_with_a_user_are_none() {
        for (text, taken) in [
            ("https://h/p", true),
            ("/p", false),
            ("ftp://h", false),
            ("https://u@h", false),
            ("h", false),
            ("", false),
        ] {
            assert_eq!(absolute(text).is_some(), taken, "{text}");
        }
    }
}
