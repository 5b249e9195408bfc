//! The provider's keys as they are known now: fetched when they are first needed, renewed beside the requests, and kept
//! while the provider is down.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{CACHE_CONTROL, HeaderMap};
use tokio::time::Instant;

use crate::discovery;
use crate::fetch::{FetchError, Fetcher};
use crate::flight::{Flight, Flights};
use crate::keys::KeySet;
use crate::refusal::Refusal;

/// The time for which keys count as fresh by default, and its bounds where the provider sets it.
const FRESH: Duration = Duration::from_mins(15);
const FRESHEST: Duration = Duration::from_mins(1);
const STALEST: Duration = Duration::from_hours(24);
/// The pause after a first failure; it doubles with each further one, up to the longest.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The shortest time between two fetches because of an unknown `kid`: any client can invent one.
const UNKNOWN_KID_PAUSE: Duration = Duration::from_secs(10);
/// The time that a request waits for keys before it gets a 503.
const WAIT: Duration = Duration::from_secs(5);

/// The keys of one provider.
#[derive(Debug)]
pub(crate) struct Provider {
    fetcher: Arc<Fetcher>,
    issuer: String,
    /// Where the keys are; empty where the issuer's metadata says that.
    jwks_url: String,
    known: ArcSwap<Known>,
    flights: Flights<(), ()>,
    /// When an unknown `kid` may make the keys be fetched again.
    unknown_kid: Mutex<Option<Instant>>,
    started: Instant,
    /// When the keys are to be fetched, in milliseconds after `started`.
    due: AtomicU64,
}

/// The result of the last fetch.
#[derive(Debug, Default)]
struct Known {
    keys: Option<Arc<KeySet>>,
    /// Fetches that failed in a row.
    failures: u32,
}

impl Provider {
    pub(crate) fn new(fetcher: Arc<Fetcher>, issuer: &str, jwks_url: &str) -> Self {
        Self {
            fetcher,
            issuer: issuer.to_owned(),
            jwks_url: jwks_url.to_owned(),
            known: ArcSwap::default(),
            flights: Flights::new(1),
            unknown_kid: Mutex::default(),
            started: Instant::now(),
            due: AtomicU64::new(0),
        }
    }

    /// The keys that are known. Has them renewed, beside the request, when that is due.
    pub(crate) fn keys(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        if self.is_due() {
            // It runs without anybody who waits for it.
            drop(self.fetch());
        }
        self.known.load().keys.clone()
    }

    /// The keys, waited for where none are known.
    ///
    /// # Errors
    /// The provider was never reached, and is not now.
    pub(crate) async fn first_keys(self: &Arc<Self>) -> Result<Arc<KeySet>, Refusal> {
        if let Some(keys) = self.keys() {
            return Ok(keys);
        }
        // A fetch that is under way is waited for, one that failed just now is not repeated.
        if self.is_due() || self.flights.is_any() {
            self.wait().await;
        }
        self.known.load().keys.clone().ok_or_else(|| {
            let due = Duration::from_millis(self.due.load(Relaxed));
            let retry = due.saturating_sub(self.started.elapsed());
            Refusal::Unavailable { reason: "the keys of the OIDC provider were never fetched".to_owned(), retry }
        })
    }

    /// The keys, fetched again since a token names one that they do not have.
    pub(crate) async fn keys_after_unknown_kid(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        if self.may_look_for_kid() || self.flights.is_any() {
            self.wait().await;
        }
        self.known.load().keys.clone()
    }

    fn may_look_for_kid(&self) -> bool {
        let mut next = self.unknown_kid.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let may = next.is_none_or(|next| now >= next);
        if may {
            *next = Some(now + UNKNOWN_KID_PAUSE);
        }
        may
    }

    fn is_due(&self) -> bool {
        self.elapsed() >= self.due.load(Relaxed)
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn wait(self: &Arc<Self>) {
        if let Some(flight) = self.fetch() {
            let _ = tokio::time::timeout(WAIT, flight).await;
        }
    }

    /// The fetch that is under way, or a new one.
    fn fetch(self: &Arc<Self>) -> Option<Flight<()>> {
        let this = Arc::clone(self);
        self.flights.join((), || {
            Some(async move {
                let fetched = this.get().await;
                this.take(fetched);
            })
        })
    }

    async fn get(&self) -> Result<(KeySet, Duration), FetchError> {
        let url = if self.jwks_url.is_empty() { self.discover().await? } else { self.jwks_url.clone() };
        let fail = |problem| FetchError::new(&url, problem);
        let answer = self.fetcher.get(&self.fetcher.url(&url).map_err(fail)?).await?;
        let fresh = fresh(answer.headers());
        Ok((KeySet::parse(answer.into_body()).map_err(fail)?, fresh))
    }

    async fn discover(&self) -> Result<String, FetchError> {
        let url = discovery::metadata_url(&self.issuer);
        let fail = |problem| FetchError::new(&url, problem);
        let answer = self.fetcher.get(&self.fetcher.url(&url).map_err(fail)?).await?;
        discovery::jwks_url(answer.body(), &self.issuer).map_err(fail)
    }

    fn take(&self, fetched: Result<(KeySet, Duration), FetchError>) {
        let Known { keys: before, failures } = &**self.known.load();
        let (known, pause) = match fetched {
            Ok((keys, fresh)) => {
                // Where nothing changed, the tokens that were verified stay known.
                let same = before.clone().filter(|before| before.document == keys.document);
                let keys = same.unwrap_or_else(|| {
                    tracing::info!(issuer = self.issuer, keys = keys.len(), "the keys of the OIDC provider are in use");
                    Arc::new(keys)
                });
                (Known { keys: Some(keys), failures: 0 }, fresh)
            }
            Err(error) => {
                let pause = PAUSE.saturating_mul(1 << (*failures).min(10)).min(LONGEST_PAUSE);
                let kept = before.is_some();
                tracing::warn!(%error, kept, ?pause, "cannot fetch the keys of the OIDC provider; trying again after the pause");
                (Known { keys: before.clone(), failures: failures.saturating_add(1) }, pause)
            }
        };
        self.known.store(Arc::new(known));
        let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        self.due.store(self.elapsed().saturating_add(pause), Relaxed);
    }
}

/// The time for which an answer with these headers is fresh, within our bounds.
fn fresh(headers: &HeaderMap) -> Duration {
    let directives = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut directives =
        directives.flat_map(|value| value.split(',')).map(|directive| directive.trim().to_ascii_lowercase());
    let age = directives.find_map(|directive| directive.strip_prefix("max-age=")?.trim_matches('"').parse().ok());
    age.map_or(FRESH, Duration::from_secs).clamp(FRESHEST, STALEST)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn keys_are_fresh_for_as_long_as_the_provider_says_within_bounds() {
        for (values, seconds) in [
            (&[][..], 900),
            (&["public, Max-Age=3600"], 3600),
            (&["public", "max-age=\"600\""], 600),
            (&["no-store"], 900),
            (&["max-age=0"], 60),
            (&["max-age=31536000"], 86_400),
            (&["max-age=never"], 900),
        ] {
            let headers = values.iter().map(|value| (CACHE_CONTROL, HeaderValue::from_static(value)));
            assert_eq!(fresh(&headers.collect()).as_secs(), seconds, "{values:?}");
        }
    }
}
