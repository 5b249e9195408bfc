//! Watches the objects that hand namespaces over to restricted operators, and the Leases of those operators.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use futures::stream::{BoxStream, StreamExt as _};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, ObjectList, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use portcullis_client::error_chain;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{ScopeTiming, ScopeView};
use crate::changes::Hub;
use crate::handovers::{Handovers, Kind, of_binding, of_policy};
use crate::limits::{REQUEST, until};
use crate::record::Record;
use crate::time::{Clock, Moment, SystemClock};
use crate::{LeaseError, Ownership};

/// The label that says which operator an object belongs to.
const OPERATOR: &str = "app.kubernetes.io/name";
/// The longest that one watch is read. The API server is asked to end each after 290 s.
const WATCH: Duration = Duration::from_mins(5);

/// A cluster-wide operator's view of all namespaces: which it owns, and which others do. Cheap to clone; every answer
/// is as of now.
///
/// A Lease counts only in a namespace that an administrator has handed over ([`handed_over`](crate::handed_over)).
/// While there is none, no Lease of a scope is watched. Between questions nothing is requested but the watches.
#[derive(Clone)]
pub struct Scopes(Arc<Shared>);

/// Watches the Leases and policies behind [`Scopes`].
pub struct ScopesDriver {
    shared: Arc<Shared>,
    client: Client,
    operator: String,
    lease: String,
}

/// The state of [`Scopes`], for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScopesHealth {
    /// Whether the view is complete and recent enough to count.
    pub(crate) fresh: bool,
    /// The age of the last complete view; `None` before the first one.
    pub(crate) age: Option<Duration>,
    /// The number of namespaces that other operators own.
    pub(crate) theirs: usize,
    /// The error of the first watch that fails; `None` if all work.
    pub(crate) last_error: Option<String>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    hub: Hub,
    needs: watch::Sender<Needs>,
}

/// The view's needs, and whether it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Needs {
    list: bool,
    leases: bool,
    fresh: bool,
}

struct State {
    view: ScopeView,
    handovers: Handovers,
    stopped: bool,
    /// The error of the last attempt, by the objects that were to be read.
    errors: BTreeMap<String, String>,
}

impl Scopes {
    /// Follows the Leases named `lease` of the operator of this name. The driver gives each list, and each
    /// start of a watch, up after five seconds at most, and tries again: a client may retry by itself.
    ///
    /// # Errors
    /// [`LeaseError::Invalid`] when a name is empty.
    pub fn new(
        client: Client,
        operator: &str,
        lease: &str,
        timing: ScopeTiming,
    ) -> Result<(Self, ScopesDriver), LeaseError> {
        Self::with_clock(client, operator, lease, timing, Arc::new(SystemClock::new()))
    }

    /// Like [`new`](Self::new), with another clock.
    pub(crate) fn with_clock(
        client: Client,
        operator: &str,
        lease: &str,
        timing: ScopeTiming,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, ScopesDriver), LeaseError> {
        LeaseError::check_names(&[("operator", operator), ("lease", lease)])?;
        let view = ScopeView::new(timing);
        let (handovers, errors) = (Handovers::default(), BTreeMap::new());
        let shared = Arc::new(Shared {
            clock,
            state: Mutex::new(State { view, handovers, stopped: false, errors }),
            hub: Hub::default(),
            needs: watch::Sender::default(),
        });
        let (operator, lease) = (operator.to_owned(), lease.to_owned());
        let driver = ScopesDriver { shared: Arc::clone(&shared), client, operator, lease };
        Ok((Self(shared), driver))
    }

    /// Returns the owner of this namespace, as far as that is known now.
    pub(crate) fn owns(&self, namespace: &str) -> Ownership {
        self.0.with(|state, now| if state.stopped { Ownership::Unknown } else { state.view.owns(namespace, now) })
    }

    /// Answers as [`owns`](Self::owns), for reviews: a list follows only where another's ownership has to be confirmed.
    pub(crate) fn peek(&self, namespace: &str) -> Ownership {
        self.0.with(|state, now| if state.stopped { Ownership::Unknown } else { state.view.peek(namespace, now) })
    }

    /// Returns the owner of this namespace now. Where the view is old, this waits for a list, at most five seconds.
    pub(crate) async fn confirmed(&self, namespace: &str) -> Ownership {
        let clock = &*self.0.clock;
        let mut needs = self.0.needs.subscribe();
        self.0.with(|state, now| state.view.ask(now));
        until(clock, clock.now() + REQUEST, needs.wait_for(|needs| needs.fresh)).await;
        self.owns(namespace)
    }

    /// Yields every namespace whose owner changed, and when it is known again who owns which.
    pub(crate) fn changes(&self) -> crate::changes::Changes {
        self.0.hub.listen()
    }

    /// The reason why owners are not known; `None` if they are.
    pub fn unknown(&self) -> Option<String> {
        self.0.with(|state, now| state.view.ask(now));
        let health = self.health();
        (!health.fresh).then(|| health.last_error.unwrap_or_else(|| "there was no answer yet".to_owned()))
    }

    /// The current state.
    pub(crate) fn health(&self) -> ScopesHealth {
        self.0.with(|state, now| ScopesHealth {
            fresh: !state.stopped && state.view.is_fresh(now),
            age: state.view.confirmed().map(|at| now.since(at)),
            theirs: state.view.excluded_namespaces(),
            last_error: state.errors.values().next().cloned(),
        })
    }
}

impl ScopesDriver {
    /// Watches until `shutdown` completes. Failed requests are retried and show in [`Scopes::unknown`]. While this does
    /// not run, every namespace is [`Ownership::Unknown`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let stopped = Stopped(Arc::clone(&self.shared));
        let lease = &self.lease;
        let follow = async {
            futures::join!(
                self.handovers(Kind::Policy, |it: &ValidatingAdmissionPolicy| of_policy(lease, it)),
                self.handovers(Kind::Binding, |it: &ValidatingAdmissionPolicyBinding| of_binding(lease, it)),
                self.leases(),
                self.tick(),
            );
        };
        select(pin!(shutdown), pin!(follow)).await;
        drop(stopped);
    }

    /// Updates the view whenever it changes by time alone.
    async fn tick(&self) {
        let clock = &*self.shared.clock;
        loop {
            let next = self.shared.with(|state, now| {
                state.view.tick(now);
                // A change that is seen later ends no sooner than a pause from now.
                let latest = now + state.view.timing().pause();
                state.view.next_deadline(now).map_or(latest, |at| at.min(latest))
            });
            clock.sleep_until(next).await;
        }
    }

    /// Follows the objects of one kind that hand namespaces over.
    async fn handovers<K>(&self, kind: Kind, namespace: impl Fn(&K) -> Option<String>)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    {
        let selector = format!("{OPERATOR}={}", self.operator);
        let of = Followed {
            shared: &self.shared,
            api: Api::<K>::all(self.client.clone()),
            list: ListParams::default().labels(&selector),
            watch: WatchParams::default().labels(&selector),
            which: format!("{} of {selector}", K::plural(&())),
        };
        let take = |seen: Seen<'_, K>, begun| match seen {
            Seen::All(list, version) => {
                let found = list.iter().filter_map(|object| Some((object.name_any(), namespace(object)?))).collect();
                self.shared.handovers(|handovers| handovers.listed(kind, found, version, begun));
            }
            Seen::One(object, deleted) => {
                let namespace = namespace(&object).filter(|_| !deleted);
                let version = object.resource_version().unwrap_or_default();
                self.shared.handovers(|handovers| handovers.see(kind, object.name_any(), namespace, &version));
            }
        };
        of.follow(take).await;
    }

    /// Follows the Leases of scopes while the view needs them.
    async fn leases(&self) {
        let mut needs = self.shared.needs.subscribe();
        let field = format!("metadata.name={}", self.lease);
        let of = Followed {
            shared: &self.shared,
            api: Api::<Lease>::all(self.client.clone()),
            list: ListParams::default().fields(&field),
            watch: WatchParams::default().fields(&field),
            which: format!("leases named {}", self.lease),
        };
        let take = |seen: Seen<'_, Lease>, begun| match seen {
            Seen::All(list, version) => {
                let found = list.iter().filter_map(|lease| Some((lease.namespace()?, Record::from(lease)))).collect();
                self.shared.with(|state, now| state.view.listed(found, version, begun, now));
            }
            Seen::One(lease, deleted) => {
                let Some(namespace) = lease.namespace() else { return };
                let record = Record::from(&lease);
                self.shared.with(|state, now| {
                    if deleted {
                        state.view.gone(&namespace, &record.version, now);
                    } else {
                        state.view.see(&namespace, record, now);
                    }
                });
            }
        };
        loop {
            // The sender is in the shared state, which outlives this.
            if needs.wait_for(|needs| needs.leases).await.is_err() {
                return;
            }
            let done = pin!(needs.wait_for(|needs| !needs.leases));
            select(done, pin!(of.follow(&take))).await;
            self.shared.ended(&of.which, Ok(()));
        }
    }
}

/// An answer of a list or a watch.
enum Seen<'a, K: Clone> {
    /// All objects, as of this version.
    All(&'a ObjectList<K>, &'a str),
    /// An object that was created, changed or deleted.
    One(K, bool),
}

/// A watch, and the latest time of its end.
struct Watch<'a, K> {
    stream: BoxStream<'a, Result<WatchEvent<K>, kube::Error>>,
    ends: Moment,
}

/// Objects of a kind that are listed and watched.
struct Followed<'a, K> {
    shared: &'a Shared,
    api: Api<K>,
    list: ListParams,
    watch: WatchParams,
    which: String,
}

impl<K> Followed<'_, K>
where
    K: Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    /// Lists, and watches from there. A silent watch may be dead, so the view counts for a short time only; when
    /// it is needed after that, a list confirms it.
    async fn follow(&self, take: impl Fn(Seen<'_, K>, Moment)) {
        let timing = self.shared.with(|state, _| state.view.timing());
        let limit = REQUEST.min(timing.pause());
        let mut watch = None;
        loop {
            let begun = self.shared.clock.now();
            let outcome = self.list(&mut watch, limit, &take).await;
            let failed = outcome.is_err();
            self.shared.ended(&self.which, outcome);
            self.watch_until_due(&mut watch, begun, failed, timing, &take).await;
        }
    }

    /// Takes the events of the watch until the next list is due. However often a watch ends, and whatever fails, there
    /// is never more than one list in [`ScopeTiming::pause`].
    async fn watch_until_due(
        &self,
        watch: &mut Option<Watch<'_, K>>,
        begun: Moment,
        failed: bool,
        timing: ScopeTiming,
        take: &impl Fn(Seen<'_, K>, Moment),
    ) {
        let clock = &*self.shared.clock;
        let soonest = begun + timing.pause();
        let Some(Watch { stream, ends }) = watch else { return clock.sleep_until(soonest).await };
        let ends = *ends;
        let mut due = pin!(async {
            if failed {
                return clock.sleep_until(soonest).await;
            }
            until(clock, ends, self.shared.list_needed()).await;
            clock.sleep_until(begun + timing.confirm()).await;
        });
        loop {
            match select(due.as_mut(), stream.next()).await {
                Either::Left(_) => {
                    if clock.now() >= ends {
                        *watch = None;
                    }
                    return;
                }
                Either::Right((Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))), _)) => {
                    take(Seen::One(object, false), clock.now());
                }
                Either::Right((Some(Ok(WatchEvent::Deleted(object))), _)) => {
                    take(Seen::One(object, true), clock.now());
                }
                Either::Right((Some(Ok(WatchEvent::Bookmark(_))), _)) => {}
                // The watch ended, as each does after some minutes, or failed: the next list starts another.
                Either::Right((Some(Err(_) | Ok(WatchEvent::Error(_))) | None, _)) => {
                    *watch = None;
                    return clock.sleep_until(soonest).await;
                }
            }
        }
    }

    async fn list<'a>(
        &'a self,
        watch: &mut Option<Watch<'a, K>>,
        limit: Duration,
        take: &impl Fn(Seen<'_, K>, Moment),
    ) -> Result<(), LeaseError> {
        let clock = &*self.shared.clock;
        let what = || format!("{} in all namespaces", self.which);
        let error = |action, source| LeaseError::Request { action, what: what(), source: Box::new(source) };
        let late = |action| LeaseError::Late { action, what: what(), limit };
        let begun = clock.now();
        let listed = until(clock, begun + limit, self.api.list(&self.list)).await;
        let list = listed.ok_or_else(|| late("list"))?.map_err(|source| error("list", source))?;
        let version = list.metadata.resource_version.as_deref().unwrap_or_default();
        take(Seen::All(&list, version), begun);
        if watch.is_none() {
            let now = clock.now();
            let watched = until(clock, now + limit, self.api.watch(&self.watch, version)).await;
            let stream = watched.ok_or_else(|| late("watch"))?.map_err(|source| error("watch", source))?;
            *watch = Some(Watch { stream: stream.boxed(), ends: now + WATCH });
        }
        Ok(())
    }
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut State, Moment) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Inside the lock: moments that reach the view do not go backwards.
        let now = self.clock.now();
        let result = act(&mut state, now);
        let changes = state.view.take_changes();
        let needs = Needs {
            list: state.view.needs_list(),
            leases: state.view.needs_leases(),
            fresh: !state.stopped && state.view.is_fresh(now),
        };
        self.needs.send_if_modified(|before| std::mem::replace(before, needs) != needs);
        drop(state);
        self.hub.notify(changes);
        result
    }

    /// Waits until a list is needed.
    async fn list_needed(&self) {
        // The sender is in this.
        _ = self.needs.subscribe().wait_for(|needs| needs.list).await;
    }

    /// Takes a change of the objects that hand namespaces over.
    fn handovers(&self, act: impl FnOnce(&mut Handovers)) {
        self.with(|state, now| {
            act(&mut state.handovers);
            if let Some(listed) = state.handovers.listed_at() {
                state.view.handed_over(state.handovers.namespaces(), Some(listed), now);
            }
        });
    }

    /// Records the outcome of an attempt to read these.
    fn ended(&self, which: &str, outcome: Result<(), LeaseError>) {
        let Err(error) = outcome else { return self.with(|state, _| drop(state.errors.remove(which))) };
        let error = error_chain(&error);
        let before = self.with(|state, _| state.errors.insert(which.to_owned(), error.clone()));
        // An outage repeats the same error every second.
        if before.as_ref() != Some(&error) {
            tracing::warn!(
                error,
                objects = which,
                "cannot read which namespaces other operators own; controllers write only where that is known, retrying"
            );
        }
    }
}

struct Stopped(Arc<Shared>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.with(|state, _| state.stopped = true);
        self.0.hub.end();
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scopes").field(&self.0).finish()
    }
}

impl fmt::Debug for ScopesDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopesDriver").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
