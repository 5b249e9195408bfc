//! Tokens that are no JWT: the provider says what they are worth (RFC 7662).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use form_urlencoded::{Serializer, byte_serialize};
use http::{HeaderValue, Uri};
use serde_json::{Map, Value};

use crate::cache::Fingerprint;
use crate::fetch::{FetchError, Fetcher};
use crate::flight::Flights;

/// Seconds for which an answer counts: a token that was revoked is taken for so long.
pub(crate) const REMEMBERED: i64 = 60;
/// Tokens that the provider is asked about at once: anybody can invent one.
const LIMIT: usize = 64;

/// Asks the provider about tokens.
#[derive(Debug)]
pub(crate) struct Introspection {
    fetcher: Arc<Fetcher>,
    url: Uri,
    authorization: Option<HeaderValue>,
    flights: Flights<Fingerprint, Answer>,
}

/// The claims of a token, `None` where it is worth nothing; or why there is no answer.
pub(crate) type Answer = Result<Option<Arc<Map<String, Value>>>, FetchError>;

impl Introspection {
    pub(crate) fn new(fetcher: Arc<Fetcher>, url: Uri, authorization: Option<HeaderValue>) -> Self {
        Self { fetcher, url, authorization, flights: Flights::new(LIMIT) }
    }

    /// What `token` is worth. Those who ask about one token at once share one call.
    pub(crate) async fn ask(self: &Arc<Self>, token: &str, fingerprint: Fingerprint) -> Answer {
        let flight = self.flights.join(fingerprint, || {
            let (this, token) = (Arc::clone(self), token.to_owned());
            async move { this.call(&token).await }
        });
        let fail = |problem: &str| Err(FetchError::new(&self.url, problem));
        let Some(flight) = flight else { return fail("too many tokens are being asked about") };
        flight.await.unwrap_or_else(|| fail("the call panicked"))
    }

    async fn call(&self, token: &str) -> Answer {
        let form = Serializer::new(String::new())
            .append_pair("token", token)
            .append_pair("token_type_hint", "access_token")
            .finish();
        let answer = self.fetcher.post(&self.url, self.authorization.clone(), form).await?;
        claims(&answer).map(|claims| claims.map(Arc::new)).map_err(|problem| FetchError::new(&self.url, problem))
    }
}

/// The claims in an answer: all of its members but `active`. `None` for a token that is not active.
fn claims(answer: &[u8]) -> Result<Option<Map<String, Value>>, String> {
    let mut claims: Map<String, Value> =
        serde_json::from_slice(answer).map_err(|error| format!("is no answer of RFC 7662: {error}"))?;
    match claims.remove("active") {
        Some(Value::Bool(active)) => Ok(active.then_some(claims)),
        _ => Err("says not whether the token is active".to_owned()),
    }
}

/// The credentials of a client, each encoded as in a form (RFC 6749 §2.3.1).
pub(crate) fn basic(id: &str, secret: &str) -> Option<HeaderValue> {
    let [id, secret] = [id, secret].map(|text| byte_serialize(text.as_bytes()).collect::<String>());
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_members_of_an_active_answer_are_claims_and_anything_else_is_no_token() {
        let found = claims(br#"{"active":true,"sub":"a","username":"Alice","groups":["g"]}"#).unwrap().unwrap();
        assert_eq!(Value::Object(found), json!({"sub": "a", "username": "Alice", "groups": ["g"]}));
        assert_eq!(claims(br#"{"active":false,"sub":"a"}"#), Ok(None));
        for answer in [&b"[]"[..], b"{}", br#"{"active":"true"}"#, br#"{"active":null}"#, b"<html>"] {
            assert!(claims(answer).is_err());
        }
    }

    #[test]
    fn credentials_may_have_any_characters() {
        let value = basic("a:b c", "s%+ü").unwrap();
        let decoded = STANDARD.decode(value.to_str().unwrap().strip_prefix("Basic ").unwrap()).unwrap();
        assert_eq!(String::from_utf8(decoded).unwrap(), "a%3Ab+c:s%25%2B%C3%BC");
    }
}
