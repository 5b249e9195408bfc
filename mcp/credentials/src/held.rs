//! The tokens that providers gave, so that each is asked for once and not for every call.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use http::HeaderValue;
use mcp_store::{Bound, Client, Share, Shares};
use moka::Expiry;
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use tokio::time::Instant;

use crate::failure::Failure;

/// The bytes that are kept in all and of one client: one that gets tokens without end does not make others' forgotten.
const BYTES: usize = 32 << 20;
const BYTES_OF_CLIENT: usize = 1 << 20;
/// The bytes that a token counts beside its own: so the number of the smallest is bounded, too.
const ENTRY: usize = 1 << 10;
/// The bytes of questions that go on when their callers leave, in all and for each client: no connection bounds them any more.
const GOING_ON: usize = 16 << 20;
const GOING_ON_OF_CLIENT: usize = 1 << 20;
/// The bytes that such a question counts beside its text.
const TASK: usize = 4 << 10;
/// A token that the server does not take is kept for so long after its exchange: another one would do no better.
const FRESH: Duration = Duration::from_secs(10);

/// The name by which a caller's token is known: it opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint([u8; 32]);

/// A token that the provider gave.
#[derive(Clone)]
pub(crate) struct Issued {
    /// The value of its header.
    pub(crate) token: HeaderValue,
    /// For how long it is used.
    pub(crate) time: Duration,
}

/// The tokens that are in use. Whoever asks for one that is on its way waits for it.
pub(crate) struct Held {
    tokens: Cache<Fingerprint, Arc<Token>>,
    shares: Arc<Shares>,
    going_on: Arc<Shares>,
}

struct Token {
    issued: Issued,
    since: Instant,
    /// `None`: it is more than its client may have kept, and goes to those alone who wait for it.
    share: Option<Share>,
}

impl Fingerprint {
    pub(crate) fn of(token: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(bytes)
    }
}

impl Held {
    pub(crate) fn new() -> Self {
        let tokens = Cache::builder()
            .max_capacity(BYTES as u64)
            .weigher(|_, token: &Arc<Token>| u32::try_from(token.issued.bytes()).unwrap_or(u32::MAX))
            .eviction_policy(EvictionPolicy::lru())
            .expire_after(Until)
            .build();
        // The cache gives a share back some time after it has dropped the token.
        let shares = Shares::new(2 * BYTES, BYTES_OF_CLIENT);
        Self { tokens, shares, going_on: Shares::new(GOING_ON, GOING_ON_OF_CLIENT) }
    }

    /// The token of `key`. Where none is kept, one of those who wait for it asks as `ask` does, with `bytes` of text.
    pub(crate) async fn token<F>(
        self: &Arc<Self>,
        key: Fingerprint,
        client: &Client,
        bytes: usize,
        ask: impl FnOnce() -> F,
    ) -> Result<HeaderValue, Failure>
    where
        F: Future<Output = Result<Issued, Failure>> + Send + 'static,
    {
        if let Some(token) = self.get(&key).await {
            return Ok(token);
        }
        let share = self.going_on.take(client, TASK + bytes);
        let (this, client, ask) = (Arc::clone(self), client.clone(), Box::pin(ask()));
        let asking = async move { Box::pin(this.get_or(key, &client, ask)).await };
        // Beyond its client's share it ends with its caller.
        let Some(share) = share else { return asking.await };
        // It goes on for those who wait with it, and for the next, when this caller leaves.
        let asking = tokio::spawn(async move {
            let _share = share;
            asking.await
        });
        asking.await.unwrap_or_else(|_| Err(Failure::unavailable("the question to the provider panicked")))
    }

    async fn get(&self, key: &Fingerprint) -> Option<HeaderValue> {
        self.tokens.get(key).await.map(|token| token.issued.token.clone())
    }

    /// The token of `key`, for which `ask` is run by one of those who ask at once. It counts for the client of that one.
    async fn get_or(
        &self,
        key: Fingerprint,
        client: &Client,
        ask: impl Future<Output = Result<Issued, Failure>>,
    ) -> Result<HeaderValue, Failure> {
        let ask = async {
            let issued = ask.await?;
            let share = self.shares.take(client, issued.bytes());
            Ok(Arc::new(Token { issued, since: Instant::now(), share }))
        };
        let token = self.tokens.try_get_with(key, ask).await.map_err(|failure: Arc<Failure>| (*failure).clone())?;
        if token.share.is_none() {
            // The cache would look for entries that are over once a second, and drop others before.
            self.tokens.invalidate(&key).await;
        }
        Ok(token.issued.token.clone())
    }

    /// Forgets a token that the server does not take, unless there is another one by now.
    pub(crate) async fn forget(&self, key: Fingerprint, refused: HeaderValue) {
        let is_stale = |token: &Token| token.issued.token == refused && token.since.elapsed() >= FRESH;
        if self.tokens.get(&key).await.is_some_and(|token| is_stale(&token)) {
            self.tokens.invalidate(&key).await;
        }
    }

    pub(crate) fn bounds(&self) -> [Bound; 2] {
        let used = usize::try_from(self.tokens.weighted_size()).unwrap_or(BYTES);
        [Bound { name: "exchanged_tokens", used, limit: BYTES }, self.going_on.bound("exchanges_going_on")]
    }
}

impl Issued {
    fn bytes(&self) -> usize {
        ENTRY + self.token.len()
    }
}

/// Ends a token in time.
struct Until;

impl Expiry<Fingerprint, Arc<Token>> for Until {
    fn expire_after_create(&self, _: &Fingerprint, token: &Arc<Token>, _: std::time::Instant) -> Option<Duration> {
        Some(token.issued.time)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use futures::future::join_all;

    use super::*;

    fn client(host: u8) -> Client {
        Client::Network([192, 0, 2, host].into())
    }

    fn issued(length: usize, time: Duration) -> Issued {
        Issued { token: HeaderValue::try_from("x".repeat(length)).unwrap(), time }
    }

    async fn keep(held: &Held, name: &str, client: &Client, issued: Issued) {
        held.get_or(Fingerprint::of(name), client, async { Ok(issued) }).await.unwrap();
    }

    #[tokio::test]
    async fn all_who_ask_at_once_share_one_exchange_and_its_failure() {
        let (held, asked, client) = (Held::new(), AtomicUsize::new(0), client(1));
        let failure = || Failure::Refused("no".to_owned());
        for (name, result) in [("good", Ok(issued(1, Duration::from_hours(1)))), ("bad", Err(failure()))] {
            let ask = || {
                held.get_or(Fingerprint::of(name), &client, async {
                    asked.fetch_add(1, Relaxed);
                    tokio::task::yield_now().await;
                    result.clone()
                })
            };
            let answers = join_all((0..50).map(|_| ask())).await;
            assert_eq!(asked.swap(0, Relaxed), 1, "{name}");
            let expected = result.clone().map(|issued| issued.token);
            assert!(answers.iter().all(|answer| *answer == expected), "{name}");
        }
        assert!(held.get(&Fingerprint::of("good")).await.is_some());
        assert!(held.get(&Fingerprint::of("bad")).await.is_none(), "the next one asks again");
    }

    #[tokio::test]
    async fn a_token_is_forgotten_in_time() {
        let held = Held::new();
        keep(&held, "over", &client(1), issued(1, Duration::ZERO)).await;
        keep(&held, "good", &client(1), issued(1, Duration::from_hours(1))).await;
        assert!(held.get(&Fingerprint::of("over")).await.is_none());
        assert!(held.get(&Fingerprint::of("good")).await.is_some());
    }

    #[tokio::test]
    async fn one_clients_tokens_do_not_make_others_forgotten() {
        const LENGTH: usize = 15 << 10;
        let (held, hour) = (Held::new(), Duration::from_hours(1));
        keep(&held, "quiet", &client(1), issued(LENGTH, hour)).await;
        for number in 0..BYTES / LENGTH {
            keep(&held, &number.to_string(), &client(2), issued(LENGTH, hour)).await;
        }
        held.tokens.run_pending_tasks().await;
        assert!(held.get(&Fingerprint::of("quiet")).await.is_some());
        assert!(held.tokens.weighted_size() <= (BYTES_OF_CLIENT + LENGTH + ENTRY) as u64);
        for host in 3..=40 {
            for number in 0..BYTES_OF_CLIENT / LENGTH {
                keep(&held, &format!("{host} {number}"), &client(host), issued(LENGTH, hour)).await;
            }
        }
        held.tokens.run_pending_tasks().await;
        assert!(held.tokens.weighted_size() <= BYTES as u64, "all are bounded");
    }
}
