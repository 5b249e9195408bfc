//! The answer of the token endpoint (RFC 6749 §5; RFC 8693 §2.2).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::held::{Given, LONGEST, usable};
use crate::strategy::bearer_value;

/// The time for which a token is used where nobody says how long it is valid.
const UNKNOWN: Duration = Duration::from_mins(1);

#[derive(Deserialize)]
#[serde(default)]
struct Members {
    access_token: String,
    token_type: String,
    issued_token_type: String,
    expires_in: Value,
}

impl Default for Members {
    fn default() -> Self {
        let [access_token, token_type, issued_token_type] = [const { String::new() }; 3];
        Self { access_token, token_type, issued_token_type, expires_in: Value::Null }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Error {
    error: String,
}

/// Reads the answer about the token `subject`.
pub(crate) fn exchanged(answer: &Response<Bytes>, subject: &str, audience: &str) -> Result<Given, Failure> {
    let members = members(answer)?;
    let types = ["access_token", "jwt"].map(|short| format!("urn:ietf:params:oauth:token-type:{short}"));
    if members.issued_token_type.is_empty() {
        return Err(unusable("has no issued_token_type, which RFC 8693 asks for"));
    }
    if !types.contains(&members.issued_token_type) {
        return Err(unusable("has an issued_token_type that is no access token's"));
    }
    let Given { credential, time } = members.given(audience)?;
    // The token must not outlive the caller's, which nobody may have checked.
    let subject = claims(subject).as_ref().and_then(left);
    Ok(Given { credential, time: subject.map_or(time, |left| time.min(left)) })
}

/// Reads the answer about a token of the proxy's own: no caller can do anything about a refusal.
pub(crate) fn granted(answer: &Response<Bytes>, audience: &str) -> Result<Given, Failure> {
    let issued = members(answer).and_then(|members| members.given(audience));
    issued.map_err(|failure| match failure {
        Failure::Refused(reason) | Failure::Forbidden(reason) => Failure::Unusable(reason),
        other => other,
    })
}

fn unusable(problem: &str) -> Failure {
    Failure::Unusable(format!("the token endpoint's answer {problem}"))
}

fn members(answer: &Response<Bytes>) -> Result<Members, Failure> {
    if answer.status() != StatusCode::OK {
        return Err(refused(answer));
    }
    // Errors of serde show a part of what they read.
    serde_json::from_slice(answer.body()).map_err(|_| unusable("is no answer of RFC 6749"))
}

impl Members {
    fn given(self, audience: &str) -> Result<Given, Failure> {
        let Self { access_token, token_type, expires_in, .. } = self;
        if access_token.is_empty() {
            return Err(unusable("has no access_token"));
        }
        if !token_type.eq_ignore_ascii_case("bearer") {
            return Err(unusable("has another token_type than Bearer"));
        }
        let token = bearer_value(&access_token).filter(|_| access_token.len() <= LONGEST);
        let token = token.ok_or_else(|| unusable("has an access_token that fits no header"))?;
        let claims = claims(&access_token).unwrap_or_default();
        if let Some(aud) = claims.get("aud").filter(|_| !audience.is_empty())
            && !names(aud, audience)
        {
            return Err(unusable("is a token for another audience"));
        }
        let valid = match seconds(&expires_in) {
            Some(seconds) => Some(Duration::from_secs_f64(seconds)),
            None if expires_in.is_null() => left(&claims),
            None => return Err(unusable("has an expires_in that is no number of seconds")),
        };
        if valid == Some(Duration::ZERO) {
            return Err(unusable("is a token that has expired"));
        }
        let time = valid.map_or(UNKNOWN, usable);
        Ok(Given { credential: token, time })
    }
}

/// A number, or one in quotes, as some providers write it.
fn seconds(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
    // More than a hundred years are for ever.
    number.is_finite().then(|| number.clamp(0.0, 3.2e9))
}

/// The claims of a JWT, whose signature is for those to check whom it is for.
fn claims(token: &str) -> Option<Map<String, Value>> {
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

/// The time until a token expires; `None` where it does not say.
pub(crate) fn left(claims: &Map<String, Value>) -> Option<Duration> {
    let until = claims.get("exp")?.as_f64()?;
    let now = Timestamp::now().as_millisecond();
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of this millennium are exact")]
    let left = until - now as f64 / 1000.0;
    Some(Duration::from_secs_f64(left.clamp(0.0, 3.2e9)))
}

fn names(aud: &Value, audience: &str) -> bool {
    match aud {
        Value::String(one) => one == audience,
        Value::Array(several) => several.iter().any(|one| one == audience),
        _ => false,
    }
}

fn refused(answer: &Response<Bytes>) -> Failure {
    let status = answer.status();
    let error: Error = serde_json::from_slice(answer.body()).unwrap_or_default();
    // Anything else could be a part of a token.
    let is_name = !error.error.is_empty()
        && error.error.len() <= 64
        && error.error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let name = if is_name { &*error.error } else { "no error that has a name" };
    let reason = format!("the token endpoint answers {status}: {name}");
    match (status.as_u16(), name) {
        (408 | 429 | 500.., _) | (_, "temporarily_unavailable" | "slow_down" | "server_error") => {
            Failure::unavailable_until(reason, answer.headers())
        }
        // The second is what RFC 8693 §2.2.2 has for a subject's token that is not valid.
        (400 | 401, "invalid_grant" | "invalid_request" | "invalid_token") => Failure::Refused(reason),
        (400..=403, "access_denied") => Failure::Forbidden(reason),
        _ => Failure::Unusable(reason),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::RETRY_AFTER;
    use serde_json::json;

    use super::*;

    fn jwt(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    fn answer(status: u16, body: &Value) -> Response<Bytes> {
        Response::builder().status(status).body(body.to_string().into()).unwrap()
    }

    /// An answer with `members` over a good one.
    fn good(members: &Value) -> Response<Bytes> {
        let mut body = json!({
            "access_token": "t", "token_type": "Bearer", "expires_in": 3600,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        });
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        answer(200, &body)
    }

    #[test]
    fn a_token_is_used_until_a_little_before_it_expires() {
        let now = Timestamp::now().as_second();
        for (members, subject, least, most) in [
            (json!({}), "s".to_owned(), 3570, 3570),
            (json!({"expires_in": "3600"}), "s".to_owned(), 3570, 3570),
            (json!({"expires_in": 5}), "s".to_owned(), 4, 5),
            (json!({"expires_in": null}), "s".to_owned(), 60, 60),
            (json!({"expires_in": null, "access_token": jwt(&json!({"exp": now + 600}))}), "s".to_owned(), 560, 570),
            (json!({"expires_in": 1e300}), "s".to_owned(), 3_199_999_970, 3_199_999_970),
            (json!({}), jwt(&json!({"exp": now + 100})), 90, 100),
            (json!({}), jwt(&json!({"exp": now - 100})), 0, 0),
            (json!({}), jwt(&json!({"exp": "never"})), 3570, 3570),
        ] {
            let time = exchanged(&good(&members), &subject, "").map(|given| given.time.as_secs()).unwrap();
            assert!((least..=most).contains(&time), "{members} {subject}: {time}");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_used_is_told_from_one_that_refuses() {
        let error = |status, error: &str| answer(status, &json!({"error": error, "error_description": "of s3cr3t"}));
        let for_others = jwt(&json!({"aud": ["other"]}));
        for (answer, name) in [
            (good(&json!({"access_token": ""})), "unusable"),
            (good(&json!({"access_token": "a\nb"})), "unusable"),
            (good(&json!({"access_token": "a b"})), "unusable"),
            (good(&json!({"access_token": "é"})), "unusable"),
            (good(&json!({"access_token": "x".repeat(LONGEST + 1)})), "unusable"),
            (good(&json!({"access_token": 7})), "unusable"),
            (good(&json!({"token_type": "N_A"})), "unusable"),
            (good(&json!({"issued_token_type": "urn:ietf:params:oauth:token-type:refresh_token"})), "unusable"),
            (good(&json!({"expires_in": 0})), "unusable"),
            (good(&json!({"expires_in": -1})), "unusable"),
            (good(&json!({"expires_in": "soon"})), "unusable"),
            (good(&json!({"access_token": for_others})), "unusable"),
            (good(&json!({"access_token": jwt(&json!({"aud": "b"}))})), "unusable"),
            (answer(200, &json!("s3cr3t")), "unusable"),
            (answer(302, &json!({})), "unusable"),
            (answer(404, &json!({})), "unusable"),
            (error(401, "invalid_client"), "unusable"),
            (error(400, "unauthorized_client"), "unusable"),
            (error(400, "invalid_scope"), "unusable"),
            (error(400, "invalid_target"), "unusable"),
            (error(400, "a s3cr3t"), "unusable"),
            (error(400, "invalid_grant"), "refused"),
            (error(400, "invalid_request"), "refused"),
            (error(403, "access_denied"), "forbidden"),
            (error(400, "temporarily_unavailable"), "unavailable"),
            (error(429, "invalid_grant"), "unavailable"),
            (error(500, "invalid_grant"), "unavailable"),
            (error(503, ""), "unavailable"),
        ] {
            let failure = exchanged(&answer, "subject", "backend").err().expect("it is of no use");
            assert_eq!(failure.name(), name, "{answer:?}: {failure:?}");
            assert!(!failure.reason().contains("s3cr3t"), "{failure:?}");
        }
        for aud in [json!("backend"), json!(["other", "backend"])] {
            assert!(exchanged(&good(&json!({"access_token": jwt(&json!({"aud": aud}))})), "s", "backend").is_ok());
        }
    }

    #[test]
    fn a_missing_type_is_told_from_another_one() {
        for (issued, words) in [
            (json!(""), "has no issued_token_type"),
            (json!("urn:ietf:params:oauth:token-type:refresh_token"), "that is no access token's"),
        ] {
            let failure = exchanged(&good(&json!({"issued_token_type": issued})), "s", "").err().unwrap();
            assert!(failure.reason().contains(words), "{failure:?}");
        }
    }

    #[test]
    fn no_caller_is_blamed_for_the_proxys_own_token() {
        let error = |status, error: &str| answer(status, &json!({"error": error}));
        let own = json!({"access_token": "t", "token_type": "bearer", "expires_in": 60});
        assert_eq!(granted(&answer(200, &own), "backend").unwrap().time, Duration::from_secs(54));
        for (answer, name) in [
            (error(400, "invalid_grant"), "unusable"),
            (error(401, "invalid_client"), "unusable"),
            (error(403, "access_denied"), "unusable"),
            (error(429, "slow_down"), "unavailable"),
            (error(500, ""), "unavailable"),
            (answer(200, &json!({})), "unusable"),
            (good(&json!({"access_token": jwt(&json!({"aud": "other"}))})), "unusable"),
        ] {
            assert_eq!(granted(&answer, "backend").err().map(|it| it.name()), Some(name), "{answer:?}");
        }
    }

    #[test]
    fn a_provider_says_when_to_come_again() {
        let mut answer = answer(503, &json!({}));
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("7"));
        let failure = exchanged(&answer, "s", "").err().expect("it is of no use");
        assert_eq!(failure.answer("Token exchange").headers()[RETRY_AFTER], "7");
    }
}
