//! One token: how long it is good for, and when to ask for the next one.

use std::time::Duration;

use http::HeaderValue;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use tokio::time::Instant;

/// How long a token is asked for. An API server may give less (`--service-account-max-token-expiration`).
const LIFETIME: Duration = Duration::from_hours(1);
/// Of its lifetime, a token is renewed after between these parts, so that controllers do not ask at the same moment.
const RENEW_AFTER: (f64, f64) = (0.7, 0.8);

/// A bearer token of a ServiceAccount.
#[derive(Clone)]
pub(crate) struct Token {
    header: HeaderValue,
    renew_at: Instant,
    ends: Instant,
}

/// What asks for one: for the API server's own audience, and bound to nothing but the account.
pub(crate) fn request() -> TokenRequest {
    let seconds = i64::try_from(LIFETIME.as_secs()).ok();
    let spec = TokenRequestSpec { audiences: Vec::new(), expiration_seconds: seconds, bound_object_ref: None };
    TokenRequest { spec, ..TokenRequest::default() }
}

impl Token {
    /// The token of an answer to what was asked at `asked`; `chance` (0 to 1) chooses when it is renewed. Its time is
    /// counted on our own clock, from before it was made: that of the API server may be another.
    pub(crate) fn of(answer: &TokenRequest, asked: Instant, chance: f64) -> Result<Self, String> {
        let seconds = answer.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lifetime = seconds.map_or(LIFETIME, Duration::from_secs);
        let token = answer.status.as_ref().map(|status| status.token.as_str()).filter(|token| !token.is_empty());
        let token = token.ok_or("the API server answered without a token")?;
        let mut header = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| "the API server answered with a token that fits in no header")?;
        header.set_sensitive(true);
        let (least, most) = RENEW_AFTER;
        let part = least + (most - least) * chance.clamp(0.0, 1.0);
        Ok(Self { header, renew_at: asked + lifetime.mul_f64(part), ends: asked + lifetime })
    }

    /// The value of `Authorization`.
    pub(crate) fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// When to ask for the next one.
    pub(crate) fn renew_at(&self) -> Instant {
        self.renew_at
    }

    /// Whether the API server may still take it.
    pub(crate) fn is_good(&self, now: Instant) -> bool {
        now < self.ends
    }
}

/// Tells when it ends, and never what it is.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("renew_at", &self.renew_at).field("ends", &self.ends).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::authentication::v1::TokenRequestStatus;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn answer(token: &str, seconds: Option<i64>) -> TokenRequest {
        let status = TokenRequestStatus { token: token.to_owned(), expiration_timestamp: Time(Timestamp::UNIX_EPOCH) };
        let spec = TokenRequestSpec { expiration_seconds: seconds, ..TokenRequestSpec::default() };
        TokenRequest { spec, status: Some(status), ..TokenRequest::default() }
    }

    #[test]
    fn a_token_is_renewed_between_seven_and_eight_tenths_of_the_lifetime_that_the_api_server_gave() {
        let asked = Instant::now();
        let cases = [(Some(600), 0.0, 420, 600), (Some(600), 1.0, 480, 600), (Some(3600), 0.5, 2700, 3600)];
        // Without a lifetime, that which was asked for.
        for (seconds, chance, renewed, ends) in cases.into_iter().chain([(None, 1.0, 2880, 3600)]) {
            let token = Token::of(&answer("t", seconds), asked, chance).unwrap();
            let after = token.renew_at().duration_since(asked).as_millis();
            assert_eq!((after + 500) / 1000, renewed, "{seconds:?} {chance}");
            assert!(token.is_good(asked + Duration::from_secs(ends - 1)), "{seconds:?}");
            assert!(!token.is_good(asked + Duration::from_secs(ends)), "{seconds:?}");
        }
    }

    #[test]
    fn an_answer_without_a_usable_token_is_an_error_and_a_token_is_never_shown() {
        let asked = Instant::now();
        for (token, said) in [("", "without a token"), ("a\nb", "fits in no header")] {
            assert!(Token::of(&answer(token, None), asked, 0.0).unwrap_err().contains(said));
        }
        let token = Token::of(&answer("secret", None), asked, 0.0).unwrap();
        assert!(!format!("{token:?} {:?}", token.header()).contains("secret"));
        assert_eq!(token.header(), "Bearer secret");
    }
}
