//! Exports that a collector did not take.

use std::error::Error;

use http::StatusCode;
use mcp_http::client::RequestError;

/// An export that the collector did not take.
#[derive(Debug)]
pub(super) struct Failure {
    /// The reason. It holds nothing that the collector wrote, which might repeat a header.
    pub(super) problem: String,
    /// Whether the same export may be taken later (<https://opentelemetry.io/docs/specs/otlp/#failures>).
    pub(super) is_temporary: bool,
}

impl Failure {
    /// A connection broke: the whole chain of causes is in one line.
    pub(super) fn network(error: &(dyn Error + 'static)) -> Self {
        let causes = std::iter::successors(Some(error), |error| (*error).source());
        let mut texts: Vec<_> = causes.map(text).collect();
        // Libraries repeat their source's text in their own.
        texts.dedup();
        RequestError::Network(texts.join(": ")).into()
    }

    /// The answer has this status of HTTP in place of success.
    pub(super) fn status(status: StatusCode) -> Self {
        let is_temporary = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        Self { problem: format!("the collector answers HTTP {}", status.as_u16()), is_temporary }
    }

    /// The answer has this status of gRPC in place of success, or none.
    pub(super) fn code(code: Option<u8>) -> Self {
        let Some(code) = code else {
            return Self { problem: "the collector does not answer as gRPC does".to_owned(), is_temporary: false };
        };
        let name = match code {
            1 => "cancelled",
            3 => "invalid argument",
            4 => "deadline exceeded",
            7 => "permission denied",
            8 => "resource exhausted",
            10 => "aborted",
            11 => "out of range",
            12 => "unimplemented",
            13 => "internal",
            14 => "unavailable",
            15 => "data loss",
            16 => "unauthenticated",
            _ => "other",
        };
        let is_temporary = matches!(code, 1 | 4 | 8 | 10 | 11 | 14 | 15);
        Self { problem: format!("the collector answers with status {code} of gRPC ({name})"), is_temporary }
    }
}

/// The error in words. Of what HTTP/2 tells, the reason alone: beside it may be words of the collector's.
fn text(error: &(dyn Error + 'static)) -> String {
    let reason = error.downcast_ref::<h2::Error>().and_then(h2::Error::reason);
    reason.map_or_else(|| error.to_string(), |reason| reason.description().to_owned())
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let is_temporary = matches!(error, RequestError::Timeout(_) | RequestError::Network(_));
        Self { problem: error.to_string(), is_temporary }
    }
}
