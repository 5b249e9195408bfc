//! A controller whose stores, queue and watches others share.

use std::fmt;
use std::sync::Arc;

use kube::Resource;
use kube::core::ApiResource;
use portcullis_manifest::Access;

use super::children::Children;
use super::controller::Owned;
use super::{
    Action, BoxError, Change, ChildTrace, Controller, Kind, KindScope, MayOwn, Observed, Queue, Reconcile, Runtime,
    Store, Watches,
};

/// A controller that shares its stores with webhooks or other controllers, and whose watches run on every replica.
///
/// [`follow`](Self::follow) starts the watches, in `Components::replica_task` of `portcullis-operator`, so that the
/// stores are filled wherever webhooks read them; [`work`](Self::work) reconciles, in `Components::leader_task`. In
/// between you can start watches of your own ([`Watches::follow`]) that request reconciles by the [`queue`](Self::queue).
/// Without such needs, [`Controller::run`] does both.
#[must_use = "a controller does nothing until it follows and works"]
pub struct SharedController<K> {
    controller: Controller<K>,
}

impl<K> fmt::Debug for SharedController<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedController").field(&self.controller).finish()
    }
}

impl<K: Kind> SharedController<K> {
    /// Shares this controller.
    pub fn new(controller: Controller<K>) -> Self {
        Self { controller }
    }

    /// Keeps the objects in this store, which others may read too. Call it before [`store`](Self::store), which returns
    /// this one from then on.
    pub fn with_store(mut self, store: Arc<Store<Observed<K>>>) -> Self {
        self.controller.store = store;
        self
    }

    /// Owns children of this kind, as [`Controller::owns`] does, in a `store` that others read too and that keeps more
    /// of each child. The caller starts the watch that fills the store ([`Watches::follow`]), and decides there which
    /// objects a change reconciles.
    pub fn owns_with_store<C, T>(mut self, store: Arc<Store<T>>) -> Self
    where
        C: Resource<DynamicType = (), Scope: KindScope>,
        T: ChildTrace,
        K::Scope: MayOwn<C::Scope>,
    {
        let children = Children { store, namespaced: C::Scope::NAMESPACED };
        let resource = ApiResource::erase::<C>(&());
        let kind = (resource.api_version.clone(), resource.kind.clone());
        self.controller.owned.insert(kind, Owned { resource, children, follow: None });
        self
    }

    /// Calls `listener` for every change of an object, whatever the [predicate](Controller::predicate) says, the controller's
    /// own writes included; not for changes of the `resourceVersion` alone.
    pub fn on_change(mut self, listener: impl Fn(&Change<Observed<K>>) + Send + Sync + 'static) -> Self {
        self.controller.changes.listener = Some(Arc::new(listener));
        self
    }

    /// The work queue, to request reconciles from watches of your own.
    pub fn queue(&self) -> Arc<Queue> {
        self.controller.changes.queue.clone()
    }

    /// The store of the objects.
    pub fn store(&self) -> Arc<Store<Observed<K>>> {
        self.controller.store.clone()
    }

    /// The rights of the controller, as [`Controller::access`] lists them.
    pub fn access(&self) -> Access {
        self.controller.access()
    }

    /// Starts the watches of the controller among `watches`.
    pub fn follow(&self, watches: &Watches) {
        self.controller.follow(watches);
    }

    /// Reconciles what [`follow`](Self::follow) watches, once all of `watches` have completed their first lists, until
    /// [`Runtime::stop`] is cancelled. It may be called again after it has ended.
    pub fn work<F, R, E>(&self, watches: &Watches, runtime: Runtime, reconcile: F) -> impl Future<Output = ()>
    where
        F: Fn(Reconcile<K>) -> R,
        R: Future<Output = Result<Action, E>>,
        E: Into<BoxError> + Send + 'static,
    {
        self.controller.work(watches, runtime, reconcile)
    }
}
