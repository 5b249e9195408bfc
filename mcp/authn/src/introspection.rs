//! Tokens that are no JWT: the provider says what they are worth (RFC 7662).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use form_urlencoded::{Serializer, byte_serialize};
use http::{HeaderValue, Uri};
use mcp_middleware::Fingerprint;
use mcp_store::{Bound, Client, Shares};
use serde_json::{Map, Value};

use crate::fetch::{FetchError, Fetcher};
use crate::flight::Flights;

/// Seconds for which an answer counts: a token that was revoked is taken for so long.
pub(crate) const REMEMBERED: i64 = 60;
/// The longest token that the provider is asked about, in bytes: opaque ones are short.
pub(crate) const LONGEST: usize = 4 << 10;
/// Tokens that the provider is asked about at once, in all and for each client network: anybody can invent one, and must not keep the
/// others from being asked about.
const LIMIT: usize = 64;
const LIMIT_OF_CLIENT: usize = 8;

/// Asks the provider about tokens.
#[derive(Debug)]
pub(crate) struct Introspection {
    fetcher: Arc<Fetcher>,
    url: Uri,
    authorization: Option<HeaderValue>,
    flights: Flights<Fingerprint, Answer>,
    clients: Arc<Shares>,
}

/// The claims of a token, `None` where it is worth nothing; or why there is no answer.
pub(crate) type Answer = Result<Option<Arc<Map<String, Value>>>, FetchError>;

impl Introspection {
    pub(crate) fn new(fetcher: Arc<Fetcher>, url: Uri, authorization: Option<HeaderValue>) -> Self {
        Self { fetcher, url, authorization, flights: Flights::new(LIMIT), clients: Shares::new(LIMIT, LIMIT_OF_CLIENT) }
    }

    pub(crate) fn bound(&self) -> Bound {
        self.clients.bound("introspections")
    }

    /// Asks what `token` is worth, which `client` shows. Callers that ask about one token at once share one call, which counts for the
    /// first of them.
    pub(crate) async fn ask(self: &Arc<Self>, token: &str, fingerprint: Fingerprint, client: &Client) -> Answer {
        let flight = self.flights.join(fingerprint, || {
            let share = self.clients.take(client, 1)?;
            let (this, token) = (Arc::clone(self), token.to_owned());
            Some(async move {
                let _share = share;
                this.call(&token).await
            })
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

/// The `Authorization` with the credentials of a client, each encoded as in a form (RFC 6749 §2.3.1).
pub fn basic(id: &str, secret: &str) -> Option<HeaderValue> {
    let [id, secret] = [id, secret].map(|text| byte_serialize(text.as_bytes()).collect::<String>());
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::time::Duration;

    use mcp_runconfig::endpoint::EndpointPolicy;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    /// Asks the provider at this address, on loopback.
    fn introspection(provider: &TcpListener) -> Arc<Introspection> {
        let fetcher = Fetcher {
            ca: None,
            token_file: None,
            allow_http: true,
            policy: EndpointPolicy::new(false, vec!["127.0.0.0/8".parse().unwrap()]),
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            clients: Mutex::new(HashMap::new()),
        };
        let url = format!("http://{}/introspect", provider.local_addr().unwrap()).parse().unwrap();
        Arc::new(Introspection::new(Arc::new(fetcher), url, None))
    }

    async fn call(provider: &TcpListener) -> TcpStream {
        timeout(Duration::from_secs(30), provider.accept()).await.expect("the provider is asked").unwrap().0
    }

    #[tokio::test]
    async fn one_client_with_invented_tokens_leaves_the_provider_to_the_others() {
        let provider = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let introspection = introspection(&provider);
        let [mallory, alice] = [1, 2].map(|host| Client::Network([192, 0, 2, host].into()));
        let mut asked = JoinSet::new();
        let ask = |token: &str, client: &Client| {
            let (this, token, client) = (Arc::clone(&introspection), token.to_owned(), client.clone());
            async move { this.ask(&token, Fingerprint::of(&token), &client).await }
        };
        let mut unanswered = Vec::new();
        for number in 0..LIMIT_OF_CLIENT {
            asked.spawn(ask(&format!("invented-{number}"), &mallory));
            unanswered.push(call(&provider).await);
        }
        let refused = ask("invented", &mallory).await.unwrap_err().to_string();
        assert!(refused.contains("too many tokens"), "{refused}");
        let provider_answers = async || {
            let mut stream = call(&provider).await;
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\nconnection: close\r\n\r\n{\"active\":true}";
            stream.write_all(answer).await.unwrap();
        };
        let (answer, ()) = tokio::join!(ask("of-alice", &alice), provider_answers());
        assert_eq!(answer, Ok(Some(Arc::default())));
        drop(unanswered);
        while let Some(answer) = asked.join_next().await {
            assert!(answer.unwrap().is_err());
        }
        let (answer, ()) = tokio::join!(ask("good", &mallory), provider_answers());
        assert_eq!(answer, Ok(Some(Arc::default())), "what was answered counts no longer");
    }

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
