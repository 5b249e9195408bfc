//! Watches the Leases of restricted operators, and of the leaders of cluster-wide ones, in all namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{join_all, select};
use futures::stream::{BoxStream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, ObjectList, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};

use super::{Claim, Earlier, ScopeTiming, ScopeView};
use crate::changes::Hub;
use crate::limits::{LEADERS, REQUEST, until};
use crate::{Changes, Clock, Epoch, LeaseError, Moment, Ownership, Record, SystemClock};

/// Whether a Lease counts, by its namespace and what it says.
type Recognized = dyn Fn(&str, &Record) -> bool + Send + Sync;

/// What a cluster-wide operator knows of all namespaces. Cheap to clone; every answer is as of now.
///
/// Anyone who may create a Lease of that name in a namespace takes the cluster-wide operator off it. Let it count only
/// what the restricted operators' installation vouches for: [`Scopes::recognizing`].
#[derive(Clone)]
pub struct Scopes(Arc<Shared>);

/// Does what has to be done for [`Scopes`].
#[derive(Debug)]
pub struct ScopesDriver {
    shared: Arc<Shared>,
    api: Api<Lease>,
    watched: Vec<Watched>,
}

/// Leases that are watched.
#[derive(Debug)]
enum Watched {
    /// Those of restricted operators, by their name.
    Scopes(String),
    /// Those of the leaders of cluster-wide installations, by a label and how their names end.
    Leaders { label: String, ending: String },
}

impl Watched {
    /// In words.
    fn which(&self) -> String {
        match self {
            Self::Scopes(name) => format!("named {name}"),
            Self::Leaders { label, .. } => format!("labelled {label}"),
        }
    }
}

/// How the watch on scopes is, for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopesHealth {
    /// Whether what is known counts.
    pub fresh: bool,
    /// How long ago what is known was complete; none before the first time.
    pub age: Option<Duration>,
    /// How many namespaces are another's.
    pub theirs: usize,
    /// The installation that this one stands back for.
    pub ahead: Option<Earlier>,
    /// What is wrong, of the first of what is watched with which something is; none when all is well.
    pub last_error: Option<String>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    recognized: Box<Recognized>,
    state: Mutex<State>,
    hub: Hub,
}

struct State {
    view: ScopeView,
    stopped: bool,
    /// By what is watched: what its last attempt failed of.
    errors: BTreeMap<String, String>,
}

impl Scopes {
    /// Leases of these names, in all namespaces. Several, where operators of other makes or ages have to be left alone.
    ///
    /// # Errors
    /// [`LeaseError::Unnamed`] when there is none.
    pub fn new(client: Client, names: &[&str], timing: ScopeTiming) -> Result<(Self, ScopesDriver), LeaseError> {
        Self::recognizing(client, names, timing, Arc::new(SystemClock::new()), |_, _| true)
    }

    /// The same with another clock, and counting only Leases for which `recognized` says so: it is given the namespace
    /// and what the Lease says, and asked again for every Lease about every [`ScopeTiming::confirm`].
    ///
    /// # Errors
    /// [`LeaseError::Unnamed`] when there is no name.
    pub fn recognizing(
        client: Client,
        names: &[&str],
        timing: ScopeTiming,
        clock: Arc<dyn Clock>,
        recognized: impl Fn(&str, &Record) -> bool + Send + Sync + 'static,
    ) -> Result<(Self, ScopesDriver), LeaseError> {
        let names: BTreeSet<&str> = names.iter().copied().collect();
        if names.is_empty() || names.contains("") {
            return Err(LeaseError::Unnamed { field: "names" });
        }
        let view = ScopeView::new(timing, names.iter().copied());
        let state = Mutex::new(State { view, stopped: false, errors: BTreeMap::new() });
        let shared = Arc::new(Shared { clock, recognized: Box::new(recognized), state, hub: Hub::default() });
        let watched = names.into_iter().map(|name| Watched::Scopes(name.to_owned())).collect();
        let driver = ScopesDriver { shared: Arc::clone(&shared), api: Api::all(client), watched };
        Ok((Self(shared), driver))
    }

    /// Who owns this namespace now. Ask at the entry of a webhook and of a reconcile.
    pub fn owns(&self, namespace: &str) -> Ownership {
        self.0.with(|state, now| if state.stopped { Ownership::Unknown } else { state.view.owns(namespace, now) })
    }

    /// Whether the leader of this installation may act in the hold of this epoch: always, unless its driver is
    /// [`among`](ScopesDriver::among) others.
    pub fn leads(&self, epoch: Epoch) -> bool {
        self.0.with(|state, now| !state.stopped && state.view.leads(epoch, now))
    }

    /// The installation that this one stands back for: it goes on checking, and never writes.
    pub fn ahead(&self) -> Option<Earlier> {
        self.0.with(|state, now| state.view.ahead(now))
    }

    /// Tells every namespace whose owner changed, and when it is known again who owns what.
    pub fn changes(&self) -> Changes {
        self.0.hub.listen()
    }

    /// Waits until it is known who owns what, at most for `limit`.
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

    /// How it is now.
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
    /// Beside other cluster-wide installations of the same operator: each labels the Lease of its leader with `label`, as in
    /// `example.dev/operator=shop` ([`Campaign::label`](crate::Campaign::label)), and its name ends in `ending`; ours is `lease` in
    /// `namespace`. Of those that are alive, the one whose Lease was created first acts, and the others stand back.
    ///
    /// How many there are is for whoever may create Leases to choose: a list takes in 500, says so in [`Scopes::health`] where
    /// there are more, and takes in the rest when they are renewed.
    #[must_use]
    pub fn among(mut self, label: &str, ending: &str, namespace: &str, lease: &str) -> Self {
        self.shared.with(|state, _| state.view.among(namespace, lease));
        self.watched.push(Watched::Leaders { label: label.to_owned(), ending: ending.to_owned() });
        self
    }

    /// Watches until `shutdown` ends. What fails is tried again and shows in [`Scopes::health`]; without this running,
    /// every namespace is [`Ownership::Unknown`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let stopped = Stopped(Arc::clone(&self.shared));
        let follow = join_all(self.watched.iter().map(|what| self.follow(what)));
        let work = std::pin::pin!(futures::future::join(follow, self.turn()));
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
                let latest = now + state.view.confirm();
                state.view.turns_at(now).map_or(latest, |at| at.min(latest))
            });
            clock.sleep_until(next).await;
        }
    }

    /// A watch for speed, and a list every now and then because a watch that says nothing may also be dead.
    async fn follow(&self, what: &Watched) {
        let clock = &*self.shared.clock;
        let which = what.which();
        let (list, watching) = match what {
            Watched::Scopes(name) => {
                let field = format!("metadata.name={name}");
                (ListParams::default().fields(&field), WatchParams::default().fields(&field))
            }
            Watched::Leaders { label, .. } => {
                (ListParams::default().labels(label).limit(LEADERS), WatchParams::default().labels(label))
            }
        };
        let mut watch: Option<BoxStream<'_, Result<WatchEvent<Lease>, kube::Error>>> = None;
        let confirm = self.shared.with(|state, _| state.view.confirm());
        loop {
            let begun = clock.now();
            let limit = REQUEST.min(self.shared.with(|state, _| state.view.freshness()));
            let listed = until(clock, begun + limit, self.api.list(&list)).await;
            let outcome = match listed {
                Some(Ok(list)) => {
                    let all = self.shared.listed(what, &list, begun);
                    let version = list.metadata.resource_version.unwrap_or_default();
                    let watched = match watch {
                        Some(_) => Ok(()),
                        None => match until(clock, clock.now() + limit, self.api.watch(&watching, &version)).await {
                            Some(Ok(stream)) => {
                                watch = Some(stream.boxed());
                                Ok(())
                            }
                            Some(Err(error)) => Err(watch_error("watch", &which, error)),
                            None => Err(late("watch", &which, limit)),
                        },
                    };
                    watched.and(if all {
                        Ok(())
                    } else {
                        Err(LeaseError::Many { which: which.clone(), limit: LEADERS })
                    })
                }
                Some(Err(error)) => Err(watch_error("list", &which, error)),
                None => Err(late("list", &which, limit)),
            };
            self.shared.ended(&which, outcome);
            // A failure waits as long as a success: never more than one list in that time.
            let next = begun + confirm;
            while let Some(stream) = &mut watch {
                match until(clock, next, stream.next()).await {
                    Some(Some(Ok(event))) => {
                        if !self.shared.event(what, event) {
                            watch = None;
                        }
                    }
                    // Ended, as each does after some minutes, or broken: the next list begins another.
                    Some(_) => watch = None,
                    None => break,
                }
            }
            clock.sleep_until(next).await;
        }
    }
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut State, Moment) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Inside the lock: moments that reach the view do not go backwards.
        let result = act(&mut state, self.clock.now());
        let changes = state.view.take_changes();
        drop(state);
        self.hub.tell(changes);
        result
    }

    /// Returns whether these are all.
    fn listed(&self, what: &Watched, list: &ObjectList<Lease>, begun: Moment) -> bool {
        let all = list.metadata.continue_.as_ref().is_none_or(String::is_empty);
        let version = list.metadata.resource_version.as_deref().unwrap_or_default();
        let found = list.iter().filter_map(|lease| Some((lease.namespace()?, lease.name_any(), Record::from(lease))));
        match what {
            Watched::Scopes(name) => {
                let counted = found.filter(|(namespace, _, record)| (self.recognized)(namespace, record));
                let found = counted.map(|(namespace, _, record)| (namespace, record)).collect();
                self.with(|state, now| state.view.listed(name, found, version, begun, now));
            }
            Watched::Leaders { ending, .. } => {
                let found = found.filter(|(_, name, _)| name.ends_with(ending)).collect();
                self.with(|state, now| state.view.leaders_listed(found, all, version, begun, now));
            }
        }
        all
    }

    /// Returns whether the watch can go on.
    fn event(&self, what: &Watched, event: WatchEvent<Lease>) -> bool {
        let (lease, deleted) = match event {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => (lease, false),
            WatchEvent::Deleted(lease) => (lease, true),
            WatchEvent::Bookmark(_) => return true,
            WatchEvent::Error(_) => return false,
        };
        let Some(namespace) = lease.namespace() else { return true };
        let record = Record::from(&lease);
        match what {
            Watched::Scopes(name) => {
                let counts = !deleted && (self.recognized)(&namespace, &record);
                self.with(|state, now| {
                    if counts {
                        state.view.see(&namespace, name, record, now);
                    } else {
                        state.view.gone(&namespace, name, &record.version, now);
                    }
                });
            }
            Watched::Leaders { ending, .. } => {
                let name = lease.name_any();
                if !name.ends_with(ending) {
                    return true;
                }
                self.with(|state, now| {
                    if deleted {
                        state.view.leader_gone(&namespace, &name, &record.version, now);
                    } else {
                        state.view.see_leader(&namespace, &name, record, now);
                    }
                });
            }
        }
        true
    }

    /// Remembers how an attempt to know these ended.
    fn ended(&self, which: &str, outcome: Result<(), LeaseError>) {
        let Err(error) = outcome else { return self.with(|state, _| drop(state.errors.remove(which))) };
        let error = error.with_causes();
        let before = self.with(|state, _| state.errors.insert(which.to_owned(), error.clone()));
        // In an outage it is the same one every second.
        if before.as_ref() != Some(&error) {
            tracing::warn!(error, "the leases of all namespaces are not all known; it is tried again");
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

fn watch_error(action: &'static str, which: &str, error: kube::Error) -> LeaseError {
    LeaseError::Watch { action, which: which.to_owned(), source: Box::new(error) }
}

fn late(action: &'static str, which: &str, limit: Duration) -> LeaseError {
    LeaseError::Late { action, what: format!("the Leases {which}"), limit }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scopes").field(&self.0).finish()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
