//! Caches of other objects for webhooks, so that a review needs no request to the API server.
//!
//! A [`Cache`] holds the objects of one kind; a watch keeps it up to date. Create it in `setup`, capture a clone in the
//! handler, and register it with the webhook (`Validate::with_source` of `portcullis-webhook`). Every replica of the operator
//! then watches the kind, whether it leads or not, and the generated roles allow it to.
//!
//! ```
//! use std::sync::Arc;
//! use portcullis_controller::cache::Cache;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use k8s_openapi::api::storage::v1::StorageClass;
//! use portcullis_webhook::{Context, Validate, Verdict, Webhooks};
//!
//! fn webhooks(classes: &Cache<StorageClass>) -> Webhooks {
//!     let known = classes.clone();
//!     let validate = move |new: Arc<ConfigMap>, _: Context| {
//!         let class = new.data.as_ref().and_then(|data| data.get("class")).cloned().unwrap_or_default();
//!         let verdict = match known.get("", &class) {
//!             Some(_) => Verdict::allow(),
//!             None => Verdict::deny(format!("there is no storage class {class:?}")).code(422).cause("data.class", "is unknown"),
//!         };
//!         async { verdict }
//!     };
//!     Webhooks::new().validate(Validate::<ConfigMap>::new("class").with_source(classes).on_create_or_update(validate))
//! }
//!
//! // In `setup`: webhooks(&Cache::new()). In a test, without a cluster:
//! let mut class = StorageClass::default();
//! class.metadata.name = Some("fast".to_owned());
//! let webhooks = webhooks(&Cache::from_iter([class]));
//! ```
//!
//! Until the first list is complete, webhooks that read a cache answer HTTP 429, and the API server retries within the
//! webhook's timeout; other webhooks are served. A replica is not ready before its caches are filled, for half a minute
//! at most. It does not wait for a cache of a kind that it converts itself, because the list needs the conversion.
//!
//! A cache lags behind the API server by the delay of the watch, usually some milliseconds: a rule between two objects
//! that may be written at the same time needs a controller that checks again. An object that does not decode is logged
//! and not cached.

use std::any::Any;
use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Resource;
use kube::core::{DeserializeGuard, GroupVersionKind};
use portcullis_manifest::{Access, KnownScope, ScopeType, Source, policy_rule};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use crate::apply::version_number;
use crate::{KindScope, Namespaces, Runtime, Store, Stored, Watches, watcher_config};

/// Kinds that can be cached: those that webhooks can be registered for.
pub trait Cached:
    Resource<DynamicType = (), Scope: KindScope> + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

impl<K> Cached for K where
    K: Resource<DynamicType = (), Scope: KindScope> + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

/// A cache of the objects of a kind: of one namespace for an operator that is restricted to it, otherwise of all. Cheap
/// to clone; clones share the objects. See the [module](self).
pub struct Cache<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    kind: GroupVersionKind,
    plural: Cow<'static, str>,
    store: Arc<Store<Held<K>>>,
    filled: watch::Sender<bool>,
    /// Whether a watch fills it; if not, whether that was logged.
    attended: AtomicBool,
}

/// An object as it was delivered, without `managedFields`; none where it does not decode.
struct Held<K> {
    namespace: String,
    name: String,
    version: u64,
    object: Option<Arc<K>>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

/// A cache with these objects, without a cluster: for tests.
impl<K: Cached> FromIterator<K> for Cache<K> {
    fn from_iter<I: IntoIterator<Item = K>>(objects: I) -> Self {
        let cache = Self::new();
        cache.fill(objects);
        cache
    }
}

impl<K: Cached> Default for Cache<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Cached> Cache<K> {
    /// An empty cache, which the operator fills when it runs.
    pub fn new() -> Self {
        let kind = GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&()));
        let (plural, store) = (K::plural(&()), Arc::default());
        let (filled, attended) = (watch::Sender::new(false), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { kind, plural, store, filled, attended }) }
    }

    /// The object of this name; `namespace` is empty for cluster-scoped kinds.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.shared.read().get(namespace, name)?.object.clone()
    }

    /// All objects, in no particular order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.shared.read().all().into_iter().filter_map(|held| held.object.clone()).collect()
    }

    /// An object that matches the predicate, if there is one. It scans all objects; [`get`](Self::get) looks one up by
    /// name.
    pub fn find(&self, predicate: impl Fn(&K) -> bool) -> Option<Arc<K>> {
        self.list().into_iter().find(|object| predicate(object))
    }

    /// Whether the first list is complete. Before that, an object that is not in the cache may still exist.
    pub fn is_filled(&self) -> bool {
        *self.shared.filled.borrow()
    }

    fn fill(&self, objects: impl IntoIterator<Item = K>) {
        self.shared.attended.store(true, Ordering::Relaxed);
        self.shared.store.fill(objects.into_iter().map(|object| Held::of(DeserializeGuard(Ok(object)))));
        self.shared.filled.send_replace(true);
    }
}

impl<K: Cached> Shared<K> {
    /// Returns the store. A cache that no watch fills is a programming error, and is logged here because tests with a
    /// [`Cache::from_iter`] do not show it.
    fn read(&self) -> &Store<Held<K>> {
        if !self.attended.swap(true, Ordering::Relaxed) {
            let resource = self.resource();
            tracing::error!(
                resource,
                "reading a cache that is never filled: register it with the webhook, with .with_source(&cache)"
            );
        }
        &self.store
    }
}

impl<K: Cached> Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&*self.shared, f)
    }
}

impl<K> Debug for Shared<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, filled) = (&self.kind.kind, *self.filled.borrow());
        f.debug_struct("Cache").field("kind", kind).field("filled", &filled).finish_non_exhaustive()
    }
}

impl<K: Cached> From<&Cache<K>> for Arc<dyn Source> {
    fn from(cache: &Cache<K>) -> Self {
        cache.shared.clone()
    }
}

/// Fills a [`Cache`] from a watch. [`Source::filler`] returns one.
#[derive(Clone, Debug)]
pub struct Filler(Arc<dyn AnyCache>);

impl Filler {
    /// Waits until the first list is complete.
    pub async fn wait_until_filled(&self) {
        self.0.wait_until_filled().await;
    }

    /// Watches, and keeps the cache filled, until [`Runtime::stop`] is cancelled.
    pub async fn watch(self, runtime: Runtime) {
        self.0.watch(runtime).await;
    }
}

/// A cache with its type taken away.
trait AnyCache: Debug + Send + Sync {
    fn wait_until_filled(&self) -> BoxFuture<'_, ()>;
    fn watch(self: Arc<Self>, runtime: Runtime) -> BoxFuture<'static, ()>;
}

impl<K: Cached> Source for Shared<K> {
    fn kind(&self) -> &GroupVersionKind {
        &self.kind
    }

    fn resource(&self) -> String {
        if self.kind.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.kind.group)
        }
    }

    fn is_filled(&self) -> bool {
        *self.filled.borrow()
    }

    fn fill(self: Arc<Self>, objects: &[Value]) -> Result<(), serde_json::Error> {
        self.attended.store(true, Ordering::Relaxed);
        let objects = objects.iter().map(|object| serde_json::from_value(object.clone()));
        let objects: Vec<K> = objects.collect::<Result<_, _>>()?;
        Cache { shared: self }.fill(objects);
        Ok(())
    }

    fn access(&self) -> Access {
        let rule = policy_rule(fixed(K::group(&())), &[fixed(K::plural(&()))], &["list", "watch"]);
        if <K::Scope as KnownScope>::SCOPE == ScopeType::Cluster {
            return Access { cluster: vec![rule], ..Access::default() };
        }
        Access::from([rule])
    }

    fn filler(self: Arc<Self>) -> Option<Box<dyn Any + Send + Sync>> {
        Some(Box::new(Filler(self)))
    }
}

impl<K: Cached> AnyCache for Shared<K> {
    fn wait_until_filled(&self) -> BoxFuture<'_, ()> {
        let mut filled = self.filled.subscribe();
        // The sender is in the shared state, which outlives this future.
        async move { _ = filled.wait_for(|filled| *filled).await }.boxed()
    }

    fn watch(self: Arc<Self>, runtime: Runtime) -> BoxFuture<'static, ()> {
        self.attended.store(true, Ordering::Relaxed);
        let namespaces = Namespaces::from_scope(&runtime.scope);
        let watches = Watches::new(runtime.client, namespaces, runtime.stop).with_metrics(&runtime.metrics);
        async move {
            watches.follow(watcher_config(), self.store.clone(), Held::of, |_| {});
            if watches.ready().await {
                self.filled.send_replace(true);
            }
            watches.ended().await;
        }
        .boxed()
    }
}

impl<K: Cached> Held<K> {
    fn of(DeserializeGuard(object): DeserializeGuard<K>) -> Self {
        let metadata = match &object {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        };
        let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let version = version_number(metadata);
        let object = match object {
            Ok(mut object) => {
                object.meta_mut().managed_fields = None;
                Some(Arc::new(object))
            }
            Err(invalid) => {
                let kind = K::kind(&());
                tracing::warn!(
                    kind = &*kind,
                    namespace,
                    name,
                    error = invalid.error,
                    "object is not cached: it does not decode"
                );
                None
            }
        };
        Self { namespace, name, version, object }
    }
}

impl<K: Send + Sync + 'static> Stored for Held<K> {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u64 {
        self.version
    }
}

/// Derived kinds, such as those of k8s-openapi, have literals as names. A name that a hand-written kind makes at run
/// time is leaked: a few bytes each time that the rights are computed.
fn fixed(name: Cow<'static, str>) -> &'static str {
    match name {
        Cow::Borrowed(name) => name,
        Cow::Owned(name) => name.leak(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use portcullis_testing::Log;

    #[test]
    fn reading_an_unregistered_cache_is_logged() {
        let (log, _listening) = Log::listen();
        let cache = Cache::<ConfigMap>::new();
        assert!(cache.get("team", "a").is_none() && cache.list().is_empty());
        let said = log.take();
        assert!(
            said.contains("ERROR") && said.contains(".with_source(&cache)") && said.contains("configmaps"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(Cache::<ConfigMap>::from_iter([ConfigMap::default()]).list().len() == 1 && log.take().is_empty());
    }
}
