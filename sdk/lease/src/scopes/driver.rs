//! Watches what vouches for restricted operators, the Leases of those, and those of the leaders of cluster-wide ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{join, join_all, select};
use futures::stream::{BoxStream, StreamExt as _};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, ObjectList, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use portcullis_client::in_one_line;
use serde::de::DeserializeOwned;

use super::{Claim, Earlier, ScopeTiming, ScopeView};
use crate::changes::Hub;
use crate::limits::{LEADERS, REQUEST, until};
use crate::vouchers::{Kind, Vouchers, Vouching};
use crate::{Changes, Clock, Epoch, LeaseError, LeaseHandle, Moment, Ownership, Record, SystemClock};

/// A watch ends sooner than this by itself: the API server is asked to end it after 290 s.
const WATCH: Duration = Duration::from_mins(5);

/// A cluster-wide operator's view of all namespaces: which it owns, and which others do. Cheap to clone; every answer
/// is as of now.
///
/// A Lease counts only in a namespace that has a voucher ([`Vouchers`]). While there is none at all, no Lease of a
/// scope is read.
#[derive(Clone)]
pub struct Scopes(Arc<Shared>);

/// Watches the Leases and vouchers behind [`Scopes`].
pub struct ScopesDriver {
    shared: Arc<Shared>,
    client: Client,
    vouchers: Vouchers,
    names: BTreeSet<String>,
    leaders: Option<Leaders>,
}

/// The Leases of the leaders of cluster-wide installations: by a label, and how their names end.
#[derive(Debug)]
struct Leaders {
    label: String,
    ending: String,
}

/// The state of [`Scopes`], for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopesHealth {
    /// Whether the view is complete and recent enough to count.
    pub fresh: bool,
    /// How long ago the view was last complete; `None` before the first time.
    pub age: Option<Duration>,
    /// How many namespaces other operators own.
    pub theirs: usize,
    /// The earlier installation that leads instead of this one.
    pub ahead: Option<Earlier>,
    /// The error of the first watch that fails; `None` if all work.
    pub last_error: Option<String>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    hub: Hub,
    /// Whether to look at the Leases of scopes.
    looks: tokio::sync::watch::Sender<bool>,
    /// The Lease by which this installation leads, beside others.
    own: std::sync::OnceLock<LeaseHandle>,
}

struct State {
    view: ScopeView,
    vouching: Vouching,
    stopped: bool,
    /// By what is watched: what its last attempt failed of.
    errors: BTreeMap<String, String>,
}

impl Scopes {
    /// Follows the Leases of these names, in namespaces with one of the `vouchers`. Give several names to leave
    /// namespaces to other implementations or versions of the operator. Use a client that does not retry by itself
    /// (`kube::Config::default_retry`).
    ///
    /// # Errors
    /// [`LeaseError::Unnamed`] when there is no name.
    pub fn new(
        client: Client,
        names: &[&str],
        vouchers: Vouchers,
        timing: ScopeTiming,
    ) -> Result<(Self, ScopesDriver), LeaseError> {
        Self::with_clock(client, names, vouchers, timing, Arc::new(SystemClock::new()))
    }

    /// Like [`new`](Self::new), with another clock, for tests.
    ///
    /// # Errors
    /// [`LeaseError::Unnamed`] when there is no name.
    pub fn with_clock(
        client: Client,
        names: &[&str],
        vouchers: Vouchers,
        timing: ScopeTiming,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, ScopesDriver), LeaseError> {
        let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        if names.is_empty() || names.contains("") {
            return Err(LeaseError::Unnamed { field: "names" });
        }
        let view = ScopeView::new(timing, names.clone());
        let (vouching, errors) = (Vouching::default(), BTreeMap::new());
        let shared = Arc::new(Shared {
            clock,
            state: Mutex::new(State { view, vouching, stopped: false, errors }),
            hub: Hub::default(),
            looks: tokio::sync::watch::Sender::new(false),
            own: std::sync::OnceLock::new(),
        });
        let driver = ScopesDriver { shared: Arc::clone(&shared), client, vouchers, names, leaders: None };
        Ok((Self(shared), driver))
    }

    /// Who owns this namespace now. Check it at the start of a webhook and of a reconcile.
    pub fn owns(&self, namespace: &str) -> Ownership {
        self.0.with(|state, now| if state.stopped { Ownership::Unknown } else { state.view.owns(namespace, now) })
    }

    /// Whether the leader of this installation may write in the hold of this epoch: always, unless its driver runs
    /// [`among`](ScopesDriver::among) others.
    pub fn leads(&self, epoch: Epoch) -> bool {
        self.0.with(|state, now| !state.stopped && state.view.leads(epoch, now))
    }

    /// The earlier installation that leads instead of this one, which then only validates.
    pub fn ahead(&self) -> Option<Earlier> {
        self.0.with(|state, now| state.view.ahead(now))
    }

    /// Yields every namespace whose owner changed, and when it is known again who owns which.
    pub fn changes(&self) -> Changes {
        self.0.hub.listen()
    }

    /// Waits until it is known who owns which namespace, at most for `limit`.
    ///
    /// # Errors
    /// [`LeaseError::NotSynced`], with what is missing.
    pub async fn synced(&self, limit: Duration) -> Result<(), LeaseError> {
        let clock = &*self.0.clock;
        let mut changes = self.changes();
        let known = async {
            while !self.health().fresh {
                changes.next().await?;
            }
            Some(())
        };
        if let Some(Some(())) = until(clock, clock.now() + limit, known).await {
            return Ok(());
        }
        let reason = self.health().last_error.unwrap_or_else(|| "its driver does not run".to_owned());
        Err(LeaseError::NotSynced { waited: limit, reason })
    }

    /// The current state.
    pub fn health(&self) -> ScopesHealth {
        self.0.with(|state, now| ScopesHealth {
            fresh: !state.stopped && state.view.is_fresh(now),
            age: state.view.confirmed().map(|at| now.since(at)),
            theirs: state.view.theirs_count(),
            ahead: state.view.ahead(now),
            last_error: state.errors.values().next().cloned(),
        })
    }

    /// Every lease that is known, for metrics and diagnosis.
    pub fn claims(&self) -> Vec<Claim> {
        self.0.with(|state, now| state.view.claims(now))
    }
}

impl ScopesDriver {
    /// Runs beside other cluster-wide installations of the same operator. Each labels the Lease of its leader with
    /// `label`, as in `example.dev/operator=shop` ([`LeaseElection::label`](crate::LeaseElection::label)), and the
    /// Lease's name ends in `ending`. This installation's is `lease` in `namespace`, with the handle `own`. Of the
    /// installations that are alive, the one whose Lease was created first leads; the others only validate.
    ///
    /// The Leases are listed once and then watched. This installation's own renewals show that the watch works:
    /// [`ScopeTiming::hearing`] after the last one that came back, it stops leading.
    ///
    /// Whoever may create Leases decides how many there are: a list reads 500, [`Scopes::health`] tells if there are
    /// more, and the rest are read when they are renewed.
    #[must_use]
    pub fn among(mut self, label: &str, ending: &str, namespace: &str, lease: &str, own: LeaseHandle) -> Self {
        self.shared.with(|state, _| state.view.among(namespace, lease));
        // It is set once: a driver has one.
        let _ = self.shared.own.set(own);
        self.leaders = Some(Leaders { label: label.to_owned(), ending: ending.to_owned() });
        self
    }

    /// Watches until `shutdown` completes. Failed requests are retried and show in [`Scopes::health`]. While this does
    /// not run, every namespace is [`Ownership::Unknown`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let stopped = Stopped(Arc::clone(&self.shared));
        let vouchers = &self.vouchers;
        let follow = async {
            futures::join!(
                self.vouching(Kind::Configuration, |it: &ValidatingWebhookConfiguration| vouchers.configuration(it)),
                self.vouching(Kind::Policy, |it: &ValidatingAdmissionPolicy| vouchers.admission_policy(it)),
                self.vouching(Kind::Binding, |it: &ValidatingAdmissionPolicyBinding| vouchers.binding(it)),
                join_all(self.names.iter().map(|name| self.claims(name))),
                self.leaders(),
            );
        };
        let work = std::pin::pin!(join(follow, self.turn()));
        select(std::pin::pin!(shutdown), work).await;
        drop(stopped);
    }

    /// Lets what ends by itself end, and tells it.
    async fn turn(&self) {
        let clock = &*self.shared.clock;
        loop {
            let next = self.shared.with(|state, now| {
                state.view.advance(now);
                // What is seen later ends no sooner than a confirmation from now.
                let latest = now + state.view.timing().hearing();
                state.view.turns_at(now).map_or(latest, |at| at.min(latest))
            });
            clock.sleep_until(next).await;
        }
    }

    /// What vouches, of one kind. A watch for speed, and a list every now and then because a watch that says nothing may
    /// also be dead.
    async fn vouching<K>(&self, kind: Kind, namespace: impl Fn(&K) -> Option<String>)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    {
        let which = format!("{} of {}", kind.plural(), self.vouchers.selector());
        let selector = self.vouchers.selector();
        let of = Followed {
            shared: &self.shared,
            api: Api::<K>::all(self.client.clone()),
            list: ListParams::default().labels(&selector),
            watch: WatchParams::default().labels(&selector),
            which,
        };
        let take = |seen: Seen<'_, K>, begun| match seen {
            Seen::All(list, version) => {
                let found = list.iter().filter_map(|object| Some((object.name_any(), namespace(object)?))).collect();
                self.shared.vouching(|vouching| vouching.listed(kind, found, version, begun));
            }
            Seen::One(object, deleted) => {
                let stands = namespace(&object).filter(|_| !deleted);
                let version = object.resource_version().unwrap_or_default();
                self.shared.vouching(|vouching| vouching.see(kind, object.name_any(), stands, &version));
            }
        };
        of.follow(take, None).await;
    }

    /// The Leases of scopes of this name, while any namespace is vouched for; and once when it becomes known what vouches.
    async fn claims(&self, name: &str) {
        let mut looks = self.shared.looks.subscribe();
        let field = format!("metadata.name={name}");
        let of = Followed {
            shared: &self.shared,
            api: Api::<Lease>::all(self.client.clone()),
            list: ListParams::default().fields(&field),
            watch: WatchParams::default().fields(&field),
            which: format!("leases named {name}"),
        };
        let take = |seen: Seen<'_, Lease>, begun| match seen {
            Seen::All(list, version) => {
                let found = list.iter().filter_map(|lease| Some((lease.namespace()?, Record::from(lease)))).collect();
                self.shared.with(|state, now| state.view.listed(name, found, version, begun, now));
                self.shared.look();
            }
            Seen::One(lease, deleted) => {
                let Some(namespace) = lease.namespace() else { return };
                let record = Record::from(&lease);
                self.shared.with(|state, now| {
                    if deleted {
                        state.view.gone(&namespace, name, &record.version, now);
                    } else {
                        state.view.see(&namespace, name, record, now);
                    }
                });
            }
        };
        loop {
            // The sender is in what is shared: it outlives this.
            if looks.wait_for(|looks| *looks).await.is_err() {
                return;
            }
            let done = std::pin::pin!(looks.wait_for(|looks| !*looks));
            select(done, std::pin::pin!(of.follow(take, None))).await;
            self.shared.ended(&of.which, Ok(()));
        }
    }

    /// The Leases of leaders: listed when a watch begins, and watched from there.
    async fn leaders(&self) {
        let Some(Leaders { label, ending }) = &self.leaders else { return };
        let of = Followed {
            shared: &self.shared,
            api: Api::<Lease>::all(self.client.clone()),
            list: ListParams::default().labels(label).limit(LEADERS),
            watch: WatchParams::default().labels(label),
            which: format!("leases labelled {label}"),
        };
        let take = |seen: Seen<'_, Lease>, begun| match seen {
            Seen::All(list, version) => {
                let all = list.metadata.continue_.as_ref().is_none_or(String::is_empty);
                let found = list.iter().filter(|lease| lease.name_any().ends_with(ending));
                let found = found.filter_map(|lease| Some((lease.namespace()?, lease.name_any(), Record::from(lease))));
                let found = found.collect();
                self.shared.with(|state, now| state.view.leaders_listed(found, all, version, begun, now));
            }
            Seen::One(lease, deleted) => {
                let (Some(namespace), name) = (lease.namespace(), lease.name_any()) else { return };
                if name.ends_with(ending) {
                    let record = Record::from(&lease);
                    let crowded = self.shared.with(|state, now| {
                        if deleted {
                            state.view.leader_gone(&namespace, &name, &record.version, now);
                        } else {
                            state.view.see_leader(&namespace, &name, record, now);
                        }
                        state.view.is_crowded()
                    });
                    if crowded {
                        let which = format!("leases labelled {label}");
                        self.shared.ended(&which, Err(LeaseError::Many { which: which.clone(), limit: LEADERS }));
                    }
                }
            }
        };
        of.follow(take, Some(&|| self.shared.is_deaf())).await;
    }
}

/// What a list or a watch brought.
enum Seen<'a, K: Clone> {
    /// All of them, as of this version.
    All(&'a ObjectList<K>, &'a str),
    /// One that came or changed, or that was deleted.
    One(K, bool),
}

/// A watch, and when it was begun.
type Watch<'a, K> = (Moment, BoxStream<'a, Result<WatchEvent<K>, kube::Error>>);

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
    /// Lists, and watches from there. That the watch lives is confirmed by a list every now and then; or, where something
    /// else shows it, the list is left out until `dead` says that it does not.
    async fn follow(&self, take: impl Fn(Seen<'_, K>, Moment), dead: Option<&(dyn Fn() -> bool + Sync)>) {
        let clock = &*self.shared.clock;
        let timing = self.shared.with(|state, _| *state.view.timing());
        let limit = REQUEST.min(timing.hearing());
        let mut watch: Option<Watch<'_, K>> = None;
        loop {
            let begun = clock.now();
            let outcome = self.list(&mut watch, limit, &take).await;
            let pause = if outcome.is_ok() { timing.confirm() } else { timing.hearing() / 3 };
            self.shared.ended(&self.which, outcome);
            // However often a watch ends, and whatever fails: never more than one list in that time.
            let soonest = begun + timing.hearing() / 3;
            loop {
                let now = clock.now();
                let Some((since, stream)) = &mut watch else { break clock.sleep_until(soonest.max(now)).await };
                let next = if let Some(dead) = dead {
                    if (dead() && now >= soonest) || now >= *since + WATCH {
                        watch = None;
                        continue;
                    }
                    now + timing.hearing() / 8
                } else {
                    begun + pause
                };
                match until(clock, next, stream.next()).await {
                    Some(Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)))) => {
                        take(Seen::One(object, false), now);
                    }
                    Some(Some(Ok(WatchEvent::Deleted(object)))) => take(Seen::One(object, true), now),
                    Some(Some(Ok(WatchEvent::Bookmark(_)))) => {}
                    // Ended, as each does after some minutes, or broken: the next list begins another.
                    Some(_) => watch = None,
                    None if dead.is_none() => break,
                    None => {}
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
        let error = |action, source| LeaseError::Watch { action, which: self.which.clone(), source: Box::new(source) };
        let late = |action| LeaseError::Late { action, what: self.which.clone(), limit };
        let begun = clock.now();
        let listed = until(clock, begun + limit, self.api.list(&self.list)).await;
        let list = listed.ok_or_else(|| late("list"))?.map_err(|source| error("list", source))?;
        let version = list.metadata.resource_version.as_deref().unwrap_or_default();
        take(Seen::All(&list, version), begun);
        if watch.is_none() {
            let since = clock.now();
            let watched = until(clock, since + limit, self.api.watch(&self.watch, version)).await;
            let stream = watched.ok_or_else(|| late("watch"))?.map_err(|source| error("watch", source))?;
            *watch = Some((since, stream.boxed()));
        }
        if list.metadata.continue_.as_ref().is_some_and(|token| !token.is_empty()) {
            return Err(LeaseError::Many { which: self.which.clone(), limit: LEADERS });
        }
        Ok(())
    }
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut State, Moment) -> T) -> T {
        let written = self.written();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Inside the lock: moments that reach the view do not go backwards.
        let now = self.clock.now();
        if let Some((begun, version)) = written {
            state.view.heard(begun, &version, now);
        }
        let result = act(&mut state, now);
        let changes = state.view.take_changes();
        drop(state);
        self.hub.tell(changes);
        result
    }

    /// The last write of our leader's that was answered: when it was begun, by our clock and no later, and its version.
    fn written(&self) -> Option<(Moment, String)> {
        let now = self.clock.now();
        let (age, version) = self.own.get()?.written()?;
        Some((Moment::since_origin(now.since(Moment::default()).saturating_sub(age)), version))
    }

    /// Whether a write of our leader's did not come back on the watch.
    fn is_deaf(&self) -> bool {
        let Some((begun, version)) = self.written() else { return false };
        self.with(|state, now| state.view.is_deaf(begun, &version, now))
    }

    /// Takes in what is seen of vouchers.
    fn vouching(&self, act: impl FnOnce(&mut Vouching)) {
        self.with(|state, now| {
            act(&mut state.vouching);
            if let Some(listed) = state.vouching.listed_at() {
                state.view.vouched(state.vouching.namespaces(), Some(listed), now);
            }
        });
        self.look();
    }

    /// Begins or ends to look at the Leases of scopes.
    fn look(&self) {
        let looks = self.with(|state, _| state.view.looks());
        self.looks.send_if_modified(|before| std::mem::replace(before, looks) != looks);
    }

    /// Remembers how an attempt to know these ended.
    fn ended(&self, which: &str, outcome: Result<(), LeaseError>) {
        let Err(error) = outcome else { return self.with(|state, _| drop(state.errors.remove(which))) };
        let error = in_one_line(&error);
        let before = self.with(|state, _| state.errors.insert(which.to_owned(), error.clone()));
        // In an outage it is the same one every second.
        if before.as_ref() != Some(&error) {
            tracing::warn!(
                error,
                "cannot tell who owns which namespace; not writing where that is unknown, and retrying"
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
        f.debug_struct("ScopesDriver").field("names", &self.names).finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
