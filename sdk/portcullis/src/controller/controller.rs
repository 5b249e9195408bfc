//! Queue, store, watches and workers of one kind, put together.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, ready};
use futures::{FutureExt as _, StreamExt as _};
use kube::Resource;
use kube::api::PartialObjectMeta;
use kube::core::{ApiResource, DeserializeGuard, NamespaceResourceScope};
use serde::de::DeserializeOwned;

use super::apply::{Applier, Marks};
use super::children::{Child, Children};
use super::events::Events;
use super::observed::{Managers, same};
use super::validity::Validators;
use super::work::{Farewell, Kit, failed};
use super::writer::Writer;
use super::{
    Backoff, Change, ChildTrace, Cleanup, Feeds, Key, Kind, Leaving, Namespaces, Next, Observed, Pass, Queue, Store,
    Stored as _, paged,
};
use crate::operator::Runtime;
use crate::scopes;

/// How many objects are reconciled at once.
const WORKERS: usize = 8;
/// Longest reconcile.
const DEADLINE: Duration = Duration::from_mins(5);

/// Told of every change of an object that its controller is for.
type Listener<K> = Arc<dyn Fn(&Change<Observed<K>>) + Send + Sync>;
/// The children of one kind, and what starts their watch, unless their controller's author does.
type Owned<K> = (Children, Option<Follow<K>>);
/// Starts the watch of one kind of children.
type Follow<K> = Box<dyn Fn(&Feeds, &Marks, &Woken<K>) + Send + Sync>;

/// A controller for a namespaced kind: what it watches, and the limits of its work. See the [module](super).
#[must_use = "a controller does nothing until it runs"]
pub struct Controller<K> {
    name: String,
    marks: Marks,
    queue: Arc<Queue>,
    store: Arc<Store<Observed<K>>>,
    tokens: fn(&K) -> Vec<String>,
    finalizer: Option<(String, Farewell<K>)>,
    owned: BTreeMap<(String, String), Owned<K>>,
    listener: Option<Listener<K>>,
    namespaces: Option<Namespaces>,
    workers: usize,
    deadline: Duration,
}

/// What changes of children wake.
struct Woken<K> {
    queue: Arc<Queue>,
    store: Arc<Store<Observed<K>>>,
}

impl<K> Clone for Woken<K> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), store: self.store.clone() }
    }
}

impl<K> Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).field("marks", &self.marks).finish_non_exhaustive()
    }
}

impl<K: Kind> Controller<K> {
    /// A controller under this name. It is the field manager of its children, the reporter of its events, and
    /// `<name>-status`, `<name>-finalizers` and `<name>-validity` are the field managers of what is written to the object.
    /// Two controllers never share a name.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            marks: Marks::of(name),
            queue: Arc::default(),
            store: Arc::default(),
            tokens: |_| Vec::new(),
            finalizer: None,
            owned: BTreeMap::new(),
            listener: None,
            namespaces: None,
            workers: WORKERS,
            deadline: DEADLINE,
        }
    }

    /// Other marks on its children than those that follow from its name.
    pub fn marks(mut self, marks: Marks) -> Self {
        self.marks = marks;
        self
    }

    /// Keeps children of this kind: [`Pass::apply`] can write them, and what changes about them wakes their owner.
    pub fn owns<C>(mut self) -> Self
    where
        C: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + DeserializeOwned
            + Clone
            + Debug
            + Send
            + Sync
            + 'static,
    {
        let store: Arc<Store<Child>> = Arc::default();
        let children = store.clone();
        let follow: Follow<K> = Box::new(move |feeds, marks, woken| {
            let (marks, woken) = (marks.clone(), woken.clone());
            let read = move |child: PartialObjectMeta<C>| Child::read(&child.metadata, &marks, &K::kind(&()));
            feeds.follow(paged(), store.clone(), read, move |change: &Change<Child>| woken.by_child(change));
        });
        self.owned.insert(named::<C>(), (children, Some(follow)));
        self
    }

    /// Keeps children of this kind, as [`owns`](Self::owns) does, in a `store` that others read too and that has more of
    /// each child than the kit needs. Who calls this starts the watch that fills it ([`Feeds::follow`]), and says there
    /// what a change wakes.
    pub fn owns_in<C, T>(mut self, store: Arc<Store<T>>) -> Self
    where
        C: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        T: ChildTrace,
    {
        self.owned.insert(named::<C>(), (store, None));
        self
    }

    /// Puts the finalizer `name` on every object before it is reconciled for the first time, and runs `cleanup` when the
    /// object is being deleted, until it is [`Cleanup::Done`]. Owned children need none: the API server deletes them.
    pub fn finalizer<F, R, E>(mut self, name: &str, cleanup: F) -> Self
    where
        F: Fn(Leaving<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Cleanup, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let farewell: Farewell<K> = Arc::new(move |leaving| {
            let cleaned = cleanup(leaving);
            async move { cleaned.await.map_err(failed) }.boxed()
        });
        self.finalizer = Some((name.to_owned(), farewell));
        self
    }

    /// Keeps objects in this store, which others may read too. Call it before [`store`](Self::store), which answers with
    /// this one from then on.
    pub fn stored_in(mut self, store: Arc<Store<Observed<K>>>) -> Self {
        self.store = store;
        self
    }

    /// Objects can be found in the store by what this says of them ([`Store::find`]).
    pub fn found_by(mut self, tokens: fn(&K) -> Vec<String>) -> Self {
        self.tokens = tokens;
        self
    }

    /// Tells `listener` of changes to the objects; those that leave everything but the version as it was are not told.
    pub fn on_change(mut self, listener: impl Fn(&Change<Observed<K>>) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Watches these namespaces; otherwise those that the operator serves.
    pub fn namespaces(mut self, namespaces: Namespaces) -> Self {
        self.namespaces = Some(namespaces);
        self
    }

    /// Reconciles so many objects at once, 8 unless said. One object is never reconciled twice at a time.
    pub fn concurrency(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Gives up a reconcile after so long, 5 minutes unless said; that counts as a failure.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Waits so long after failures.
    pub fn backoff(self, backoff: Backoff) -> Self {
        self.queue.back_off(backoff);
        self
    }

    /// Where other watches ask for objects.
    pub fn queue(&self) -> Arc<Queue> {
        self.queue.clone()
    }

    /// The objects.
    pub fn store(&self) -> Arc<Store<Observed<K>>> {
        self.store.clone()
    }

    /// Watches, and reconciles until [`Runtime::stop`]; then waits for the reconciles under way. What fails is tried
    /// again.
    pub async fn run<F, R, E>(self, runtime: Runtime, reconcile: F)
    where
        F: Fn(Pass<K>) -> R,
        R: Future<Output = Result<Next, E>>,
        E: Display + Send + 'static,
    {
        let namespaces = self.namespaces.clone().unwrap_or_else(|| Namespaces::of(&runtime.scope));
        let feeds = Feeds::new(runtime.client.clone(), namespaces, runtime.stop.clone()).counted_in(&runtime.metrics);
        self.follow(&feeds);
        self.work(&feeds, runtime, reconcile).await;
        feeds.ended().await;
    }

    /// The second half of [`run`](Self::run): reconciles what [`follow`](Self::follow) watches, once all of `feeds` have
    /// delivered their first lists, until [`Runtime::stop`]. It may be called again, once the last call has ended.
    pub fn work<F, R, E>(&self, feeds: &Feeds, runtime: Runtime, reconcile: F) -> impl Future<Output = ()>
    where
        F: Fn(Pass<K>) -> R,
        R: Future<Output = Result<Next, E>>,
        E: Display + Send + 'static,
    {
        let kit = Arc::new(self.kit(&runtime));
        let Self { queue, store, workers, .. } = self;
        let waiting = Arc::downgrade(queue);
        queue.count_in(runtime.metrics.reconciles(&self.name, move || Some(waiting.upgrade()?.depth())));
        let Runtime { scope, stop, .. } = runtime;
        let workers = *workers;
        async move {
            if stop.run_until_cancelled(feeds.ready()).await != Some(true) {
                return;
            }
            let _opened = queue.open();
            // Before the first look at who owns what: a change in between is told.
            let handovers = scope.changes();
            let ask = |wanted: &dyn Fn(&str) -> bool| {
                for (namespace, name) in store.keys() {
                    if wanted(&namespace) {
                        queue.add(Key::new(namespace, name));
                    }
                }
            };
            ask(&|_| true);
            let handed_over = stop.run_until_cancelled(handovers.for_each(|change| {
                match change {
                    scopes::Change::Everywhere => ask(&|_| true),
                    scopes::Change::Namespace(changed) => ask(&|namespace| namespace == changed),
                }
                ready(())
            }));
            let reconcile = &reconcile;
            let work = queue.run(workers, &stop, |key| {
                let pass = kit.clone();
                async move { pass.reconcile(key, reconcile).await }
            });
            join(work, handed_over).await;
        }
    }

    fn kit(&self, runtime: &Runtime) -> Kit<K> {
        let (client, marks) = (runtime.client.clone(), self.marks.clone());
        Kit {
            writer: Writer { client: client.clone(), managers: Managers::of(&marks.manager), tokens: self.tokens },
            applier: Applier::new(client.clone(), marks),
            events: Events::new(client, self.name.as_str()),
            children: self.owned.iter().map(|(kind, (children, _))| (kind.clone(), children.clone())).collect(),
            validators: runtime.offline().map(Validators::new),
            scope: runtime.scope.clone(),
            store: self.store.clone(),
            queue: self.queue.clone(),
            finalizer: self.finalizer.clone(),
            deadline: self.deadline,
        }
    }

    /// The first half of [`run`](Self::run): starts the watches, and nothing else. Who has more watches than these, and
    /// who reads the stores in webhooks, which every replica serves, takes the halves apart: `follow` in
    /// [`Parts::on_every_replica`](crate::operator::Parts::on_every_replica), [`work`](Self::work) in
    /// [`Parts::controller`](crate::operator::Parts::controller).
    pub fn follow(&self, feeds: &Feeds) {
        // Until work begins, which asks for every object.
        self.queue.rest();
        let (managers, tokens) = (Managers::of(&self.marks.manager), self.tokens);
        let read = move |object: DeserializeGuard<K>| Observed::of(object, &managers, tokens);
        feeds.follow(paged(), self.store.clone(), read, self.changed());
        let woken = Woken { queue: self.queue.clone(), store: self.store.clone() };
        for follow in self.owned.values().filter_map(|(_, follow)| follow.as_ref()) {
            follow(feeds, &self.marks, &woken);
        }
    }

    /// What a change to an object does.
    fn changed(&self) -> impl Fn(&Change<Observed<K>>) + Clone + Send + 'static {
        let (queue, listener) = (self.queue.clone(), self.listener.clone());
        move |change| {
            if same(change) {
                return;
            }
            // What is gone is asked for too, to be forgotten.
            if let Some(object) = change.new.as_ref().or(change.old.as_ref()) {
                queue.add(Key::new(object.namespace(), object.name()));
            }
            if let Some(listener) = &listener {
                listener(change);
            }
        }
    }
}

/// By what children of a kind are found.
fn named<C: Resource<DynamicType = ()>>() -> (String, String) {
    let ApiResource { api_version, kind, .. } = ApiResource::erase::<C>(&());
    (api_version, kind)
}

impl<K: Kind> Woken<K> {
    /// A child wakes its owner, and the one that it had before.
    fn by_child(&self, change: &Change<Child>) {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && old.same(new)
        {
            return;
        }
        for child in [&change.old, &change.new].into_iter().flatten() {
            if let Some(owner) = child.owner().filter(|owner| self.store.get(child.namespace(), owner).is_some()) {
                self.queue.add(Key::new(child.namespace(), owner));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::operator::Switch;

    /// Somebody who makes and deletes invalid objects all day must not fill our memory. Without a finalizer, nobody sees
    /// such an object while it is going.
    #[tokio::test]
    async fn nothing_is_kept_of_what_was_said_of_an_object_that_is_gone() {
        let nowhere = tower::service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
        let stop = CancellationToken::new();
        let mut runtime = Runtime::new(kube::Client::new(nowhere, "default"), "default", stop.clone());
        runtime.webhooks = Switch::Off;
        let controller = Controller::<ConfigMap>::named("maps");
        let kit = Arc::new(controller.kit(&runtime));
        let validators = kit.validators.as_ref().unwrap();
        let mut map = ConfigMap::default();
        (map.metadata.namespace, map.metadata.name) = (Some("team".into()), Some("odd".into()));
        let old = Observed::of(DeserializeGuard(Ok(map)), &Managers::of("maps"), |_| Vec::new());
        let key = Key::new("team", "odd");
        assert!(validators.is_news(&key, "1", Some("odd")));
        assert!(!validators.is_news(&key, "1", Some("odd")), "it was said");
        assert!(validators.is_news(&key, "2", Some("odd")), "another object of this name");

        controller.changed()(&Change { old: Some(Arc::new(old)), new: None });
        let work = controller.queue.run(1, &stop, |asked| {
            let (kit, stop) = (kit.clone(), stop.clone());
            async move {
                stop.cancel();
                kit.reconcile(asked, &|_| ready(Ok::<_, Infallible>(Next::Wait))).await
            }
        });
        tokio::time::timeout(Duration::from_secs(30), work).await.expect("a deletion is asked for");
        assert!(validators.is_news(&key, "2", Some("odd")), "it is forgotten");
    }

    /// What such a reconcile makes outside of the cluster, no cleanup would ever take away.
    #[tokio::test]
    async fn an_object_that_went_before_its_finalizer_was_on_is_not_reconciled() {
        let (asked, mut patches) = tokio::sync::mpsc::unbounded_channel();
        let gone = tower::service_fn(move |request: Request<Body>| {
            let asked = asked.clone();
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let _ = asked.send(serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default());
                let status =
                    serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404});
                Ok::<_, Infallible>(
                    Response::builder().status(404).body(Body::from(status.to_string().into_bytes())).unwrap(),
                )
            }
        });
        let runtime = Runtime::new(kube::Client::new(gone, "default"), "default", CancellationToken::new());
        let controller = Controller::<ConfigMap>::named("maps")
            .finalizer("maps.example/hold", |_| ready(Ok::<_, Infallible>(Cleanup::Done)));
        let mut map = ConfigMap::default();
        (map.metadata.namespace, map.metadata.name) = (Some("team".into()), Some("brief".into()));
        (map.metadata.uid, map.metadata.resource_version) = (Some("first".into()), Some("7".into()));
        let known = Observed::of(DeserializeGuard(Ok(map)), &Managers::of("maps"), |_| Vec::new());
        controller.store.written(known, controller.store.begin());
        let kit = Arc::new(controller.kit(&runtime));
        let key = Key::new("team", "brief");
        let reconciled = std::sync::atomic::AtomicBool::new(false);
        let reconcile = |_: Pass<ConfigMap>| {
            reconciled.store(true, std::sync::atomic::Ordering::SeqCst);
            ready(Ok::<_, Infallible>(Next::Wait))
        };
        let next = kit.reconcile(key, &reconcile).await.map_err(|error| error.to_string());
        assert_eq!(next, Ok(Next::Wait));
        assert!(!reconciled.into_inner(), "it has no finalizer");
        let patch = patches.recv().await.unwrap();
        let uid = serde_json::json!({"op": "test", "path": "/metadata/uid", "value": "first"});
        assert!(patch.as_array().unwrap().contains(&uid), "a successor of its name is left alone: {patch}");
    }
}
