//! A token: given by the user, or by the provider for client credentials (RFC 6749 §4.4, RFC 8707).

use http::StatusCode;
use jiff::Timestamp;
use mcp_authn::{LEEWAY, unverified_claims};
use mcp_middleware::Secret;
use serde_json::{Map, Value};

use crate::check_login::answer::Call;
use crate::check_login::verdict::{Cause, Finding, Judged, Step};
use crate::text::quoted;

/// A token with what it says of itself, which nobody has verified.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) secret: Secret,
    /// `None`: it is no JWT.
    pub(crate) claims: Option<Map<String, Value>>,
}

/// The facts that a token is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// The issuers that the server names, if any.
    pub(crate) issuers: &'a [String],
    /// The time of the server that checks it, in Unix seconds.
    pub(crate) now: i64,
}

impl Token {
    pub(crate) fn new(token: &str) -> Self {
        Self { secret: Secret::new(token), claims: unverified_claims(token) }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.claims.as_ref()?.get(name)?.as_str()
    }

    fn seconds(&self, name: &str) -> Option<i64> {
        let value = self.claims.as_ref()?.get(name)?;
        #[expect(clippy::cast_possible_truncation, reason = "fractions are cut off")]
        let cut = || value.as_f64().map(|seconds| seconds as i64);
        value.as_i64().or_else(cut)
    }

    /// Its audiences.
    pub(crate) fn audiences(&self) -> Vec<&str> {
        match self.claims.as_ref().and_then(|claims| claims.get("aud")) {
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
            Some(one) => one.as_str().into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Whether it was made for the client, to tell it who logged in.
    pub(crate) fn looks_like_id_token(&self) -> bool {
        self.claims
            .as_ref()
            .is_some_and(|claims| ["nonce", "at_hash", "c_hash"].iter().any(|name| claims.contains_key(*name)))
    }

    /// The claims that a report shows: none that says whose it is.
    pub(crate) fn described(&self, now: i64) -> String {
        if self.claims.is_none() {
            return "an opaque token".to_owned();
        }
        let issuer = self.text("iss").map_or_else(|| "absent".to_owned(), quoted);
        let audiences = quoted(&self.audiences().join(" "));
        let until = match self.seconds("exp") {
            None => "no `exp`".to_owned(),
            Some(exp) if exp > now => format!("expires in {} s", exp.saturating_sub(now)),
            Some(exp) => format!("expired {} s ago", now.saturating_sub(exp)),
        };
        format!("a JWT: `iss` {issuer}, `aud` {audiences}, {until}")
    }

    /// Judges its claims before it is shown to the server.
    pub(crate) fn judge(&self, expected: Expected<'_>) -> Result<Finding, Finding> {
        let seen = self.described(expected.now);
        let fail = |cause, seen: String| Err(Finding::failed(cause, seen));
        let issuers = expected.issuers;
        if self.text("iss").is_some_and(|own| !issuers.is_empty() && issuers.iter().all(|issuer| issuer != own)) {
            let named = quoted(&issuers.join(" "));
            return fail(Cause::TokenOfOtherIssuer, format!("{seen}; the server names the issuer {named}"));
        }
        if self.seconds("exp").is_some_and(|exp| exp.saturating_add(LEEWAY) <= expected.now) {
            return fail(Cause::TokenExpired, seen);
        }
        if let Some(from) = self.seconds("nbf").filter(|from| *from > expected.now.saturating_add(LEEWAY)) {
            let at = Timestamp::from_second(from).map_or_else(|_| from.to_string(), |at| at.to_string());
            return fail(Cause::TokenNotYetValid, format!("{seen}; not valid before {at}"));
        }
        Ok(Finding::ok(Step::Token, seen))
    }
}

/// The finding where the server names another issuer than the one that the client's secret is for.
pub(crate) fn secret_is_of_other(own: &str, named: &str) -> Finding {
    let seen = format!("the server names the issuer {}, and --issuer is {}", quoted(named), quoted(own));
    Finding::failed(Cause::SecretOfOtherIssuer, seen)
}

/// Whether a header can show it as a bearer token (RFC 6750 §2.1).
pub(crate) fn is_word(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads the token in the answer of the token endpoint. `scopes`: those that were asked for.
pub(crate) fn issued(call: &Call, scopes: &str) -> Result<(Token, Option<Finding>), Finding> {
    let failed = |_: &_| Finding::failed(Cause::TokenEndpointFails, call.to_string());
    let answer = call.answer.as_ref().map_err(failed)?;
    let object = answer.object().unwrap_or_default();
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    if answer.status == StatusCode::OK
        && let Some(token) = text("access_token").filter(|token| is_word(token))
    {
        let granted = text("scope").map(|granted| granted.split_ascii_whitespace().collect::<Vec<_>>());
        let missing = granted.map(|granted| {
            scopes.split_ascii_whitespace().filter(|scope| !granted.contains(scope)).collect::<Vec<_>>()
        });
        let note = missing.filter(|missing| !missing.is_empty()).map(|missing| {
            Finding::note(Cause::ScopeNotGranted, format!("a token without the scopes {}", quoted(&missing.join(" "))))
        });
        return Ok((Token::new(token), note));
    }
    let error = text("error");
    let cause = match error {
        Some("invalid_client") => Cause::ClientRefused,
        Some("unauthorized_client" | "unsupported_grant_type") => Cause::GrantRefused,
        Some("invalid_scope") => Cause::ScopeRefused,
        Some("invalid_target") => Cause::ResourceRefused,
        _ if answer.status == StatusCode::UNAUTHORIZED => Cause::ClientRefused,
        _ => Cause::TokenEndpointFails,
    };
    let told = [("error", error), ("error_description", text("error_description"))];
    let told: String =
        told.iter().filter_map(|(name, value)| Some(format!(", {name}={}", quoted((*value)?)))).collect();
    let without = if answer.status == StatusCode::OK { ", without an `access_token` that can be sent" } else { "" };
    Err(Finding::failed(cause, format!("{call}{without}{told}")))
}

/// As [`Token::judge`], for a token that was just issued.
pub(crate) fn judge_issued((token, note): (Token, Option<Finding>), expected: Expected<'_>) -> Judged<Token> {
    let finding = token.judge(expected)?;
    Ok((token, note.unwrap_or(finding)))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::json;

    use super::*;

    fn token(claims: &Value) -> Token {
        let [header, claims] =
            [json!({"alg": "RS256"}), claims.clone()].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        Token::new(&format!("{header}.{claims}.c2ln"))
    }

    #[test]
    fn a_token_is_judged_by_issuer_and_the_servers_time() {
        let now = 1_000_000;
        let issuers = ["https://other".to_owned(), "https://i".to_owned()];
        let expected = Expected { issuers: &issuers, now };
        for (claims, cause) in [
            (json!({"iss": "https://i", "exp": now + 60, "nbf": now}), None),
            (json!({"iss": "https://i", "exp": now - LEEWAY + 1, "nbf": now + LEEWAY}), None),
            (json!({"exp": now + 60}), None),
            (json!({"iss": "https://i/", "exp": now + 60}), Some(Cause::TokenOfOtherIssuer)),
            (json!({"iss": "https://i", "exp": now - LEEWAY}), Some(Cause::TokenExpired)),
            (json!({"iss": "https://i", "exp": 0.5}), Some(Cause::TokenExpired)),
            (json!({"iss": "https://i", "exp": -1e300}), Some(Cause::TokenExpired)),
            (json!({"iss": "https://i", "exp": 1e300, "nbf": -1e300}), None),
            (json!({"iss": "https://i", "exp": now + 9999, "nbf": now + LEEWAY + 1}), Some(Cause::TokenNotYetValid)),
        ] {
            let judged = token(&claims).judge(expected);
            assert_eq!(judged.err().and_then(|finding| finding.cause), cause, "{claims}");
        }
        assert!(Token::new("opaque").judge(expected).is_ok());
        // A server that names no issuer.
        assert!(token(&json!({"iss": "https://i/"})).judge(Expected { issuers: &[], now }).is_ok());
    }

    #[test]
    fn a_report_shows_no_claim_that_says_whose_a_token_is() {
        let claims =
            json!({"iss": "https://i", "aud": ["a", "b"], "sub": "alice", "email": "alice@example.com", "exp": 90});
        let shown = token(&claims).described(30);
        assert_eq!(shown, "a JWT: `iss` \"https://i\", `aud` \"a b\", expires in 60 s");
    }
}
