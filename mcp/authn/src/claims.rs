//! The claims that a token must have (toolhive-auth §1.4, RFC 7519 §4.1), and its principal.

use std::sync::Arc;

use mcp_middleware::Identity;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// Seconds by which the clocks of the provider and of this machine may differ: a token that was made a moment ago must
/// not be refused for its `nbf`. ToolHive allows none.
pub const LEEWAY: i64 = 30;

/// The claim that leads to the tokens of other providers; nobody further in may see it.
const HIDDEN: &str = "tsid";

/// The required claims of tokens.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    /// Their `iss`; empty where the key set alone counts.
    pub(crate) issuer: String,
    /// One of their `aud`.
    pub(crate) audience: String,
}

/// The claims that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("invalid issuer")]
    Issuer,
    #[error("invalid audience")]
    Audience,
    #[error("token expired")]
    Expired,
    #[error("token has no usable expiry")]
    NoExpiry,
    #[error("token is not valid yet")]
    NotYet,
    #[error("token is bound to a key of its holder ('cnf'), which is not checked here")]
    Bound,
    #[error("token tells of events and gives no access")]
    Events,
}

impl Expected {
    /// Checks the claims of a token at `now` (Unix seconds) and returns until when they hold.
    ///
    /// # Errors
    /// The claim that does not fit.
    pub(crate) fn check(&self, claims: &Map<String, Value>, now: i64) -> Result<i64, ClaimError> {
        if !self.issuer.is_empty() && claims.get("iss").and_then(Value::as_str) != Some(self.issuer.as_str()) {
            return Err(ClaimError::Issuer);
        }
        let is_ours = |audience: &Value| audience.as_str() == Some(self.audience.as_str());
        let ours = match claims.get("aud") {
            Some(Value::Array(audiences)) => audiences.iter().any(is_ours),
            Some(audience) => is_ours(audience),
            None => false,
        };
        if !ours {
            return Err(ClaimError::Audience);
        }
        // RFC 7800: without a proof of that key it opens nothing. RFC 8417: such as the logout tokens of OpenID
        // Connect.
        if claims.contains_key("cnf") {
            return Err(ClaimError::Bound);
        }
        if claims.contains_key("events") {
            return Err(ClaimError::Events);
        }
        let until = seconds(claims.get("exp")).ok_or(ClaimError::NoExpiry)?.saturating_add(LEEWAY);
        if until <= now {
            return Err(ClaimError::Expired);
        }
        match claims.get("nbf").map(|from| seconds(Some(from))) {
            Some(None) => Err(ClaimError::NotYet),
            Some(Some(from)) if from > now.saturating_add(LEEWAY) => Err(ClaimError::NotYet),
            _ => Ok(until),
        }
    }
}

/// A time of a token: a positive number of seconds, of which fractions are cut off.
fn seconds(value: Option<&Value>) -> Option<i64> {
    let value = value?;
    #[expect(clippy::cast_possible_truncation, reason = "fractions are cut off, and what is too large is for ever")]
    let cut = || value.as_f64().map(|seconds| seconds as i64);
    value.as_i64().or_else(cut).filter(|seconds| *seconds > 0)
}

/// Returns the principal of a valid token's claims.
///
/// # Errors
/// They name nobody.
pub(crate) fn identity(mut claims: Map<String, Value>) -> Result<Arc<Identity>, Refusal> {
    claims.remove(HIDDEN);
    let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (subject, name, email) = (text("sub"), text("name"), text("email"));
    if subject.is_empty() {
        return Err(Refusal::Nobody);
    }
    let platform_user_id = subject.clone();
    Ok(Arc::new(Identity { logged_in: true, subject, platform_user_id, name, email, claims, ..Identity::default() }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("{value} is no object") };
        map
    }

    #[test]
    fn a_token_claims_issuer_audience_and_times_that_fit() {
        const NOW: i64 = 1_000_000;
        let expected = Expected { issuer: "https://i".into(), audience: "a".into() };
        let good = json!({"iss": "https://i", "aud": "a", "exp": NOW + 60});
        for (change, result) in [
            (json!({}), Ok(NOW + 60 + LEEWAY)),
            (json!({"aud": ["b", "a"]}), Ok(NOW + 60 + LEEWAY)),
            (json!({"exp": 1_000_060.9}), Ok(NOW + 60 + LEEWAY)),
            (json!({"exp": NOW - LEEWAY + 1}), Ok(NOW + 1)),
            (json!({"exp": NOW - LEEWAY}), Err(ClaimError::Expired)),
            (json!({"exp": null}), Err(ClaimError::NoExpiry)),
            (json!({"exp": "1000060"}), Err(ClaimError::NoExpiry)),
            (json!({"exp": 0}), Err(ClaimError::NoExpiry)),
            (json!({"exp": i64::MAX}), Ok(i64::MAX)),
            (json!({"exp": u64::MAX}), Ok(i64::MAX)),
            (json!({"exp": 1e308}), Ok(i64::MAX)),
            (json!({"nbf": NOW + LEEWAY}), Ok(NOW + 60 + LEEWAY)),
            (json!({"nbf": NOW + LEEWAY + 1}), Err(ClaimError::NotYet)),
            (json!({"nbf": "now"}), Err(ClaimError::NotYet)),
            (json!({"iss": "https://i/"}), Err(ClaimError::Issuer)),
            (json!({"iss": " https://i"}), Err(ClaimError::Issuer)),
            (json!({"iss": null}), Err(ClaimError::Issuer)),
            (json!({"iss": ["https://i"]}), Err(ClaimError::Issuer)),
            (json!({"aud": "A"}), Err(ClaimError::Audience)),
            (json!({"aud": "a "}), Err(ClaimError::Audience)),
            (json!({"aud": []}), Err(ClaimError::Audience)),
            (json!({"aud": [["a"]]}), Err(ClaimError::Audience)),
            (json!({"aud": {"a": "a"}}), Err(ClaimError::Audience)),
            (json!({"aud": null}), Err(ClaimError::Audience)),
            (json!({"cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}}), Err(ClaimError::Bound)),
            (json!({"events": {"http://schemas.openid.net/event/backchannel-logout": {}}}), Err(ClaimError::Events)),
        ] {
            let mut claims = map(good.clone());
            claims.extend(map(change.clone()));
            assert_eq!(expected.check(&claims, NOW), result, "{change}");
        }
    }

    #[test]
    fn an_identity_is_whom_the_token_names() {
        let claims =
            json!({"iss": "i", "sub": "alice", "name": "Alice", "email": 1, "tsid": "secret", "groups": ["g"]});
        let identity = identity(map(claims)).unwrap();
        assert!(identity.logged_in);
        assert_eq!(
            (identity.subject.as_str(), identity.name.as_str(), identity.email.as_str()),
            ("alice", "Alice", "")
        );
        assert_eq!((identity.claims.get("tsid"), &identity.claims["groups"]), (None, &json!(["g"])));
        for nobody in [json!({}), json!({"sub": ""}), json!({"sub": 1})] {
            assert_eq!(super::identity(map(nobody)).unwrap_err(), Refusal::Nobody);
        }
    }
}
