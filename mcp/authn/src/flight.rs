//! One call for all who wait for the same answer.
//!
//! A cache such as moka has that as well, and keeps the answer, which nobody asks for here. It has no limit of calls, and its call ends with the caller
//! who began it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

/// The calls that are under way, by what they ask for. Each runs to its end even if nobody waits for it any more: its answer is kept.
#[derive(Debug)]
pub(crate) struct Flights<K, T> {
    under_way: Arc<Mutex<UnderWay<K, T>>>,
    limit: usize,
}

type UnderWay<K, T> = HashMap<K, Flight<T>>;

/// One call; `None` when it panicked.
pub(crate) type Flight<T> = Shared<BoxFuture<'static, Option<T>>>;

impl<K: Clone + Eq + Hash + Send + 'static, T: Clone + Send + Sync + 'static> Flights<K, T> {
    /// At most `limit` at once.
    pub(crate) fn new(limit: usize) -> Self {
        Self { under_way: Arc::default(), limit }
    }

    /// Whether a call is under way.
    pub(crate) fn is_any(&self) -> bool {
        !lock(&self.under_way).is_empty()
    }

    /// Joins the call for `key`, which is started where there is none. `None`: too many others are under way, or `start` has no leave.
    pub(crate) fn join<F>(&self, key: K, start: impl FnOnce() -> Option<F>) -> Option<Flight<T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut under_way = lock(&self.under_way);
        if let Some(flight) = under_way.get(&key) {
            return Some(flight.clone());
        }
        if under_way.len() >= self.limit {
            return None;
        }
        let (call, landed) = (start()?, Landed { key: key.clone(), under_way: Arc::clone(&self.under_way) });
        let task = tokio::spawn(async move {
            let _landed = landed;
            call.await
        });
        let flight = task.map(Result::ok).boxed().shared();
        under_way.insert(key, flight.clone());
        Some(flight)
    }
}

fn lock<K, T>(under_way: &Mutex<UnderWay<K, T>>) -> MutexGuard<'_, UnderWay<K, T>> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes room for the next call, also after a panic.
struct Landed<K: Eq + Hash, T> {
    key: K,
    under_way: Arc<Mutex<UnderWay<K, T>>>,
}

impl<K: Eq + Hash, T> Drop for Landed<K, T> {
    fn drop(&mut self) {
        lock(&self.under_way).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn all_who_ask_at_once_share_one_call_and_the_next_starts_another() {
        let (flights, calls, go) = (Flights::new(1), Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let join = |key: u8| {
            let (calls, go) = (Arc::clone(&calls), Arc::clone(&go));
            let call = async move {
                go.notified().await;
                calls.fetch_add(1, Relaxed)
            };
            flights.join(key, || Some(call))
        };
        let (first, second) = (join(1).unwrap(), join(1).unwrap());
        assert!(join(2).is_none(), "one at once");
        assert!(Flights::<u8, u8>::new(1).join(1, || None::<Ready<u8>>).is_none(), "no leave");
        go.notify_one();
        assert_eq!((first.await, second.await), (Some(0), Some(0)));
        go.notify_one();
        assert_eq!(join(1).unwrap().await, Some(1));
    }

    #[tokio::test]
    async fn a_call_that_panics_does_not_keep_the_next_from_starting() {
        let flights = Flights::<u8, u8>::new(1);
        assert_eq!(flights.join(1, || Some(async { panic!("as it happens") })).unwrap().await, None);
        assert_eq!(flights.join(1, || Some(ready(7))).unwrap().await, Some(7));
    }
}
