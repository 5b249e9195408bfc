//! Questions to a provider of credentials: so many at once, one for all who want the same, each counted, and answers that are kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use mcp_middleware::{Fingerprint, Metrics};
use mcp_store::{Bound, Client, Places, Shares};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::held::{Credential, Given, Held};

/// The time for one question, with the wait for a place.
pub(crate) const TIME: Duration = Duration::from_secs(10);
/// The questions at once in all, and for each client: one with many tokens must leave some to the others.
const LIMIT: usize = 64;
const LIMIT_OF_CLIENT: usize = 8;
/// The bytes of questions that go on when their callers leave, in all and for each client: no connection bounds them any more.
const GOING_ON: usize = 16 << 20;
const GOING_ON_OF_CLIENT: usize = 1 << 20;
/// The bytes that such a question counts beside its text.
const TASK: usize = 4 << 10;

/// The names that a kind of credential has.
pub(crate) struct Names {
    /// The one that is asked.
    pub(crate) provider: &'static str,
    /// The log's line about a question that brought none.
    pub(crate) failed: &'static str,
    /// The counter of questions, and its help.
    pub(crate) counter: (&'static str, &'static str),
    /// The result of a question that brought one, there.
    pub(crate) given: &'static str,
    /// The bounds of questions, of those that go on without their callers, and of credentials.
    pub(crate) questions: &'static str,
    pub(crate) going_on: &'static str,
    pub(crate) held: &'static str,
}

/// Asks one provider.
pub(crate) struct Asking<T = HeaderValue> {
    names: &'static Names,
    host: String,
    places: Places,
    going_on: Arc<Shares>,
    held: Held<T>,
    results: Family<OfResult, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResult {
    result: &'static str,
}

impl<T: Credential> Asking<T> {
    /// Questions to the provider at `host`.
    pub(crate) fn new(names: &'static Names, host: &str, metrics: &Metrics) -> Arc<Self> {
        let results = Family::default();
        // Each count begins at zero, so that a query of failures has an answer before the first.
        for result in Failure::NAMES.into_iter().chain([names.given]) {
            drop(results.get_or_create_owned(&OfResult { result }));
        }
        let (counter, help) = names.counter;
        metrics.register(counter, help, Family::clone(&results));
        let places = Places::new(names.questions, LIMIT, LIMIT_OF_CLIENT);
        let going_on = Shares::new(GOING_ON, GOING_ON_OF_CLIENT);
        Arc::new(Self { names, host: host.to_owned(), places, going_on, held: Held::new(), results })
    }

    /// The credential of `key`, for which `client` has the provider asked where there is none, with `bytes` of text.
    pub(crate) async fn get<F>(
        self: &Arc<Self>,
        key: Fingerprint,
        client: impl FnOnce() -> Client,
        bytes: usize,
        ask: impl FnOnce() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<Given<T>, Failure>> + Send + 'static,
    {
        if let Some(credential) = self.held.get(&key).await {
            return Ok(credential);
        }
        let client = client();
        let share = self.going_on.take(&client, TASK + bytes);
        let (this, asking) = (Arc::clone(self), ask());
        let asking = async move {
            let asking = Box::pin(this.ask(asking, &client));
            Box::pin(this.held.get_or(key, &client, asking)).await
        };
        // Beyond its client's share it ends with its caller.
        let Some(share) = share else { return asking.await };
        // It goes on for those who wait with it, and for the next, when this caller leaves.
        let asking = tokio::spawn(async move {
            let _share = share;
            asking.await
        });
        asking.await.unwrap_or_else(|_| Err(Failure::unavailable("the question panicked")))
    }

    async fn ask(
        &self,
        asking: impl Future<Output = Result<Given<T>, Failure>>,
        client: &Client,
    ) -> Result<Given<T>, Failure> {
        let started = Instant::now();
        let asking = async {
            let _place = self.places.take(client).await;
            asking.await
        };
        let late = || Err(Failure::unavailable(format!("no answer of {} within {TIME:?}", self.names.provider)));
        let given = timeout(TIME, asking).await.unwrap_or_else(|_| late());
        let result = given.as_ref().map_or_else(Failure::name, |_| self.names.given);
        self.results.get_or_create_owned(&OfResult { result }).inc();
        if let Err(failure) = &given {
            tracing::warn!(host = self.host, reason = failure.reason(), took = ?started.elapsed(), "{}", self.names.failed);
        }
        given
    }

    /// Forgets a credential that the server does not take, unless there is another one by now.
    pub(crate) async fn forget(&self, key: Fingerprint, refused: T) {
        self.held.forget(key, refused).await;
    }

    pub(crate) fn bounds(&self) -> Vec<Bound> {
        let Names { going_on, held, .. } = self.names;
        vec![self.places.bound(), self.going_on.bound(going_on), self.held.bound(held)]
    }
}
