//! Other kinds whose changes enqueue objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DeserializeGuard};
use kube::runtime::Predicate;
use tracing::warn;

use super::apply::version_number;
use super::changes::{Filter, differs, filter};
use super::controller::{Enqueuer, Follow, WatchedKind};
use super::kind_scope::{KindScope, Watchable};
use super::{Change, Controller, Key, Kind, Observed, Store, Stored, watcher_config};

/// Maps an object of another kind to the objects that it enqueues, given the store of the controller's kind.
type Mapper<K, T> = dyn Fn(&T, &Store<Observed<K>>) -> Vec<Key> + Send + Sync;

impl<K: Kind> Controller<K> {
    /// Watches another kind: a change of one of its objects reconciles the objects whose keys `mapper` returns.
    /// `mapper` is called with the object before and after the change. Either kind may be namespaced or cluster-scoped.
    /// The reconcile itself reads what it needs of the other object.
    ///
    /// `mapper` also gets the store of the controller's own objects: [`Store::keys_where`] scans all of them,
    /// [`Store::find_everywhere`] finds them by the tokens of [`index_by`](Self::index_by).
    ///
    /// ```
    /// use kube::{CustomResource, ResourceExt as _};
    /// use portcullis_controller::Controller;
    /// use schemars::JsonSchema;
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// #[kube(group = "shop.example", version = "v1", kind = "Order", namespaced)]
    /// struct OrderSpec { menu: String }
    ///
    /// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// #[kube(group = "shop.example", version = "v1", kind = "Menu")]
    /// struct MenuSpec { beers: Vec<String> }
    ///
    /// let orders = Controller::<Order>::new("orders")
    ///     .watches::<Menu>(|menu, orders| orders.keys_where(|order| order.spec.menu == menu.name_any()));
    /// # drop(orders);
    /// ```
    pub fn watches<T: Watchable>(
        self,
        mapper: impl Fn(&T, &Store<Observed<K>>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.watching(None, Arc::new(mapper))
    }

    /// Like [`watches`](Self::watches), for changes in which this property differs, as in
    /// [`predicate`](Self::predicate).
    pub fn watches_when<T: Watchable>(
        self,
        predicate: impl Predicate<T> + Send + Sync + 'static,
        mapper: impl Fn(&T, &Store<Observed<K>>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.watching(Some(filter(predicate)), Arc::new(mapper))
    }

    fn watching<T: Watchable>(mut self, filter: Option<Filter<T>>, mapper: Arc<Mapper<K, T>>) -> Self {
        let follow: Follow<K> = Box::new(move |watches, _, enqueuer| {
            let (filter, mapper, enqueuer) = (filter.clone(), mapper.clone(), enqueuer.clone());
            let changed = move |change: &Change<Seen<T>>| enqueue_mapped(change, filter.as_ref(), &*mapper, &enqueuer);
            // The guard would have the whole object sent.
            if T::metadata_api() {
                watches.follow(
                    watcher_config(),
                    Arc::default(),
                    |object: T| Seen::of(DeserializeGuard(Ok(object))),
                    changed,
                );
            } else {
                watches.follow(watcher_config(), Arc::default(), Seen::of, changed);
            }
        });
        let (resource, namespaced) = (ApiResource::erase::<T>(&()), T::Scope::NAMESPACED);
        self.watched.push(WatchedKind { resource, namespaced, follow });
        self
    }
}

/// Enqueues the objects that the mapper names.
fn enqueue_mapped<K: Kind, T: Watchable>(
    change: &Change<Seen<T>>,
    filter: Option<&Filter<T>>,
    mapper: &Mapper<K, T>,
    enqueuer: &Enqueuer<K>,
) {
    if let (Some(old), Some(new)) = (&change.old, &change.new) {
        if old.version == new.version {
            return;
        }
        if let (Ok(before), Ok(after)) = (&old.object, &new.object)
            && going(before.meta()) == going(after.meta())
            && !differs(filter, &**before, &**after)
        {
            return;
        }
    }
    let objects = [&change.old, &change.new].into_iter().flatten().filter_map(|seen| seen.object.as_ref().ok());
    let keys: BTreeSet<Key> = objects.flat_map(|object| mapper(object, &enqueuer.store)).collect();
    for key in keys {
        enqueuer.enqueue(key);
    }
}

/// The fields whose change passes every predicate: uid, deletion and finalizers.
fn going(metadata: &ObjectMeta) -> (Option<&String>, bool, Option<&Vec<String>>) {
    (metadata.uid.as_ref(), metadata.deletion_timestamp.is_some(), metadata.finalizers.as_ref())
}

/// An object of another kind, as it was delivered.
struct Seen<T> {
    namespace: String,
    name: String,
    version: u64,
    /// An error where it does not decode.
    object: Result<Arc<T>, ()>,
}

impl<T: Watchable> Seen<T> {
    fn of(object: DeserializeGuard<T>) -> Self {
        let metadata = object.meta();
        let (namespace, name) =
            (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
        let version = version_number(metadata);
        let object = object.0.map(|mut object| {
            object.meta_mut().managed_fields = None;
            Arc::new(object)
        });
        let object = object.map_err(|invalid| {
            let error = invalid.error;
            warn!(namespace, name, error, "{} does not decode: its changes trigger no reconcile", T::kind(&()));
        });
        Self { namespace, name, version, object }
    }
}

impl<T: Send + Sync + 'static> Stored for Seen<T> {
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
