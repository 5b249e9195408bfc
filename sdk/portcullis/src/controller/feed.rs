//! Watches that fill the stores.

use std::{
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use futures::{Stream, StreamExt as _};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use prometheus_client::metrics::counter::Counter;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Change, Store, Stored};
use crate::metrics::Metrics;
use crate::scopes::Scope;

/// Objects per page of a list: what is held in full at any time.
const PAGE: u32 = 200;

/// Which namespaces are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespaces(Vec<String>);

/// The watches of a controller, or of several that share their stores: starts them, and says when every one has
/// delivered its first list.
pub struct Feeds {
    client: Client,
    namespaces: Namespaces,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// How many watches have not delivered their first list.
    waiting: watch::Sender<usize>,
    metrics: Metrics,
}

/// One watch, and what is done with what it delivers.
struct Watched<T, R, C> {
    /// The namespace; empty for all.
    watch: String,
    kind: String,
    store: Arc<Store<T>>,
    reduce: R,
    changed: C,
    panics: Counter,
}

impl Namespaces {
    /// The namespaces of a comma-separated list; an empty one means all of them.
    pub fn parse(list: &str) -> Self {
        let mut namespaces: Vec<String> =
            list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        namespaces.sort();
        namespaces.dedup();
        Self(namespaces)
    }

    /// Those that an operator with this scope looks after: the one that it is restricted to, those of a development
    /// session with `--only-namespace`, or all.
    pub fn of(scope: &Scope) -> Self {
        Self(scope.namespaces())
    }

    /// The watches that cover them: a namespace each, or one for all ("").
    fn watches(&self) -> Vec<String> {
        if self.0.is_empty() { vec![String::new()] } else { self.0.clone() }
    }
}

impl Debug for Feeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feeds").field("namespaces", &self.namespaces).finish_non_exhaustive()
    }
}

impl Feeds {
    /// No watch yet. All of them end with `stop`.
    pub fn new(client: Client, namespaces: Namespaces, stop: CancellationToken) -> Self {
        let (tasks, waiting) = (TaskTracker::new(), watch::Sender::new(0));
        Self { client, namespaces, tasks, stop, waiting, metrics: Metrics::new() }
    }

    /// Counts its panics there.
    #[must_use]
    pub fn counted_in(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Watches a kind: whole objects of a built-in one, `PartialObjectMeta<K>` for its metadata only, and
    /// `DeserializeGuard<K>` for a kind of ours, where one object that does not decode is stored as such and stops nothing.
    ///
    /// Nor does one on which `reduce` or `changed` panics: that is logged and counted
    /// (`portcullis_watch_panics_total`), and the watch goes on. Anybody may be able to make such an object, and nobody
    /// may take the process with it, whose webhooks the cluster depends on. Where `reduce` panics, the store keeps what
    /// it knew of the object until the next list.
    pub fn follow<K, T>(
        &self,
        config: watcher::Config,
        store: Arc<Store<T>>,
        reduce: impl Fn(K) -> T + Clone + Send + 'static,
        changed: impl Fn(&Change<T>) + Clone + Send + 'static,
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + DeserializeOwned
            + Clone
            + Debug
            + Send
            + 'static,
        T: Stored,
    {
        for watch in self.namespaces.watches() {
            let api: Api<K> = self.api(&watch);
            let stream = watcher::watcher(api, config.clone());
            let kind = K::kind(&()).into_owned();
            let panics = self.metrics.watch_panics(&kind);
            let (store, reduce, changed) = (store.clone(), reduce.clone(), changed.clone());
            self.start(stream, Watched { watch, kind, store, reduce, changed, panics });
        }
    }

    /// Returns once every watch started so far has delivered its first list; without that, everything looks absent.
    /// Returns `false` on shutdown.
    pub async fn ready(&self) -> bool {
        let mut waiting = self.waiting.subscribe();
        tokio::select! {
            () = self.stop.cancelled() => false,
            result = waiting.wait_for(|waiting| *waiting == 0) => result.is_ok(),
        }
    }

    /// Returns once every watch has ended, after `stop`.
    pub async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn api<K>(&self, watch: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        if watch.is_empty() { Api::all(self.client.clone()) } else { Api::namespaced(self.client.clone(), watch) }
    }

    fn start<K, T, R, C>(
        &self,
        stream: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
        watched: Watched<T, R, C>,
    ) where
        K: Resource<DynamicType = ()> + Send + 'static,
        T: Stored,
        R: Fn(K) -> T + Send + 'static,
        C: Fn(&Change<T>) + Send + 'static,
    {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let (waiting, stop) = (self.waiting.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let mut stream = std::pin::pin!(stream.default_backoff());
            let mut first = true;
            loop {
                let event = tokio::select! {
                    () = stop.cancelled() => return,
                    event = stream.next() => event,
                };
                match event {
                    None => return,
                    Some(Err(error)) => {
                        let Watched { kind, watch, .. } = &watched;
                        tracing::warn!(kind, namespace = watch, %error, "watch interrupted; retrying");
                    }
                    Some(Ok(event)) => {
                        let listed = matches!(event, Event::InitDone);
                        watched.take(event);
                        if listed && std::mem::take(&mut first) {
                            waiting.send_modify(|waiting| *waiting -= 1);
                        }
                    }
                }
            }
        });
    }
}

impl<T: Stored, R, C: Fn(&Change<T>)> Watched<T, R, C> {
    fn take<K: Resource>(&self, event: Event<K>)
    where
        R: Fn(K) -> T,
    {
        let Self { watch, store, .. } = self;
        match event {
            Event::Init => store.list_begins(watch),
            Event::InitApply(object) => {
                if let Ok(object) = self.reduced(object) {
                    store.listed(watch, object);
                }
            }
            Event::InitDone => store.list_ends(watch).iter().for_each(|change| self.tell(change)),
            Event::Apply(object) => {
                if let Ok(object) = self.reduced(object) {
                    store.delivered(watch, object).iter().for_each(|change| self.tell(change));
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
                    self.tell(&change);
                }
            }
        }
    }

    /// What is stored of it; where that panics, which object it was.
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

    fn tell(&self, change: &Change<T>) {
        if catch_unwind(AssertUnwindSafe(|| (self.changed)(change))).is_err() {
            let about = change.new.as_ref().or(change.old.as_ref());
            let (namespace, name) = about.map_or(("", ""), |about| (about.namespace(), about.name()));
            self.panicked(namespace, name);
        }
    }

    /// What panicked has said so itself, by the panic hook; the message may hold anything.
    fn panicked(&self, namespace: &str, name: &str) {
        self.panics.inc();
        tracing::error!(kind = self.kind, namespace, name, "a callback of this watch panicked; the watch goes on");
    }
}

/// How kinds are listed and watched: in pages, so that memory does not follow the size of the cluster.
pub fn paged() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_namespaces_is_trimmed_and_an_empty_one_means_all() {
        for (list, watches) in [("", vec![""]), (" , ", vec![""]), ("b, a,b,", vec!["a", "b"]), ("team", vec!["team"])]
        {
            assert_eq!(Namespaces::parse(list).watches(), watches, "{list:?}");
        }
    }
}
