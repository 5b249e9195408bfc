//! Why a request has no credential, and what its client is told.

use std::time::Duration;

use http::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use mcp_http::{Body, text};
use mcp_middleware::Outcome;

/// The step that fails, as an answer names it: one that gets a token, one that gets a session of AWS, or one that gets the proxy's own token.
pub(crate) const TOKEN_STEP: &str = "Token exchange";
pub(crate) const AWS_STEP: &str = "AWS credential exchange";
pub(crate) const LOGIN_STEP: &str = "The proxy's login at the server";

/// The problem that an answer names behind the step: one that somebody has to mend, or one that may pass.
const FAILED: &str = "failed";
const UNAVAILABLE: &str = "temporarily unavailable";

/// The longest that a client is told to wait.
const LONGEST_WAIT: u64 = 60;

/// Why a request has no credential. The reason is for the log and the audit: it holds no token, and nothing of a provider's answer but the name of its
/// error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The caller shows nothing that a credential could be got for.
    NoToken,
    /// The provider takes the caller's token for none that it exchanges: another one may do.
    Refused(String),
    /// The provider knows the caller, and gives it no credential.
    Forbidden(String),
    /// The request is more than can be signed.
    TooLarge(String),
    /// Nobody can tell now.
    Unavailable {
        /// Why.
        reason: String,
        /// When to ask again.
        retry: Duration,
    },
    /// The provider does not take the proxy's own part of the question, or its answer is of no use. An operator has to mend it.
    Unusable(String),
}

impl Failure {
    /// One that passes soon.
    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into(), retry: Duration::from_secs(1) }
    }

    /// One that passes when the provider's answer with these `headers` says, and soon where it does not say.
    pub(crate) fn unavailable_until(reason: String, headers: &HeaderMap) -> Self {
        let retry = headers.get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, Timestamp::now()));
        match retry {
            Some(retry) => Self::Unavailable { reason, retry },
            None => Self::unavailable(reason),
        }
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::NoToken => "it has no bearer token",
            Self::Refused(reason)
            | Self::Forbidden(reason)
            | Self::TooLarge(reason)
            | Self::Unusable(reason)
            | Self::Unavailable { reason, .. } => reason,
        }
    }

    /// Every name in metrics.
    pub(crate) const NAMES: [&str; 4] = ["refused", "forbidden", "unavailable", "unusable"];

    /// Its name in metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::NoToken | Self::Refused(_) | Self::TooLarge(_) => "refused",
            Self::Forbidden(_) => "forbidden",
            Self::Unavailable { .. } => "unavailable",
            Self::Unusable(_) => "unusable",
        }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::NoToken | Self::Refused(_) | Self::Forbidden(_) | Self::TooLarge(_) => Outcome::Denied,
            Self::Unavailable { .. } | Self::Unusable(_) => Outcome::Failed,
        }
    }

    /// The answer, where `step` failed. To a 401, `auth` adds where tokens come from.
    pub(crate) fn answer(&self, step: &str) -> Response<Body> {
        let (status, problem) = match self {
            Self::NoToken => return text(StatusCode::UNAUTHORIZED, "Bearer token required"),
            Self::Refused(_) => (StatusCode::UNAUTHORIZED, FAILED),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, FAILED),
            Self::TooLarge(_) => return text(StatusCode::PAYLOAD_TOO_LARGE, "Request body too large to sign"),
            Self::Unavailable { .. } => (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE),
            Self::Unusable(_) => (StatusCode::BAD_GATEWAY, FAILED),
        };
        let mut answer = text(status, format!("{step} {problem}"));
        if let Self::Unavailable { retry, .. } = self {
            let seconds = retry.as_secs().clamp(1, LONGEST_WAIT);
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer
    }
}

/// The provider's part in an answer of a proxy that got no credential from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCredential {
    /// It gives none for this caller: another one may get one.
    Refused,
    /// It gives none to the proxy, for whichever caller.
    Unavailable,
}

impl NoCredential {
    /// Recognises the answer of such a proxy. `None`: it is another one.
    #[must_use]
    pub fn read(status: StatusCode, body: &[u8]) -> Option<Self> {
        let (found, problem) = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => (Self::Refused, FAILED),
            StatusCode::BAD_GATEWAY => (Self::Unavailable, FAILED),
            StatusCode::SERVICE_UNAVAILABLE => (Self::Unavailable, UNAVAILABLE),
            _ => return None,
        };
        // ToolHive's proxies end the same text with a line break.
        let body = body.trim_ascii();
        [TOKEN_STEP, AWS_STEP, LOGIN_STEP]
            .iter()
            .any(|step| body == format!("{step} {problem}").as_bytes())
            .then_some(found)
    }
}

/// The wait that a `Retry-After` asks for `now`: seconds, or a time (RFC 9110 §10.2.3) in the format that is not obsolete.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let seconds = text.parse().ok().map(Duration::from_secs);
    let until = || rfc2822::DateTimeParser::new().parse_timestamp(text).ok();
    seconds.or_else(|| Some(Duration::try_from(until()?.duration_since(now)).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_without_a_credential_is_recognised() {
        let text = || "why".to_owned();
        for (failure, expected) in [
            (Failure::Refused(text()), Some(NoCredential::Refused)),
            (Failure::Forbidden(text()), Some(NoCredential::Refused)),
            (Failure::Unusable(text()), Some(NoCredential::Unavailable)),
            (Failure::unavailable(text()), Some(NoCredential::Unavailable)),
            (Failure::NoToken, None),
            (Failure::TooLarge(text()), None),
        ] {
            for step in [TOKEN_STEP, AWS_STEP, LOGIN_STEP] {
                let (head, body) = failure.answer(step).into_parts();
                let body = mcp_http::collect(body, 100).await.unwrap();
                assert_eq!(NoCredential::read(head.status, &body), expected, "{step}: {failure:?}");
            }
        }
    }

    #[test]
    fn an_answer_that_only_resembles_one_is_another() {
        for (status, body, expected) in [
            (StatusCode::UNAUTHORIZED, "Token exchange failed\n", Some(NoCredential::Refused)),
            (StatusCode::OK, "Token exchange failed", None),
            (StatusCode::SERVICE_UNAVAILABLE, "Token exchange failed", None),
            (StatusCode::BAD_GATEWAY, "Token exchange failed: no route", None),
            (StatusCode::BAD_GATEWAY, "\"Token exchange failed\"", None),
            (StatusCode::BAD_GATEWAY, "failed", None),
            (StatusCode::BAD_GATEWAY, "", None),
        ] {
            assert_eq!(NoCredential::read(status, body.as_bytes()), expected, "{status} {body:?}");
        }
    }

    #[test]
    fn a_time_to_come_again_is_in_seconds_or_a_date() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("7", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("Thu, 01 Jan 2026 00:00:07 GMT", Some(7)),
            ("Wed, 31 Dec 2025 23:59:59 GMT", Some(0)),
            ("Tue, 01 Jan 2126 00:00:00 GMT", Some(3_155_673_600)),
            ("Thu, 01 Jan 2026", None),
            ("-7", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after(text, now), expected.map(Duration::from_secs), "{text:?}");
        }
    }
}
