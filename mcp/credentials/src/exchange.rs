//! The exchange of the caller's token for one of the MCP server's (RFC 8693).

mod answer;
mod config;
mod held;
mod question;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::{HeaderName, Request};
use mcp_http::client::{Client as HttpClient, RequestError, RequestLimits};
use mcp_http::{Body, TokenFile};
use mcp_middleware::{RequestContext, SecretSource};
use mcp_store::{Bound, Client, Places, Shares};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::time::timeout;

use self::held::{Exchanged, Fingerprint, Held};
use self::question::Question;
use crate::failure::Failure;
use crate::strategy::{Applied, Strategy, bearer, read_token, replace};

/// The time for one exchange, with the wait for a place.
const TIME: Duration = Duration::from_secs(10);
/// The longest answer, in bytes.
const ANSWER: usize = 128 << 10;
/// The exchanges at once in all, and for each client: one with many tokens must leave some to the others.
const LIMIT: usize = 64;
const LIMIT_OF_CLIENT: usize = 8;
/// The bytes of exchanges that go on when their callers leave, in all and for each client: no connection bounds them any more.
const GOING_ON: usize = 16 << 20;
const GOING_ON_OF_CLIENT: usize = 1 << 20;
/// The bytes that such an exchange counts beside its token.
const TASK: usize = 4 << 10;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));

/// Exchanges callers' tokens. Clones are one.
#[derive(Clone)]
pub(crate) struct TokenExchange(Arc<Inner>);

struct Inner {
    question: Question,
    /// The header for the new token.
    header: HeaderName,
    client_id: String,
    client_secret: SecretSource,
    actor: Option<TokenFile>,
    client: HttpClient,
    places: Places,
    going_on: Arc<Shares>,
    held: Held,
    results: Family<OfResult, Counter>,
}

/// The name in metrics of an exchange that gave a token.
const EXCHANGED: &str = "exchanged";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResult {
    result: &'static str,
}

impl TokenExchange {
    /// The token in place of `subject`, which `client` shows.
    async fn token(&self, key: Fingerprint, subject: &str, client: Client) -> Result<HeaderValue, Failure> {
        if let Some(token) = self.0.held.get(&key).await {
            return Ok(token);
        }
        let share = self.0.going_on.take(&client, TASK + subject.len());
        let (this, subject) = (Arc::clone(&self.0), subject.to_owned());
        let asking = async move {
            let exchange = Box::pin(this.exchange(&subject, &client));
            Box::pin(this.held.get_or(key, &client, exchange)).await
        };
        // Beyond its client's share it ends with its caller.
        let Some(share) = share else { return asking.await };
        // It goes on for those who wait with it, and for the next, when this caller leaves.
        let asking = tokio::spawn(async move {
            let _share = share;
            asking.await
        });
        asking.await.unwrap_or_else(|_| Err(Failure::unavailable("the exchange panicked")))
    }
}

impl Inner {
    async fn exchange(&self, subject: &str, client: &Client) -> Result<Exchanged, Failure> {
        let started = Instant::now();
        let asking = async {
            let _place = self.places.take(client).await;
            self.ask(subject).await
        };
        let late = || Err(Failure::unavailable(format!("no answer of the token endpoint within {TIME:?}")));
        let exchanged = timeout(TIME, asking).await.unwrap_or_else(|_| late());
        let result = exchanged.as_ref().map_or_else(Failure::name, |_| EXCHANGED);
        self.results.get_or_create_owned(&OfResult { result }).inc();
        if let Err(failure) = &exchanged {
            let host = self.client.server().host().unwrap_or_default();
            tracing::warn!(host, reason = failure.reason(), took = ?started.elapsed(), "a token was not exchanged");
        }
        exchanged
    }

    async fn ask(&self, subject: &str) -> Result<Exchanged, Failure> {
        let secret = self.client_secret.read().map_err(Failure::Unusable)?;
        let actor = self.actor.as_ref().map(read_token).transpose().map_err(Failure::Unusable)?;
        let mut headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json")),
            (CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
            (USER_AGENT, AGENT),
        ]);
        let public = match secret {
            Some(secret) if !self.client_id.is_empty() => {
                headers.insert(AUTHORIZATION, question::basic(&self.client_id, secret.reveal())?);
                None
            }
            _ => Some(&*self.client_id).filter(|id| !id.is_empty()),
        };
        let form = self.question.form(subject, actor.as_deref(), public);
        let limits = RequestLimits { time: TIME, answer: ANSWER };
        let answer = self.client.post(headers, form.into(), limits).await.map_err(|error| match error {
            RequestError::TooLong(limit, _) => Failure::Unusable(format!("the answer is longer than {limit} bytes")),
            RequestError::Forbidden(error) => Failure::Unusable(error.to_string()),
            error => Failure::unavailable(error.to_string()),
        })?;
        answer::read(&answer, subject, &self.question.audience)
    }
}

impl Strategy for TokenExchange {
    type Used = (Fingerprint, HeaderValue);

    fn apply<'a>(&'a self, mut request: Request<Body>, context: &'a RequestContext) -> Applied<'a, Self::Used> {
        async move {
            let subject = bearer(request.headers()).ok_or(Failure::NoToken)?;
            let key = Fingerprint::of(subject);
            let token = self.token(key, subject, context.client()).await?;
            replace(request.headers_mut(), &self.0.header, token.clone());
            Ok((request, (key, token)))
        }
        .boxed()
    }

    /// The provider may have new keys, or have revoked it: the next call gets another one.
    fn refused(&self, (key, token): Self::Used) -> BoxFuture<'_, ()> {
        self.0.held.forget(key, token).boxed()
    }

    fn announce(&self) {
        let Inner { client, header, .. } = &*self.0;
        let host = client.server().host().unwrap_or_default();
        tracing::info!(host, %header, "callers' tokens are exchanged for those of the server");
        if client.is_insecure() {
            tracing::warn!(host, "tokens are exchanged without TLS: anybody on the path can read and change them");
        }
    }

    fn bounds(&self) -> Vec<Bound> {
        let Inner { places, going_on, held, .. } = &*self.0;
        vec![places.bound(), going_on.bound("exchanges_going_on"), held.bound()]
    }
}
