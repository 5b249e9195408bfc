//! Other kinds whose changes wake objects.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DeserializeGuard};
use kube::runtime::Predicate;
use serde::de::DeserializeOwned;
use tracing::warn;

use super::apply::version_number;
use super::changes::{Filter, differs, filter};
use super::controller::{Follow, WatchedKind, Woken};
use super::{Change, Controller, Key, Kind, KindScope, Observed, Store, Stored, paged};

/// Kinds that can be watched beside the one that a controller is for: those of k8s-openapi, all that kube derives, and
/// [`PartialObjectMeta`](kube::core::PartialObjectMeta) of either, of which the metadata is read and kept.
pub trait Watchable:
    Resource<DynamicType = (), Scope: KindScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<T> Watchable for T where
    T: Resource<DynamicType = (), Scope: KindScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

/// Whom a change of an object wakes, by what is known of the objects of the controller's kind.
type Mapper<K, T> = dyn Fn(&T, &Store<Observed<K>>) -> Vec<Key> + Send + Sync;

impl<K: Kind> Controller<K> {
    /// Watches another kind: a change of an object of it wakes those that `mapper` names, which is asked about the object
    /// as it was and as it is. Either kind may live in namespaces or in none. What the reconcile does about it, it reads
    /// itself.
    ///
    /// `mapper` is given what is known of the controller's own objects: by [`Store::keys_where`] it looks at all of them,
    /// by [`Store::find_everywhere`] at those that [`found_by`](Self::found_by) makes out.
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
    /// let orders = Controller::<Order>::named("orders")
    ///     .watches::<Menu>(|menu, orders| orders.keys_where(|order| order.spec.menu == menu.name_any()));
    /// # drop(orders);
    /// ```
    pub fn watches<T: Watchable>(
        self,
        mapper: impl Fn(&T, &Store<Observed<K>>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.watching(None, Arc::new(mapper))
    }

    /// The same for changes in which this property differs, as for [`predicate`](Self::predicate).
    pub fn watches_when<T: Watchable>(
        self,
        predicate: impl Predicate<T> + Send + Sync + 'static,
        mapper: impl Fn(&T, &Store<Observed<K>>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.watching(Some(filter(predicate)), Arc::new(mapper))
    }

    fn watching<T: Watchable>(mut self, filter: Option<Filter<T>>, mapper: Arc<Mapper<K, T>>) -> Self {
        let follow: Follow<K> = Box::new(move |watches, _, woken| {
            let (filter, mapper, woken) = (filter.clone(), mapper.clone(), woken.clone());
            let changed = move |change: &Change<Seen<T>>| tell(change, filter.as_ref(), &*mapper, &woken);
            // The guard would have the whole object sent.
            if T::metadata_api() {
                watches.follow(paged(), Arc::default(), |object: T| Seen::of(DeserializeGuard(Ok(object))), changed);
            } else {
                watches.follow(paged(), Arc::default(), Seen::of, changed);
            }
        });
        let (resource, namespaced) = (ApiResource::erase::<T>(&()), T::Scope::NAMESPACED);
        self.watched.push(WatchedKind { resource, namespaced, follow });
        self
    }
}

/// Wakes whom the mapper names.
fn tell<K: Kind, T: Watchable>(
    change: &Change<Seen<T>>,
    filter: Option<&Filter<T>>,
    mapper: &Mapper<K, T>,
    woken: &Woken<K>,
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
    let keys: BTreeSet<Key> = objects.flat_map(|object| mapper(object, &woken.store)).collect();
    for key in keys {
        woken.wake(key);
    }
}

/// What a predicate never swallows.
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
            warn!(namespace, name, error, "{} does not decode: its changes wake nobody", T::kind(&()));
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
