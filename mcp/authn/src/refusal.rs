//! The answers to requests that are refused (toolhive-auth §1.3, §1.7; RFC 6750 §3).

use std::time::Duration;

use http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use mcp_http::{Body, json, text};
use mcp_middleware::{NoBearer, Outcome};
use mcp_runconfig::OidcConfig;
use serde_json::json;

use crate::metadata::metadata_url;

/// Why a request does not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has no bearer token.
    NoBearer(NoBearer),
    /// Its token is not valid here. Why is for the log alone.
    Invalid(String),
    /// Its token does not say whose it is.
    Nobody,
    /// Nobody can tell now: the provider does not answer.
    Unavailable {
        /// Why, for the log.
        reason: String,
        /// When to ask again.
        retry: Duration,
    },
}

/// The parts of a challenge that are always the same: `realm`, `resource_metadata` and `scope`, as far as they are
/// known.
#[derive(Clone, Debug)]
pub(crate) struct Challenge(Vec<String>);

impl Refusal {
    /// The text for the log.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Invalid(reason) | Self::Unavailable { reason, .. } => reason,
            Self::Nobody => "missing or invalid 'sub' claim (OIDC Core 1.0 §5.1)",
            Self::NoBearer(_) => self.told().1,
        }
    }

    /// The decision that it is.
    pub(crate) fn outcome(&self) -> Outcome {
        if matches!(self, Self::Unavailable { .. }) { Outcome::Failed } else { Outcome::Denied }
    }

    /// The error code and the description that the client reads.
    fn told(&self) -> (&'static str, &'static str) {
        match self {
            Self::NoBearer(NoBearer::Missing) => ("invalid_request", "authorization header required"),
            Self::NoBearer(NoBearer::Malformed) => {
                ("invalid_request", "invalid authorization header format, expected 'Bearer <token>'")
            }
            Self::NoBearer(NoBearer::Empty) => ("invalid_request", "empty token in authorization header"),
            Self::Nobody => ("invalid_token", "Invalid authentication claims"),
            Self::Invalid(_) | Self::Unavailable { .. } => ("invalid_token", "Invalid token"),
        }
    }

    /// The answer.
    pub(crate) fn answer(&self, challenge: &Challenge) -> Response<Body> {
        if let Self::Unavailable { retry, .. } = self {
            let mut response = text(StatusCode::SERVICE_UNAVAILABLE, "authentication service temporarily unavailable");
            let seconds = retry.as_millis().div_ceil(1000).clamp(1, 60);
            let seconds = u32::try_from(seconds).unwrap_or(60);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            return response;
        }
        let (error, description) = self.told();
        let body = json!({"error": error, "error_description": description}).to_string();
        let mut response = json(StatusCode::UNAUTHORIZED, body);
        response.headers_mut().extend(challenge.header(error, description).map(|value| (WWW_AUTHENTICATE, value)));
        response
    }
}

impl Challenge {
    pub(crate) fn of(oidc: &OidcConfig) -> Self {
        let known = [
            ("realm", oidc.issuer.clone()),
            ("resource_metadata", metadata_url(&oidc.resource_url).unwrap_or_default()),
            ("scope", oidc.scopes.join(" ")),
        ];
        let known = known.into_iter().filter(|(_, value)| !value.is_empty());
        Self(known.map(|(name, value)| parameter(name, &value)).collect())
    }

    /// The value of `WWW-Authenticate` for a token that is of no use here.
    pub(crate) fn of_invalid(&self) -> Option<HeaderValue> {
        let (error, description) = Refusal::Invalid(String::new()).told();
        self.header(error, description)
    }

    /// The value of `WWW-Authenticate`; `None` where the document has characters that no header carries.
    fn header(&self, error: &str, description: &str) -> Option<HeaderValue> {
        let told = [parameter("error", error), parameter("error_description", description)];
        let parameters: Vec<_> = self.0.iter().chain(&told).map(String::as_str).collect();
        let value = |parameters: &[&str]| HeaderValue::try_from(format!("Bearer {}", parameters.join(", ")));
        // Control characters could come from the document; the challenge itself must not get lost for them.
        value(&parameters).or_else(|_| value(&parameters[self.0.len()..])).ok()
    }
}

fn parameter(name: &str, value: &str) -> String {
    format!("{name}=\"{}\"", value.replace('\\', r"\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_has_the_parts_that_are_known_in_the_order_of_the_contract() {
        let oidc = |issuer: &str, resource: &str, scopes: &[&str]| OidcConfig {
            issuer: issuer.into(),
            resource_url: resource.into(),
            scopes: scopes.iter().map(ToString::to_string).collect(),
            ..OidcConfig::default()
        };
        for (oidc, expected) in [
            (oidc("", "", &[]), r#"Bearer error="e", error_description="d""#),
            (
                oidc("https://idp/x", "https://mcp.example:8443/", &["openid", "mcp"]),
                r#"Bearer realm="https://idp/x", resource_metadata="https://mcp.example:8443/.well-known/oauth-protected-resource", scope="openid mcp", error="e", error_description="d""#,
            ),
            (
                oidc(r#"a\b"c"#, "http://mcp/some/mcp?x=1", &[]),
                r#"Bearer realm="a\\b\"c", resource_metadata="http://mcp/.well-known/oauth-protected-resource/some/mcp", error="e", error_description="d""#,
            ),
            (oidc("a\nb", "no url", &[]), r#"Bearer error="e", error_description="d""#),
        ] {
            assert_eq!(Challenge::of(&oidc).header("e", "d").unwrap(), expected);
        }
    }

    #[test]
    fn what_went_wrong_inside_stays_out_of_the_answer() {
        let challenge = Challenge::of(&OidcConfig::default());
        let answer = Refusal::Invalid("https://internal.example refused".into()).answer(&challenge);
        assert!(!format!("{:?}", answer.headers()).contains("internal"));
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        for (retry, seconds) in [(0, "1"), (1, "1"), (1001, "2"), (1_000_000, "60")] {
            let refusal = Refusal::Unavailable { reason: String::new(), retry: Duration::from_millis(retry) };
            let answer = refusal.answer(&challenge);
            assert_eq!(
                (answer.status(), &answer.headers()[RETRY_AFTER]),
                (StatusCode::SERVICE_UNAVAILABLE, &HeaderValue::from_static(seconds))
            );
        }
    }
}
