//! The credentials that are in use, so that one is asked for once and not for every call.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use mcp_middleware::Fingerprint;
use mcp_store::{Bound, Client, Share, Shares};
use moka::Expiry;
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use tokio::time::Instant;

use crate::failure::Failure;

/// The bytes that are kept in all and of one client: one that gets tokens without end does not make others' forgotten.
const BYTES: usize = 32 << 20;
const BYTES_OF_CLIENT: usize = 1 << 20;
/// The bytes that a credential counts beside its own: so the number of the smallest is bounded, too.
const ENTRY: usize = 1 << 10;
/// The longest token, in bytes: few servers read longer headers.
pub(crate) const LONGEST: usize = 16 << 10;
/// A credential is not used any more so long before it expires, or a tenth of its time: the server's clock may be ahead.
const SKEW: Duration = Duration::from_secs(30);
/// A credential that the server does not take is kept for so long: another one would do no better.
const FRESH: Duration = Duration::from_secs(10);

/// A credential that can be kept.
pub(crate) trait Credential: Clone + PartialEq + Send + Sync + 'static {
    /// The bytes that it takes.
    fn bytes(&self) -> usize;
}

/// The header of a token.
impl Credential for HeaderValue {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// A credential that a provider gave.
#[derive(Clone)]
pub(crate) struct Given<T = HeaderValue> {
    pub(crate) credential: T,
    /// For how long it is used.
    pub(crate) time: Duration,
}

/// The part of a credential's time in which it is used.
pub(crate) fn usable(valid: Duration) -> Duration {
    valid.saturating_sub(SKEW.min(valid / 10))
}

/// The credentials that are in use. Whoever asks for one that is on its way waits for it.
pub(crate) struct Held<T = HeaderValue> {
    entries: Cache<Fingerprint, Arc<Entry<T>>>,
    shares: Arc<Shares>,
}

struct Entry<T> {
    given: Given<T>,
    since: Instant,
    /// `None`: it is more than its client may have kept, and goes to those alone who wait for it.
    share: Option<Share>,
}

impl<T: Credential> Held<T> {
    pub(crate) fn new() -> Self {
        let entries = Cache::builder()
            .max_capacity(BYTES as u64)
            .weigher(|_, entry: &Arc<Entry<T>>| u32::try_from(entry.given.bytes()).unwrap_or(u32::MAX))
            .eviction_policy(EvictionPolicy::lru())
            .expire_after(Until)
            .build();
        // The cache gives a share back some time after it has dropped the entry.
        Self { entries, shares: Shares::new(2 * BYTES, BYTES_OF_CLIENT) }
    }

    pub(crate) async fn get(&self, key: &Fingerprint) -> Option<T> {
        self.entries.get(key).await.map(|entry| entry.given.credential.clone())
    }

    /// The credential of `key`, for which `ask` is run by one of those who want it at once. It counts for the client of that one.
    pub(crate) async fn get_or(
        &self,
        key: Fingerprint,
        client: &Client,
        ask: impl Future<Output = Result<Given<T>, Failure>>,
    ) -> Result<T, Failure> {
        let ask = async {
            let given = ask.await?;
            let share = self.shares.take(client, given.bytes());
            Ok(Arc::new(Entry { given, since: Instant::now(), share }))
        };
        let entry = self.entries.try_get_with(key, ask).await.map_err(|failure: Arc<Failure>| (*failure).clone())?;
        if entry.share.is_none() {
            // The cache would look for entries that are over once a second, and drop others before.
            self.entries.invalidate(&key).await;
        }
        Ok(entry.given.credential.clone())
    }

    /// Forgets a credential that the server does not take, unless there is another one by now.
    pub(crate) async fn forget(&self, key: Fingerprint, refused: T) {
        let is_stale = |entry: &Entry<T>| entry.given.credential == refused && entry.since.elapsed() >= FRESH;
        if self.entries.get(&key).await.is_some_and(|entry| is_stale(&entry)) {
            self.entries.invalidate(&key).await;
        }
    }

    pub(crate) fn bound(&self, name: &'static str) -> Bound {
        let used = usize::try_from(self.entries.weighted_size()).unwrap_or(BYTES);
        Bound { name, used, limit: BYTES }
    }
}

impl<T: Credential> Given<T> {
    fn bytes(&self) -> usize {
        ENTRY + self.credential.bytes()
    }
}

/// Ends a credential in time.
struct Until;

impl<T> Expiry<Fingerprint, Arc<Entry<T>>> for Until {
    fn expire_after_create(&self, _: &Fingerprint, entry: &Arc<Entry<T>>, _: std::time::Instant) -> Option<Duration> {
        Some(entry.given.time)
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

    fn given(length: usize, time: Duration) -> Given {
        Given { credential: HeaderValue::try_from("x".repeat(length)).unwrap(), time }
    }

    async fn keep(held: &Held, name: &str, client: &Client, given: Given) {
        held.get_or(Fingerprint::of(name), client, async { Ok(given) }).await.unwrap();
    }

    #[tokio::test]
    async fn all_who_ask_at_once_share_one_answer_and_its_failure() {
        let (held, asked, client) = (Held::<HeaderValue>::new(), AtomicUsize::new(0), client(1));
        let failure = || Failure::Refused("no".to_owned());
        for (name, result) in [("good", Ok(given(1, Duration::from_hours(1)))), ("bad", Err(failure()))] {
            let ask = || {
                held.get_or(Fingerprint::of(name), &client, async {
                    asked.fetch_add(1, Relaxed);
                    tokio::task::yield_now().await;
                    result.clone()
                })
            };
            let answers = join_all((0..50).map(|_| ask())).await;
            assert_eq!(asked.swap(0, Relaxed), 1, "{name}");
            let expected = result.clone().map(|given| given.credential);
            assert!(answers.iter().all(|answer| *answer == expected), "{name}");
        }
        assert!(held.get(&Fingerprint::of("good")).await.is_some());
        assert!(held.get(&Fingerprint::of("bad")).await.is_none(), "the next one asks again");
    }

    #[tokio::test]
    async fn a_token_is_forgotten_in_time() {
        let held = Held::<HeaderValue>::new();
        keep(&held, "over", &client(1), given(1, Duration::ZERO)).await;
        keep(&held, "good", &client(1), given(1, Duration::from_hours(1))).await;
        keep(&held, "for ever", &client(1), given(1, Duration::from_secs(u64::MAX))).await;
        assert!(held.get(&Fingerprint::of("for ever")).await.is_some());
        assert!(held.get(&Fingerprint::of("over")).await.is_none());
        assert!(held.get(&Fingerprint::of("good")).await.is_some());
    }

    #[tokio::test]
    async fn one_clients_tokens_do_not_make_others_forgotten() {
        const LENGTH: usize = 15 << 10;
        let (held, hour) = (Held::<HeaderValue>::new(), Duration::from_hours(1));
        keep(&held, "quiet", &client(1), given(LENGTH, hour)).await;
        for number in 0..BYTES / LENGTH {
            keep(&held, &number.to_string(), &client(2), given(LENGTH, hour)).await;
        }
        held.entries.run_pending_tasks().await;
        assert!(held.get(&Fingerprint::of("quiet")).await.is_some());
        assert!(held.entries.weighted_size() <= (BYTES_OF_CLIENT + LENGTH + ENTRY) as u64);
        for host in 3..=40 {
            for number in 0..BYTES_OF_CLIENT / LENGTH {
                keep(&held, &format!("{host} {number}"), &client(host), given(LENGTH, hour)).await;
            }
        }
        held.entries.run_pending_tasks().await;
        assert!(held.entries.weighted_size() <= BYTES as u64, "all are bounded");
    }
}
