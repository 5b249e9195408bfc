//! Watches that fill the stores.

use std::{fmt::Debug, sync::Arc};

use futures::StreamExt as _;
use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Change, Store, Stored};
use crate::scopes::Scope;

/// Objects per page of a list: what is held in full at any time.
const PAGE: u32 = 200;

/// Which namespaces are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
}

impl Namespaces {
    /// All of them.
    pub fn all() -> Self {
        Self::default()
    }

    /// The namespaces of a comma-separated list; an empty one means all of them.
    pub fn parse(list: &str) -> Self {
        let mut namespaces: Vec<String> =
            list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        namespaces.sort();
        namespaces.dedup();
        Self(namespaces)
    }

    /// Those that an operator with this scope may see: the one that it is restricted to, or all.
    pub fn of(scope: &Scope) -> Self {
        Self(scope.restricted_to().map(str::to_owned).into_iter().collect())
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
        Self { client, namespaces, tasks: TaskTracker::new(), stop, waiting: watch::Sender::new(0) }
    }

    /// Watches a kind: whole objects of a built-in one, `PartialObjectMeta<K>` for its metadata only, and
    /// `DeserializeGuard<K>` for a kind of ours, where one object that does not decode is stored as such and stops nothing.
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
            self.start(watch, stream, store.clone(), reduce.clone(), changed.clone());
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

    fn start<K, T>(
        &self,
        watch: String,
        stream: impl futures::Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
        store: Arc<Store<T>>,
        reduce: impl Fn(K) -> T + Send + 'static,
        changed: impl Fn(&Change<T>) + Send + 'static,
    ) where
        K: Send + 'static,
        T: Stored,
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
                        let kind = std::any::type_name::<T>();
                        tracing::warn!(store = kind, namespace = watch, %error, "watch interrupted; retrying");
                    }
                    Some(Ok(Event::Init)) => store.list_begins(&watch),
                    Some(Ok(Event::InitApply(object))) => store.listed(&watch, reduce(object)),
                    Some(Ok(Event::InitDone)) => {
                        store.list_ends(&watch).iter().for_each(&changed);
                        if std::mem::take(&mut first) {
                            waiting.send_modify(|waiting| *waiting -= 1);
                        }
                    }
                    Some(Ok(Event::Apply(object))) => {
                        store.delivered(&watch, reduce(object)).iter().for_each(&changed);
                    }
                    Some(Ok(Event::Delete(object))) => {
                        store.deleted(&watch, &reduce(object)).iter().for_each(&changed);
                    }
                }
            }
        });
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
