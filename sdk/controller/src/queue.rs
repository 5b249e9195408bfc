//! The work queue of a controller: keys, each at most once, each worked on by at most one worker.
//!
//! A key that is added while it is being worked on is worked on again afterwards. Its size is bounded by the number of
//! objects, because a key is never queued twice.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    error::Error,
    iter::successors,
    panic::AssertUnwindSafe,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures::FutureExt as _;
use futures::future::join_all;
use portcullis_client::error_chain;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error, error_span, warn};

use super::backoff::Backoff;
use super::kind_scope::full_name;
use super::metrics::{Backlog, ReconcileMetrics, Reconciled};
use super::{BoxError, ControllerError, Stored};

/// An object that is due within this time counts as pending.
const SOON: Duration = Duration::from_secs(10);

/// Namespace and name of an object to reconcile. The namespace is empty for a cluster-scoped kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// The time of the next reconcile of an object: at its next change or that of something it owns or watches, and at the
/// latest after a given time.
///
/// It has the constructors of `kube::runtime::controller::Action`, which cannot be used here because kube keeps its
/// delay private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reconcile when something changes.
    AwaitChange,
    /// Reconcile when something changes, and after this time at the latest.
    Requeue(Duration),
}

impl Action {
    /// Reconciles when something changes.
    pub const fn await_change() -> Self {
        Self::AwaitChange
    }

    /// Reconciles when something changes, and after this time at the latest.
    pub const fn requeue(after: Duration) -> Self {
        Self::Requeue(after)
    }
}

/// The names of a controller and of its kind, for the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Names<'a> {
    pub(super) controller: &'a str,
    pub(super) kind: &'a str,
}

/// A work queue: keys, and when they are due.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
    backoff: Mutex<Backoff>,
    counted: OnceLock<ReconcileMetrics>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether to drop keys: no worker runs, and every object is enqueued again before one does.
    resting: bool,
    due: BTreeMap<(Instant, u64), Key>,
    at: HashMap<Key, (Instant, u64)>,
    running: HashSet<Key>,
    /// The time at which a key is due again that was added while it runs.
    again: HashMap<Key, Instant>,
    failures: HashMap<Key, u32>,
    sequence: u64,
}

// === impl Key ===

impl Key {
    /// Creates a key.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of a stored object.
    pub fn from_object(object: &impl Stored) -> Self {
        Self::new(object.namespace(), object.name())
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&full_name(&self.namespace, &self.name))
    }
}

// === impl Queue ===

impl Queue {
    /// An empty queue with these delays after failures.
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff: Mutex::new(backoff), ..Self::default() }
    }

    /// Sets the delays after failures.
    pub(super) fn back_off(&self, backoff: Backoff) {
        *self.backoff.lock().unwrap_or_else(PoisonError::into_inner) = backoff;
    }

    pub(super) fn backoff(&self) -> Backoff {
        *self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the reconciles of [`run`](Self::run) in these metrics.
    pub(super) fn count_in(&self, metrics: ReconcileMetrics) {
        // A controller that runs again sets the same metrics.
        _ = self.counted.set(metrics);
    }

    /// Counts the keys that wait for a worker, and all that are pending.
    pub(super) fn backlog(&self) -> Backlog {
        self.with(|state| {
            let until = |at| state.due.range(..=(at, u64::MAX)).count();
            let now = Instant::now();
            Backlog { due: until(now), pending: state.running.len() + until(now + SOON) }
        })
    }

    /// Requests a reconcile of `key` as soon as a worker is free.
    pub fn add(&self, key: Key) {
        self.add_after(key, Duration::ZERO);
    }

    /// Requests a reconcile of `key` after `delay`, or earlier if it is due earlier already.
    pub(super) fn add_after(&self, key: Key, delay: Duration) {
        self.with(|state| state.add(key, Instant::now() + delay));
        self.changed.notify_one();
    }

    /// Clears the queue and drops new keys until [`open`](Self::open). A follower never drains its queue, so it would
    /// grow without bound.
    pub(super) fn rest(&self) {
        self.with(|state| *state = State { resting: true, ..State::default() });
    }

    /// Accepts keys until the result is dropped. Keys of reconciles that were dropped do not count as running any more.
    pub(super) fn open(&self) -> Opened<'_> {
        self.with(|state| *state = State::default());
        Opened(self)
    }

    /// Returns the keys that were requested and have not started.
    #[cfg(test)]
    pub(super) fn asked(&self) -> Vec<Key> {
        self.with(|state| state.due.values().cloned().collect())
    }

    /// Runs `reconcile` for due keys, `workers` at a time, until `shutdown` is cancelled; then waits for those that
    /// run. Each runs in a span with these names and those of its object.
    pub(super) async fn run<F>(
        &self,
        workers: usize,
        shutdown: &CancellationToken,
        names: Names<'_>,
        reconcile: impl Fn(Key) -> F,
    ) where
        F: Future<Output = Result<Action, BoxError>>,
    {
        let worker = || async {
            while let Some(key) = self.next(shutdown).await {
                let (Names { controller, kind }, Key { namespace, name }) = (names, &key);
                // The level is that of errors, so that a filter for them keeps the names. In JSON, `name` is the span's
                // own.
                let span = error_span!("reconcile", controller, kind, namespace, object.name = name);
                self.reconcile(&key, names, reconcile(key.clone())).instrument(span).await;
            }
        };
        join_all((0..workers).map(|_| worker())).await;
    }

    /// Reconciles one key; logs and counts the result.
    async fn reconcile(&self, key: &Key, names: Names<'_>, reconcile: impl Future<Output = Result<Action, BoxError>>) {
        let began = Instant::now();
        // A panic fails this reconcile only: the worker goes on with other keys.
        let outcome = AssertUnwindSafe(reconcile).catch_unwind().await;
        let (next, result) = match &outcome {
            Ok(Ok(Action::AwaitChange)) => (Some(Action::await_change()), Reconciled::Success),
            Ok(Ok(next)) => (Some(*next), Reconciled::Requeue),
            Ok(Err(_)) => (None, Reconciled::Error),
            Err(_) => (None, Reconciled::Panic),
        };
        if let Some(counted) = self.counted.get() {
            counted.count(result, began.elapsed());
        }
        let retry_in = self.done(key, next).unwrap_or_default();
        let (Names { controller, kind }, Key { namespace, name }) = (names, key);
        match outcome {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                let mut causes = successors(Some(&*error as &(dyn Error + 'static)), |cause| (*cause).source());
                let is_mistake = causes.any(|cause| cause.downcast_ref().is_some_and(ControllerError::is_mistake));
                let error = error_chain(&*error);
                if is_mistake {
                    error!(
                        error,
                        controller,
                        kind,
                        namespace,
                        name,
                        ?retry_in,
                        "reconcile failed because of a bug in this controller; retrying, but only a fixed version helps"
                    );
                } else {
                    warn!(error, controller, kind, namespace, name, ?retry_in, "reconcile failed; retrying");
                }
            }
            Err(_) => error!(controller, kind, namespace, name, ?retry_in, "reconcile panicked; retrying"),
        }
    }

    /// The next key that is due; `None` on shutdown.
    async fn next(&self, shutdown: &CancellationToken) -> Option<Key> {
        loop {
            let (key, wake) = self.with(State::take);
            if shutdown.is_cancelled() {
                return None;
            }
            if let Some(key) = key {
                // Another key may be due: wake the next worker.
                self.changed.notify_one();
                return Some(key);
            }
            let timer = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = self.changed.notified() => {}
                () = timer => {}
            }
        }
    }

    /// Takes note of a reconcile that has ended, without `next` after a failure. Returns the delay that it asked for.
    fn done(&self, key: &Key, next: Option<Action>) -> Option<Duration> {
        let backoff = self.backoff();
        let delay = self.with(|state| {
            state.running.remove(key);
            let mut due = state.again.remove(key);
            let delay = match next {
                Some(Action::AwaitChange) => {
                    state.failures.remove(key);
                    None
                }
                Some(Action::Requeue(delay)) => {
                    state.failures.remove(key);
                    Some(delay)
                }
                None => {
                    let failures = state.failures.entry(key.clone()).or_default();
                    *failures = failures.saturating_add(1);
                    // A change during the reconcile may fix it, so it shortens a long backoff. Not to zero: a failing
                    // reconcile may cause such changes itself.
                    let delay = backoff.delay(*failures);
                    let delay = if due.take().is_some() { delay.min(backoff.max_after_change) } else { delay };
                    Some(delay)
                }
            };
            let asked = delay.map(|delay| Instant::now() + delay);
            if let Some(at) = [due, asked].into_iter().flatten().min() {
                state.add(key.clone(), at);
            }
            delay
        });
        self.changed.notify_one();
        delay
    }

    fn with<R>(&self, body: impl FnOnce(&mut State) -> R) -> R {
        body(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Opened ===

/// Keeps a queue open until it is dropped.
pub(super) struct Opened<'a>(&'a Queue);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.rest();
    }
}

// === impl State ===

impl State {
    fn add(&mut self, key: Key, at: Instant) {
        if self.resting {
            return;
        }
        if self.running.contains(&key) {
            let due = self.again.entry(key).or_insert(at);
            *due = (*due).min(at);
            return;
        }
        if let Some(current) = self.at.get(&key) {
            if current.0 <= at {
                return;
            }
            self.due.remove(&current.clone());
        }
        self.sequence += 1;
        self.due.insert((at, self.sequence), key.clone());
        self.at.insert(key, (at, self.sequence));
    }

    /// The first key that is due, marked as running; otherwise when the next one will be.
    fn take(&mut self) -> (Option<Key>, Option<Instant>) {
        let Some(first) = self.due.first_entry() else {
            return (None, None);
        };
        let at = first.key().0;
        if at > Instant::now() {
            return (None, Some(at));
        }
        let key = first.remove();
        self.at.remove(&key);
        self.running.insert(key.clone());
        (Some(key), None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;
    use crate::metrics::ReconcileFamilies;
    use portcullis_metrics::Metrics;

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_queued_once_and_the_earliest_wish_counts() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        let start = Instant::now();
        queue.add_after(key("a"), Duration::from_secs(9));
        queue.add_after(key("a"), Duration::from_secs(3));
        queue.add_after(key("a"), Duration::from_secs(6));
        assert_eq!(queue.next(&stop).await, Some(key("a")));
        assert_eq!(start.elapsed().as_secs(), 3);
        queue.done(&key("a"), Some(Action::await_change()));
        assert_eq!(queue.with(|state| state.due.len() + state.at.len() + state.running.len()), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn delays_can_be_said_after_the_queue_was_handed_out() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        queue.back_off(Backoff { min: Duration::from_secs(40), ..Backoff::default() });
        queue.add(key("a"));
        assert_eq!(queue.next(&stop).await, Some(key("a")));
        let start = Instant::now();
        queue.done(&key("a"), None);
        assert_eq!(queue.next(&stop).await, Some(key("a")));
        assert_eq!(start.elapsed().as_secs(), 40);
    }

    #[tokio::test(start_paused = true)]
    async fn a_resting_queue_keeps_no_key_and_no_dropped_reconcile() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        queue.rest();
        queue.add(key("a"));
        assert_eq!(queue.with(|state| state.due.len() + state.at.len()), 0);
        let opened = queue.open();
        queue.add(key("a"));
        // A worker that is dropped during a reconcile does not report its key.
        assert_eq!(queue.next(&stop).await, Some(key("a")));
        drop(opened);
        let _opened = queue.open();
        queue.add(key("a"));
        assert_eq!(queue.next(&stop).await, Some(key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_it_runs_runs_once_more_afterwards() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        queue.add(key("a"));
        assert_eq!(queue.next(&stop).await, Some(key("a")));
        queue.add(key("a"));
        let nothing = tokio::time::timeout(Duration::from_secs(1), queue.next(&stop)).await;
        assert!(nothing.is_err(), "it is running");
        queue.done(&key("a"), Some(Action::await_change()));
        assert_eq!(queue.next(&stop).await, Some(key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_to_five_minutes_until_a_success() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        queue.add(key("a"));
        let mut waits = Vec::new();
        for _ in 0..12 {
            let start = Instant::now();
            queue.next(&stop).await;
            waits.push(start.elapsed().as_millis());
            queue.done(&key("a"), None);
        }
        assert_eq!(waits[..5], [0, 500, 1000, 2000, 4000]);
        assert_eq!(waits[11], 300_000);
        queue.next(&stop).await;
        queue.done(&key("a"), Some(Action::requeue(Duration::from_secs(7))));
        let start = Instant::now();
        queue.next(&stop).await;
        assert_eq!(start.elapsed().as_secs(), 7);
        queue.done(&key("a"), None);
        let start = Instant::now();
        queue.next(&stop).await;
        assert_eq!(start.elapsed().as_millis(), 500);
    }

    /// The change may fix the failure, or come from the failing reconcile itself.
    #[tokio::test(start_paused = true)]
    async fn a_change_during_a_failing_reconcile_shortens_the_backoff() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        queue.add(key("a"));
        let mut waits = Vec::new();
        for _ in 0..12 {
            let start = Instant::now();
            queue.next(&stop).await;
            waits.push(start.elapsed().as_millis());
            queue.add(key("a"));
            queue.done(&key("a"), None);
        }
        assert_eq!(waits[..7], [0, 500, 1000, 2000, 4000, 5000, 5000]);
        // A change after the reconcile does not wait at all.
        let start = Instant::now();
        queue.add(key("a"));
        queue.next(&stop).await;
        assert_eq!(start.elapsed().as_millis(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn reconciles_are_counted_by_result_and_only_due_keys_wait() {
        let (metrics, queue, stop) = (Metrics::new(), Arc::new(Queue::default()), CancellationToken::new());
        queue.back_off(Backoff { min: Duration::from_mins(1), ..Backoff::default() });
        let asked = Arc::downgrade(&queue);
        let families = metrics.families::<ReconcileFamilies>();
        queue.count_in(families.of("orders", Box::new(move || Some(asked.upgrade()?.backlog()))));
        for name in ["waits", "asks", "fails", "panics"] {
            queue.add(key(name));
        }
        queue.add_after(key("later"), Duration::from_mins(1));
        let line = |what: &str| metrics.encode().lines().find_map(|line| line.strip_prefix(what).map(str::to_owned));
        let depth = r#"portcullis_reconcile_queue_depth{controller="orders"} "#;
        assert_eq!(line(depth).as_deref(), Some("4"));
        let count = AtomicUsize::new(0);
        let run = queue.run(1, &stop, Names::default(), |key| {
            if count.fetch_add(1, Ordering::SeqCst) == 3 {
                stop.cancel();
            }
            async move {
                tokio::time::sleep(Duration::from_secs(2)).await;
                match key.name.as_str() {
                    "waits" => Ok(Action::await_change()),
                    "asks" => Ok(Action::requeue(Duration::from_mins(1))),
                    "fails" => Err("no luck".into()),
                    _ => panic!("no luck at all"),
                }
            }
        });
        run.await;
        for result in ["success", "requeue", "error", "panic"] {
            let counted = format!(r#"portcullis_reconciles_total{{controller="orders",result="{result}"}} "#);
            assert_eq!(line(&counted).as_deref(), Some("1"), "{result}");
        }
        assert_eq!(line(r#"portcullis_reconcile_duration_seconds_sum{controller="orders"} "#).as_deref(), Some("8.0"));
        assert_eq!(line(depth).as_deref(), Some("0"), "a backoff and a wish for later are not due");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_pending_from_ten_seconds_before_it_is_due() {
        let (metrics, queue, stop) = (Metrics::new(), Arc::new(Queue::default()), CancellationToken::new());
        let asked = Arc::downgrade(&queue);
        let families = metrics.families::<ReconcileFamilies>();
        drop(families.of("orders", Box::new(move || Some(asked.upgrade()?.backlog()))));
        let pending = || {
            let text = metrics.encode();
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("portcullis_reconciles_pending{controller=\"orders\"} "));
            line.unwrap().parse::<usize>().unwrap()
        };
        assert_eq!(pending(), 0, "nothing was asked for");
        queue.add_after(key("a"), Duration::from_secs(11));
        assert_eq!(pending(), 0, "it is due later than soon");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(pending(), 1, "it is due soon");
        queue.add(key("b"));
        assert_eq!(queue.next(&stop).await, Some(key("b")));
        queue.add(key("b"));
        assert_eq!(pending(), 2, "it runs, and is asked for again: one object");
        queue.done(&key("b"), Some(Action::await_change()));
        assert_eq!(pending(), 2, "it is asked for again");
        assert_eq!(queue.next(&stop).await, Some(key("b")));
        queue.done(&key("b"), Some(Action::requeue(Duration::from_mins(1))));
        assert_eq!(queue.next(&stop).await, Some(key("a")));
        assert_eq!(pending(), 1, "it runs");
        queue.done(&key("a"), None);
        assert_eq!(pending(), 1, "it failed and is retried soon");
        queue.rest();
        assert_eq!(pending(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn workers_share_the_queue_and_stop_on_shutdown() {
        let (queue, stop) = (Arc::new(Queue::default()), CancellationToken::new());
        for name in ["a", "b", "c", "d", "e"] {
            queue.add(key(name));
        }
        let (now, most, total) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let run = queue.run(2, &stop, Names::default(), |_| async {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            if total.fetch_add(1, Ordering::SeqCst) == 4 {
                stop.cancel();
            }
            Ok(Action::await_change())
        });
        tokio::time::timeout(Duration::from_mins(1), run).await.unwrap();
        assert_eq!((most.into_inner(), total.into_inner()), (2, 5));
    }
}
