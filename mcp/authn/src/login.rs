//! From a request's token to who calls.

use std::sync::Arc;
use std::time::Duration;

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use mcp_http::Body;
use mcp_middleware::{Fingerprint, bearer_token};
use mcp_store::{Bound, Client};
use serde_json::Value;

use crate::cache::{Cache, Caller, Verified};
use crate::claims::{Expected, identity};
use crate::introspection::{Answer, Introspection, LONGEST, REMEMBERED};
use crate::jws::Jws;
use crate::keys::{KeySet, Unverified};
use crate::provider::Provider;
use crate::refusal::{Challenge, Refusal};

/// When to ask again where the provider did not say what a token is worth.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Takes the tokens of one provider.
#[derive(Debug)]
pub(crate) struct Login {
    expected: Expected,
    provider: Arc<Provider>,
    /// `None`: a token that is no JWT is worth nothing.
    introspection: Option<Arc<Introspection>>,
    challenge: Challenge,
    cache: Cache,
}

impl Login {
    pub(crate) fn new(
        expected: Expected,
        provider: Arc<Provider>,
        introspection: Option<Arc<Introspection>>,
        challenge: Challenge,
    ) -> Self {
        Self { expected, provider, introspection, challenge, cache: Cache::new() }
    }

    /// Fetches the keys, so that the first request does not have to wait for them.
    pub(crate) fn warm_up(&self) {
        drop(self.provider.keys());
    }

    /// The bounds that callers share here.
    pub(crate) fn bounds(&self) -> Vec<Bound> {
        let asked = self.introspection.as_ref().map(|introspection| introspection.bound());
        [self.cache.bound()].into_iter().chain(asked).collect()
    }

    /// The answer to a request that does not pass.
    pub(crate) fn refuse(&self, refusal: &Refusal) -> http::Response<Body> {
        refusal.answer(&self.challenge)
    }

    /// An answer that says where tokens come from, where what stands inside of the login refuses the caller's.
    pub(crate) fn challenge(&self, mut answer: http::Response<Body>) -> http::Response<Body> {
        if answer.status() == StatusCode::UNAUTHORIZED && !answer.headers().contains_key(WWW_AUTHENTICATE) {
            answer.headers_mut().extend(self.challenge.of_invalid().map(|value| (WWW_AUTHENTICATE, value)));
        }
        answer
    }

    /// Returns the caller of a request with these headers, and the fingerprint of the token.
    ///
    /// # Errors
    /// Why it does not pass.
    pub(crate) async fn identify(
        &self,
        headers: &HeaderMap,
        client: &Client,
    ) -> Result<(Caller, Fingerprint), Refusal> {
        let token = bearer_token(headers).map_err(Refusal::NoBearer)?;
        let fingerprint = Fingerprint::of(token);
        let now = Timestamp::now().as_second();
        if let Some(caller) = self.cache.get(&fingerprint, now, self.provider.keys().as_ref()) {
            return Ok((caller, fingerprint));
        }
        let verified = match (Jws::parse(token), &self.introspection) {
            (Some(jws), _) => self.verify(jws, now).await?,
            (None, Some(_)) if token.len() > LONGEST => {
                return Err(Refusal::Invalid(format!("it is no JWT, and longer than {LONGEST} bytes")));
            }
            (None, Some(introspection)) => {
                let answer = introspection.ask(token, fingerprint, client).await;
                self.introspected(answer, now)?
            }
            (None, None) => return Err(Refusal::Invalid("it is no JWT, and there is no IntrospectionURL".to_owned())),
        };
        let caller = verified.caller.clone();
        self.cache.insert(fingerprint, verified);
        Ok((caller, fingerprint))
    }

    /// A JWT: its signature, then its claims.
    async fn verify(&self, jws: Jws<'_>, now: i64) -> Result<Verified, Refusal> {
        let mut keys = self.provider.first_keys().await?;
        let mut signature = keys.verify(&jws);
        // A provider whose tokens name no key may have a new one, too.
        let may_be_newer = matches!(signature, Err(Unverified::UnknownKid(_))) || jws.kid().is_none();
        if signature.is_err()
            && may_be_newer
            && let Some(newer) = self.provider.keys_after_unknown_kid().await
            && !Arc::ptr_eq(&newer, &keys)
        {
            signature = newer.verify(&jws);
            keys = newer;
        }
        signature.map_err(|error| Refusal::Invalid(error.to_string()))?;
        self.accept(jws.claims, now, Some(keys))
    }

    /// A token that only the provider can read, and what it says.
    fn introspected(&self, answer: Answer, now: i64) -> Result<Verified, Refusal> {
        let answer = answer.map_err(|error| {
            tracing::warn!(%error, "the OIDC provider does not say what a token is worth");
            Refusal::Unavailable { reason: error.to_string(), retry: ASK_AGAIN }
        })?;
        let claims = answer.ok_or_else(|| Refusal::Invalid("the provider says that it is not active".to_owned()))?;
        let mut claims = (*claims).clone();
        // Both are optional in an answer (RFC 7662 §2.2), which comes from the issuer that the document names.
        if !self.expected.issuer.is_empty() && !claims.contains_key("iss") {
            claims.insert("iss".to_owned(), Value::String(self.expected.issuer.clone()));
        }
        let says_until = claims.contains_key("exp");
        if !says_until {
            claims.insert("exp".to_owned(), (now + REMEMBERED).into());
        }
        let mut verified = self.accept(claims, now, None)?;
        verified.caller.expires = verified.caller.expires.filter(|_| says_until);
        verified.until = verified.until.min(now + REMEMBERED);
        Ok(verified)
    }

    fn accept(
        &self,
        claims: serde_json::Map<String, Value>,
        now: i64,
        keys: Option<Arc<KeySet>>,
    ) -> Result<Verified, Refusal> {
        let until = self.expected.check(&claims, now).map_err(|error| Refusal::Invalid(error.to_string()))?;
        // Their form in memory is several times as long.
        let length = serde_json::to_string(&claims).map_or(0, |claims| claims.len());
        Ok(Verified { caller: Caller { identity: identity(claims)?, expires: Some(until) }, until, length, keys })
    }
}
