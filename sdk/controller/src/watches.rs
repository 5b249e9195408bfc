//! Watches that fill the stores.

use std::{
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt as _};
use kube::{
    Client, Resource, ResourceExt as _,
    runtime::watcher::{self, Event},
};
use prometheus_client::metrics::counter::Counter;
use serde::de::DeserializeOwned;
use tokio::{sync::watch, time::sleep};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tracing::{Dispatch, Level, dispatcher::get_default, instrument::WithSubscriber as _};

use super::retries::Retries;
use super::{Change, KindScope, Store, Stored};
use portcullis_metrics::Metrics;

use super::metrics::watch_panics;
use portcullis_lease::Scope;

/// Objects per page of a list: what is held in full at any time.
const PAGE: u32 = 200;
/// A watch that failed works again when it has not failed for this long after its list, or has brought a change: the
/// right to list does not include the right to watch.
const SETTLED: Duration = Duration::from_secs(5);

/// The namespaces to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespaces(Vec<String>);

/// The watches of a controller, or of several that share their stores: starts them, and waits until every one has
/// completed its first list.
pub struct Watches {
    client: Client,
    namespaces: Namespaces,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// No watch outlives these.
    _end: DropGuard,
    /// The number of watches that have not delivered their first list.
    waiting: watch::Sender<usize>,
    undelivered: Undelivered,
    metrics: Metrics,
}

/// Counts the changes that a store may have and whose callbacks have not returned.
#[derive(Clone, Debug, Default)]
pub(super) struct Undelivered(Arc<AtomicUsize>);

/// One watch, and the callbacks for its events.
struct Watched<T, R, C> {
    /// The namespace; empty for all.
    watch: String,
    retries: Retries,
    store: Arc<Store<T>>,
    reduce: R,
    changed: C,
    undelivered: Undelivered,
    panics: Counter,
}

impl Namespaces {
    /// Parses a comma-separated list of namespaces; an empty one means all of them.
    pub fn parse(list: &str) -> Self {
        let mut namespaces: Vec<String> =
            list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        namespaces.sort();
        namespaces.dedup();
        Self(namespaces)
    }

    /// The namespaces of an operator with this scope: the one that it is restricted to, or all.
    pub fn from_scope(scope: &Scope) -> Self {
        Self(scope.restricted_to().map(str::to_owned).into_iter().collect())
    }

    /// The watches that cover them: a namespace each, or one for all (""). A kind that lives in no namespace has one
    /// watch.
    fn watches<S: KindScope>(&self) -> Vec<String> {
        if self.0.is_empty() || !S::NAMESPACED { vec![String::new()] } else { self.0.clone() }
    }
}

impl Undelivered {
    /// Whether there are any.
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    fn until<R>(&self, callback: impl FnOnce() -> R) -> R {
        self.0.fetch_add(1, Ordering::SeqCst);
        let result = callback();
        self.0.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

impl Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches").field("namespaces", &self.namespaces).finish_non_exhaustive()
    }
}

impl Watches {
    /// Starts no watch yet. All watches end when `stop` is cancelled or this is dropped.
    pub fn new(client: Client, namespaces: Namespaces, stop: CancellationToken) -> Self {
        let (tasks, waiting, stop) = (TaskTracker::new(), watch::Sender::new(0), stop.child_token());
        let (end, undelivered, metrics) = (stop.clone().drop_guard(), Undelivered::default(), Metrics::new());
        Self { client, namespaces, tasks, _end: end, stop, waiting, undelivered, metrics }
    }

    /// Counts panics of callbacks in these metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Watches a kind and fills `store` with what `reduce` keeps of each object. `K` is a kind itself for whole
    /// objects, `PartialObjectMeta<K>` for the metadata only, or `DeserializeGuard<K>` for custom resources, so that an
    /// object that does not decode does not stop the watch.
    ///
    /// Nor does a panic in `reduce` or `changed`: it is logged and counted (`portcullis_watch_panics_total`). Otherwise
    /// a user who can create such an object could take down the process, whose webhooks the cluster depends on. If
    /// `reduce` panics, the store keeps the object as it was until the next list.
    ///
    /// A failed watch is retried after pauses of up to half a minute, or of up to two minutes if the API server refuses
    /// it. The log says that it fails, which right to grant, and when it works again.
    pub fn follow<K, T>(
        &self,
        config: watcher::Config,
        store: Arc<Store<T>>,
        reduce: impl Fn(K) -> T + Clone + Send + 'static,
        changed: impl Fn(&Change<T>) + Clone + Send + 'static,
    ) where
        K: Resource<DynamicType = (), Scope: KindScope> + DeserializeOwned + Clone + Debug + Send + 'static,
        T: Stored,
    {
        for watch in self.namespaces.watches::<K::Scope>() {
            let api = K::Scope::api::<K>(self.client.clone(), &watch);
            let stream = portcullis_client::watched(api, config.clone());
            let kind = K::kind(&()).into_owned();
            let panics = watch_panics(&self.metrics, &kind);
            let resource = [K::plural(&()), K::group(&())].join(".").trim_end_matches('.').to_owned();
            let retries = Retries::new(kind, resource, watch.clone());
            let (store, reduce, changed) = (store.clone(), reduce.clone(), changed.clone());
            let undelivered = self.undelivered.clone();
            self.start(stream, Watched { watch, retries, store, reduce, changed, undelivered, panics });
        }
    }

    /// Waits until every watch started so far has completed its first list; before that, everything looks absent.
    /// Returns `false` on shutdown.
    pub async fn ready(&self) -> bool {
        let mut waiting = self.waiting.subscribe();
        tokio::select! {
            () = self.stop.cancelled() => false,
            result = waiting.wait_for(|waiting| *waiting == 0) => result.is_ok(),
        }
    }

    /// Counts the changes that the stores have and whose callbacks have not returned.
    pub(super) fn undelivered(&self) -> Undelivered {
        self.undelivered.clone()
    }

    /// Waits until every watch has ended, after `stop`.
    pub async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn start<K, T, R, C>(
        &self,
        stream: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
        mut watched: Watched<T, R, C>,
    ) where
        K: Resource<DynamicType = ()> + Send + 'static,
        T: Stored,
        R: Fn(K) -> T + Send + 'static,
        C: Fn(&Change<T>) + Send + 'static,
    {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let (waiting, stop) = (self.waiting.clone(), self.stop.clone());
        let work = async move {
            let mut stream = std::pin::pin!(stream);
            let (mut is_first_list, mut is_listed) = (true, false);
            loop {
                let event = tokio::select! {
                    event = stream.next().with_subscriber(log_of_watches()) => event,
                    // A list that has no answer yet is neither a success nor a failure.
                    () = sleep(SETTLED), if is_listed && watched.retries.is_failing() => {
                        watched.retries.recovered();
                        continue;
                    }
                };
                match event {
                    None => return,
                    Some(Err(error)) => {
                        is_listed = false;
                        sleep(watched.retries.failed(&error)).await;
                    }
                    Some(Ok(event)) => {
                        if matches!(event, Event::Apply(_) | Event::Delete(_)) {
                            watched.retries.recovered();
                        }
                        is_listed = matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_));
                        watched.take(event);
                        if is_listed && std::mem::take(&mut is_first_list) {
                            waiting.send_modify(|waiting| *waiting -= 1);
                        }
                    }
                }
            }
        };
        self.tasks.spawn(async move { stop.run_until_cancelled(work).await });
    }
}

impl<T: Stored, R, C: Fn(&Change<T>)> Watched<T, R, C> {
    fn take<K: Resource>(&self, event: Event<K>)
    where
        R: Fn(K) -> T,
    {
        let Self { watch, store, .. } = self;
        self.undelivered.until(|| match event {
            Event::Init => store.list_begins(watch),
            Event::InitApply(object) => {
                if let Ok(object) = self.reduced(object) {
                    store.listed(watch, object);
                }
            }
            Event::InitDone => store.list_ends(watch).iter().for_each(|change| self.call_back(change)),
            Event::Apply(object) => {
                if let Ok(object) = self.reduced(object) {
                    self.call_back(&store.delivered(watch, object));
                }
            }
            Event::Delete(object) => {
                let change = match self.reduced(object) {
                    Ok(object) => store.deleted(watch, &object),
                    Err((namespace, name)) => {
                        store.get(&namespace, &name).and_then(|known| store.deleted(watch, &known))
                    }
                };
                if let Some(change) = change {
                    self.call_back(&change);
                }
            }
        });
    }

    /// Returns the stored form of an object, or its namespace and name if `reduce` panics.
    fn reduced<K: Resource>(&self, object: K) -> Result<T, (String, String)>
    where
        R: Fn(K) -> T,
    {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let reduced = catch_unwind(AssertUnwindSafe(|| (self.reduce)(object)));
        reduced.map_err(|_| {
            self.panicked(&namespace, &name);
            (namespace, name)
        })
    }

    fn call_back(&self, change: &Change<T>) {
        if catch_unwind(AssertUnwindSafe(|| (self.changed)(change))).is_err() {
            let about = change.new.as_ref().or(change.old.as_ref());
            let (namespace, name) = about.map_or(("", ""), |about| (about.namespace(), about.name()));
            self.panicked(namespace, name);
        }
    }

    /// Logs and counts a panic. Its message, which may contain secrets, is printed by the panic hook alone.
    fn panicked(&self, namespace: &str, name: &str) {
        self.panics.inc();
        let kind = &self.retries.kind;
        tracing::error!(kind, namespace, name, "a callback of this watch panicked; the watch goes on");
    }
}

/// Silences kube's watcher, unless its details are asked for: it logs every refused attempt, which is logged here once.
fn log_of_watches() -> Dispatch {
    if tracing::enabled!(target: "kube_runtime::watcher", Level::DEBUG) {
        get_default(Clone::clone)
    } else {
        Dispatch::none()
    }
}

/// The watcher configuration that lists in pages, so that memory does not grow with the size of the cluster.
pub fn watcher_config() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::FutureExt as _;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
    use kube::client::Body;
    use serde_json::json;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::retries::LONGEST_REFUSED;
    use portcullis_testing::Log;

    #[test]
    fn a_list_of_namespaces_is_trimmed_and_an_empty_one_means_all() {
        for (list, watches) in [("", vec![""]), (" , ", vec![""]), ("b, a,b,", vec!["a", "b"]), ("team", vec!["team"])]
        {
            assert_eq!(Namespaces::parse(list).watches::<NamespaceResourceScope>(), watches, "{list:?}");
            assert_eq!(Namespaces::parse(list).watches::<ClusterResourceScope>(), [""], "{list:?}");
        }
    }

    /// An API server that refuses everything, or watches alone, before `granted`, and has no object.
    fn refused_until(granted: Instant, watches_alone: bool) -> Client {
        let answer = move |request: Request<Body>| {
            let watches = request.uri().query().unwrap_or_default().contains("watch=");
            let refuses = Instant::now() < granted && (watches || !watches_alone);
            if watches && !refuses {
                return pending().boxed();
            }
            let status =
                json!({"kind": "Status", "status": "Failure", "code": 403, "message": "no", "reason": "Forbidden"});
            let list =
                json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
            let (code, answer) = if refuses { (403, status) } else { (200, list) };
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap();
            ready(Ok::<_, Infallible>(answer)).boxed()
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[derive(Debug)]
    struct Nothing;

    impl Stored for Nothing {
        fn namespace(&self) -> &'static str {
            ""
        }
        fn name(&self) -> &'static str {
            ""
        }
        fn version(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_change_is_undelivered_until_its_callback_has_returned() {
        let (undelivered, calls) = (Undelivered::default(), Arc::new(AtomicUsize::new(0)));
        let (asked, counted) = (undelivered.clone(), calls.clone());
        let watched = Watched {
            watch: String::new(),
            retries: Retries::new(String::new(), String::new(), String::new()),
            store: Arc::default(),
            reduce: |_: ConfigMap| Nothing,
            changed: move |_: &Change<Nothing>| _ = counted.fetch_add(usize::from(asked.any()), Ordering::SeqCst),
            undelivered,
            panics: Counter::default(),
        };
        for event in [Event::Init, Event::InitApply(ConfigMap::default()), Event::InitDone] {
            watched.take(event);
        }
        watched.take(Event::Apply(ConfigMap::default()));
        assert_eq!(calls.load(Ordering::SeqCst), 2, "both were undelivered during their callbacks");
        assert!(!watched.undelivered.any());
    }

    #[tokio::test(start_paused = true)]
    async fn no_watch_outlives_what_it_was_started_by() {
        let client = refused_until(Instant::now(), false);
        let watches = Watches::new(client, Namespaces::parse("team"), CancellationToken::new());
        watches.follow::<ConfigMap, _>(watcher_config(), Arc::default(), |_| Nothing, |_: &Change<Nothing>| {});
        assert!(watches.ready().await);
        let tasks = watches.tasks.clone();
        tasks.close();
        assert!(timeout(SETTLED, tasks.wait()).await.is_err(), "it watches");
        drop(watches);
        timeout(SETTLED, tasks.wait()).await.expect("it has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_watch_is_logged_once_and_backs_off() {
        for (watches_alone, verb) in [(false, r#"verb="list""#), (true, r#"verb="watch""#)] {
            refused_for_two_hours(watches_alone, verb).await;
        }
    }

    async fn refused_for_two_hours(watches_alone: bool, verb: &str) {
        let (log, _listening) = Log::listen();
        let (begun, refused_for) = (Instant::now(), Duration::from_hours(2));
        let (client, stop) = (refused_until(begun + refused_for, watches_alone), CancellationToken::new());
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = tries.clone();
        let client = Client::new(
            tower::service_fn(move |request: Request<Body>| {
                counted.fetch_add(1, Ordering::Relaxed);
                let client = client.clone();
                async move { client.send(request).await }
            }),
            "default",
        );
        let watches = Watches::new(client, Namespaces::parse("team"), stop.clone());
        watches.follow::<ConfigMap, _>(watcher_config(), Arc::default(), |_| Nothing, |_: &Change<Nothing>| {});
        assert!(watches.ready().await);
        sleep((begun + refused_for).saturating_duration_since(Instant::now())).await;
        // Two minutes at most between two tries, and a minute on the average; one is a list and a watch where that is
        // asked for.
        let tries = tries.load(Ordering::Relaxed) / if watches_alone { 2 } else { 1 };
        assert!((60..150).contains(&tries), "{tries} tries in two hours");
        sleep(LONGEST_REFUSED * 2 + SETTLED * 2).await;
        stop.cancel();
        watches.ended().await;
        let said = log.take();
        let lines: Vec<&str> = said.lines().collect();
        let [refused, works] = lines[..] else { panic!("two lines: {said}") };
        for part in ["WARN", "watch refused: grant", verb, r#"resource="configmaps""#, r#"namespace="team""#] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert!(works.contains("the watch works again"), "{works}");
    }
}
