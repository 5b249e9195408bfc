//! The controller of one kind: its queue, store, watches and workers.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, ready};
use futures::{FutureExt as _, StreamExt as _};
use kube::api::PartialObjectMeta;
use kube::core::{ApiResource, DeserializeGuard};
use kube::runtime::Predicate;
use portcullis_manifest::Access;

use super::apply::{Applier, FieldManager};
use super::changes::{Changes, filter};
use super::children::{Child, Children};
use super::events::Events;
use super::kind_scope::Watchable;
use super::metrics::{Backlog, ReconcileFamilies, watch_panics};
use super::observed::Managers;
use super::queue::Names;
use super::reconcile::{CleanUp, OnInvalid, Reconciler};
use super::validators::OfflineValidation;
use super::writer::Writer;
use super::{
    Action, Backoff, BoxError, Change, Cleanup, Deletion, Key, Kind, KindScope, MayOwn, Namespaces, Observed, Queue,
    Reconcile, Runtime, Store, Stored as _, Watches, watcher_config,
};

/// The number of concurrent reconciles by default.
const WORKERS: usize = 8;
/// The timeout of a reconcile by default.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Starts the watch of one kind.
pub(super) type Follow<K> = Box<dyn Fn(&Watches, &FieldManager, &Enqueuer<K>) + Send + Sync>;

/// The children of one kind.
pub(super) struct Owned<K> {
    pub(super) resource: ApiResource,
    pub(super) children: Children,
    /// Starts their watch; `None` if the controller's author does.
    pub(super) follow: Option<Follow<K>>,
}

/// Another kind whose changes enqueue objects.
pub(super) struct WatchedKind<K> {
    pub(super) resource: ApiResource,
    pub(super) namespaced: bool,
    pub(super) follow: Follow<K>,
}

/// A controller for one kind: what it watches and owns, and its limits. See the [crate documentation](crate).
#[must_use = "a controller does nothing until it runs"]
pub struct Controller<K> {
    pub(super) name: String,
    pub(super) field_manager: FieldManager,
    pub(super) changes: Changes<K>,
    pub(super) store: Arc<Store<Observed<K>>>,
    tokens: fn(&K) -> Vec<String>,
    pub(super) finalizer: Option<(String, CleanUp<K>)>,
    on_invalid: Option<OnInvalid<K>>,
    /// The owned kinds, by `apiVersion` and `kind`.
    pub(super) owned: BTreeMap<(String, String), Owned<K>>,
    pub(super) watched: Vec<WatchedKind<K>>,
    /// The rights beside those that follow from the other fields.
    pub(super) access: Access,
    namespaces: Option<Namespaces>,
    workers: usize,
    timeout: Duration,
}

/// Enqueues objects of the controller's kind when related objects change.
pub(super) struct Enqueuer<K> {
    queue: Arc<Queue>,
    pub(super) store: Arc<Store<Observed<K>>>,
}

impl<K> Clone for Enqueuer<K> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), store: self.store.clone() }
    }
}

impl<K> Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .field("field_manager", &self.field_manager)
            .finish_non_exhaustive()
    }
}

impl<K: Kind> Controller<K> {
    /// Creates a controller. Its name is the field manager of its children and the reporting controller of its events;
    /// `<name>-status`, `<name>-finalizers` and `<name>-validity` are the field managers of its writes to the object
    /// itself. Every controller needs a name of its own.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            field_manager: FieldManager::new(name),
            changes: Changes::default(),
            store: Arc::default(),
            tokens: |_| Vec::new(),
            finalizer: None,
            on_invalid: None,
            owned: BTreeMap::new(),
            watched: Vec::new(),
            access: Access::default(),
            namespaces: None,
            workers: WORKERS,
            timeout: TIMEOUT,
        }
    }

    /// Sets the field manager of its children, instead of the controller's name. The field managers of its writes to
    /// the object itself follow from it too (`<field manager>-status`, …).
    pub fn field_manager(mut self, field_manager: FieldManager) -> Self {
        self.field_manager = field_manager;
        self
    }

    /// Owns children of this kind: [`Reconcile::apply`] can write them, and every change of one, also of its status,
    /// triggers a reconcile of its owner. Only their metadata is watched. Cluster-scoped kinds can be owned by
    /// cluster-scoped kinds only.
    pub fn owns<C: Watchable>(mut self) -> Self
    where
        K::Scope: MayOwn<C::Scope>,
    {
        let store = Arc::<Store<Child>>::default();
        let children = Children { store: store.clone(), namespaced: C::Scope::NAMESPACED };
        let follow: Follow<K> = Box::new(move |watches, field_manager, enqueuer| {
            let (field_manager, enqueuer) = (field_manager.clone(), enqueuer.clone());
            let read = move |child: PartialObjectMeta<C>| {
                Child::read(&C::kind(&()), &child.metadata, &field_manager, &K::kind(&()))
            };
            watches
                .follow(watcher_config(), store.clone(), read, move |change: &Change<Child>| enqueuer.by_child(change));
        });
        let resource = ApiResource::erase::<C>(&());
        let kind = (resource.api_version.clone(), resource.kind.clone());
        self.owned.insert(kind, Owned { resource, children, follow: Some(follow) });
        self
    }

    /// Adds the finalizer `name` to every object before its first reconcile, and runs `cleanup` while the object is
    /// being deleted, until it returns [`Cleanup::Done`]. Owned children need no finalizer: garbage collection deletes
    /// them.
    pub fn finalizer<F, R, E>(mut self, name: &str, cleanup: F) -> Self
    where
        F: Fn(Deletion<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Cleanup, E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        let run: CleanUp<K> = Arc::new(move |deletion| {
            let cleaned = cleanup(deletion);
            async move { cleaned.await.map_err(Into::into) }.boxed()
        });
        self.finalizer = Some((name.to_owned(), run));
        self
    }

    /// Calls `report` instead of the reconcile for an object that the validators deny while webhooks are off, with the
    /// message of the denial. Use it to set fields of your own in the status, beside the condition `Valid`; the status
    /// that the next reconcile applies replaces them. Without it, such an object gets the condition and the event only.
    ///
    /// ```
    /// use kube::CustomResource;
    /// use portcullis_controller::{Action, Controller, ControllerError, Reconcile};
    /// use schemars::JsonSchema;
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// #[kube(group = "shop.example", version = "v1", kind = "Order", namespaced, status = "OrderStatus")]
    /// struct OrderSpec {}
    ///
    /// #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    /// struct OrderStatus { phase: Option<String> }
    ///
    /// async fn report(cx: Reconcile<Order>, problem: String) -> Result<Action, ControllerError> {
    ///     cx.apply_status(&OrderStatus { phase: Some(format!("Refused: {problem}")) }).await?;
    ///     Ok(Action::await_change())
    /// }
    ///
    /// let orders = Controller::<Order>::new("orders").on_invalid(report);
    /// # drop(orders);
    /// ```
    pub fn on_invalid<F, R, E>(mut self, report: F) -> Self
    where
        F: Fn(Reconcile<K>, String) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        self.on_invalid = Some(Arc::new(move |request, problem| {
            let reported = report(request, problem);
            async move { reported.await.map_err(Into::into) }.boxed()
        }));
        self
    }

    /// Indexes the objects by the tokens that `tokens` returns, for [`Store::find`].
    pub fn index_by(mut self, tokens: fn(&K) -> Vec<String>) -> Self {
        self.tokens = tokens;
        self
    }

    /// Reconciles a changed object only if this property differs: one of [`kube::runtime::predicates`] (`generation`,
    /// `labels`, `annotations` and their combinations), or a function that returns a hash.
    ///
    /// An object that is created or deleted, is being deleted, or whose finalizers change is reconciled in any case.
    /// With `generation` alone, changes that others make to the status are not reverted.
    ///
    /// ```
    /// use kube::runtime::{Predicate as _, predicates};
    /// use portcullis_controller::Controller;
    /// use k8s_openapi::api::core::v1::Service;
    ///
    /// let services = Controller::<Service>::new("services").predicate(predicates::generation.combine(predicates::labels));
    /// # drop(services);
    /// ```
    pub fn predicate(mut self, predicate: impl Predicate<K> + Send + Sync + 'static) -> Self {
        self.changes.filter = Some(filter(predicate));
        self
    }

    /// Grants rights beyond those for the kinds that it reconciles, owns and watches ([`access`](Self::access)), for
    /// example for requests that the reconcile makes with a client of its own.
    pub fn rbac(mut self, access: impl Into<Access>) -> Self {
        self.access = self.access.merge(access);
        self
    }

    /// Watches these namespaces, instead of those that the operator serves.
    pub fn namespaces(mut self, namespaces: Namespaces) -> Self {
        self.namespaces = Some(namespaces);
        self
    }

    /// Reconciles up to this many objects at once, 8 by default. One object is never reconciled twice at a time.
    pub fn concurrency(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Cancels a reconcile after this time, 5 minutes by default; that counts as a failure.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the delays after failures, and between writes of a child that others undo again and again.
    pub fn backoff(self, backoff: Backoff) -> Self {
        self.changes.queue.back_off(backoff);
        self
    }

    /// Watches and reconciles until [`Runtime::stop`] is cancelled; then waits for running reconciles. A failure is
    /// logged with its sources, the names of the controller, the kind and the object, and the time until the next try.
    /// Each reconcile runs in a span `reconcile` with the fields `controller`, `kind`, `namespace` and `object.name`,
    /// so that your own log lines have the names too.
    ///
    /// A replica that leads again can run it again: the stores are cleared when it stops.
    pub async fn run<F, R, E>(&self, runtime: Runtime, reconcile: F)
    where
        F: Fn(Reconcile<K>) -> R,
        R: Future<Output = Result<Action, E>>,
        E: Into<BoxError> + Send + 'static,
    {
        let namespaces = self.namespaces.clone().unwrap_or_else(|| Namespaces::from_scope(&runtime.scope));
        let watches =
            Watches::new(runtime.client.clone(), namespaces, runtime.stop.clone()).with_metrics(&runtime.metrics);
        // The last run may have been dropped before it cleared the stores.
        self.forget();
        self.follow(&watches);
        self.work(&watches, runtime, reconcile).await;
        watches.ended().await;
        self.forget();
    }

    /// Clears the stores that the watches filled.
    fn forget(&self) {
        self.store.clear();
        for Owned { children, .. } in self.owned.values().filter(|owned| owned.follow.is_some()) {
            children.store.clear();
        }
    }

    /// Reconciles what [`follow`](Self::follow) watches, once all of `watches` have completed their first lists.
    pub(super) fn work<F, R, E>(&self, watches: &Watches, runtime: Runtime, reconcile: F) -> impl Future<Output = ()>
    where
        F: Fn(Reconcile<K>) -> R,
        R: Future<Output = Result<Action, E>>,
        E: Into<BoxError> + Send + 'static,
    {
        let reconciler = Arc::new(self.reconciler(&runtime));
        let Self { changes: Changes { queue, .. }, store, workers, .. } = self;
        let families = runtime.metrics.families::<ReconcileFamilies>();
        // Kept until every object of the first lists is enqueued.
        let beginning = Arc::new(());
        let (asked, begins, undelivered) = (Arc::downgrade(queue), Arc::downgrade(&beginning), watches.undelivered());
        let backlog = move || {
            // The queue comes last: it holds the keys of changes that were delivered meanwhile.
            let more = begins.strong_count() > 0 || undelivered.any();
            let Backlog { due, pending } = asked.upgrade()?.backlog();
            Some(Backlog { due, pending: pending.max(usize::from(more)) })
        };
        queue.count_in(families.of(&self.name, Box::new(backlog)));
        let Runtime { scope, stop, .. } = runtime;
        let workers = *workers;
        async move {
            if stop.run_until_cancelled(watches.ready()).await != Some(true) {
                return;
            }
            let _opened = queue.open();
            // Subscribe before the first look at owners, so that a change in between is noticed.
            let handovers = scope.changes();
            let ask = |wanted: &dyn Fn(&str) -> bool| {
                for (namespace, name) in store.keys() {
                    if wanted(&namespace) {
                        queue.add(Key::new(namespace, name));
                    }
                }
            };
            ask(&|_| true);
            drop(beginning);
            let handed_over = stop.run_until_cancelled(handovers.for_each(|change| {
                ask(&|namespace| change.as_ref().is_none_or(|changed| namespace == changed));
                ready(())
            }));
            let reconcile = &reconcile;
            let kind = K::kind(&());
            let names = Names { controller: &self.name, kind: &kind };
            let work = queue.run(workers, &stop, names, |key| {
                let reconciler = reconciler.clone();
                async move { reconciler.reconcile(key, reconcile).await }
            });
            join(work, handed_over).await;
        }
    }

    pub(super) fn reconciler(&self, runtime: &Runtime) -> Reconciler<K> {
        let (client, field_manager) = (runtime.client.clone(), self.field_manager.clone());
        Reconciler {
            writer: Writer { client: client.clone(), managers: Managers::of(&field_manager.name), tokens: self.tokens },
            applier: Applier::new(client.clone(), field_manager, self.changes.queue.backoff()),
            events: Events::new(client, self.name.as_str()),
            children: self.owned.iter().map(|(kind, owned)| (kind.clone(), owned.children.clone())).collect(),
            offline: runtime.offline().map(OfflineValidation::new),
            on_invalid: self.on_invalid.clone(),
            scope: runtime.scope.clone(),
            store: self.store.clone(),
            changes: self.changes.clone(),
            panics: watch_panics(&runtime.metrics, &K::kind(&())),
            finalizer: self.finalizer.clone(),
            timeout: self.timeout,
        }
    }

    /// Starts the watches.
    pub(super) fn follow(&self, watches: &Watches) {
        // The queue rests until work begins, which enqueues every object.
        self.changes.queue.rest();
        let (managers, tokens) = (Managers::of(&self.field_manager.name), self.tokens);
        let read = move |object: DeserializeGuard<K>| Observed::of(object, &managers, tokens);
        let changes = self.changes.clone();
        watches.follow(watcher_config(), self.store.clone(), read, move |change: &Change<_>| changes.delivered(change));
        let enqueuer = Enqueuer { queue: self.changes.queue.clone(), store: self.store.clone() };
        let owned = self.owned.values().filter_map(|owned| owned.follow.as_ref());
        for follow in owned.chain(self.watched.iter().map(|watched| &watched.follow)) {
            follow(watches, &self.field_manager, &enqueuer);
        }
    }
}

impl<K: Kind> Enqueuer<K> {
    /// Enqueues an object, if there is one of this name.
    pub(super) fn enqueue(&self, key: Key) {
        if self.store.get(&key.namespace, &key.name).is_some() {
            self.queue.add(key);
        }
    }

    /// Enqueues the owner of a child, and the owner that it had before.
    fn by_child(&self, change: &Change<Child>) {
        let [old, new] = [&change.old, &change.new].map(|side| side.as_ref().map(|child| child.version()));
        if old == new && !change.is_overtaken() {
            return;
        }
        let owners = [&change.old, &change.new].into_iter().flatten().filter_map(|child| {
            let namespace = if K::Scope::NAMESPACED { child.namespace() } else { "" };
            Some(Key::new(namespace, child.owner()?))
        });
        owners.for_each(|owner| self.enqueue(owner));
    }
}

#[cfg(test)]
mod tests;
