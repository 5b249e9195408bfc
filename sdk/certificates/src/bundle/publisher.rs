//! Maintains the bundle of one object.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::ByteString;
use kube::api::PatchParams;
use kube::{Api, Client};
use portcullis_pki::bundle_fingerprints;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::state::{State, Wanted};
use super::target::{BundleTarget, Entry, object};
use super::{Bundle, Origin};
use crate::follow::follow;
use crate::pauses::{Pauses, pauses};
use portcullis_client::error_message;

/// First and longest pause between two writes to one object, whether the first failed or was undone.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(500);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The timeout of reading the Secret, which counts more than an earlier copy of it.
const DOUBT: Duration = Duration::from_secs(20);
/// The longest time of one write.
const WRITE: Duration = Duration::from_secs(30);

/// Maintains one object: reports its state, and writes the bundle where it differs.
pub(super) struct Publisher<'a, C> {
    bundle: &'a Bundle,
    api: Api<C>,
    name: &'a str,
    /// The names of its entries that are ours.
    ours: &'a [String],
    /// The object as it was seen last; `None` if it does not exist.
    live: Option<Arc<C>>,
    /// The entries of `ours` that the object lacked when it was seen last.
    unregistered: Vec<&'a String>,
    /// The Service of another installation that it calls, as it was logged last.
    others: Option<String>,
    /// No write before this.
    not_before: Instant,
    pauses: Pauses,
    /// The time since when every write first reads the Secret again.
    doubted: Option<Instant>,
    /// The bundle that was written last: if another one is there now, another client wrote it.
    last_written: Option<Arc<str>>,
}

impl<'a, C: BundleTarget> Publisher<'a, C> {
    pub(super) fn new(bundle: &'a Bundle, client: &Client, name: &'a str, ours: &'a [String]) -> Self {
        Self {
            bundle,
            api: Api::all(client.clone()),
            name,
            ours,
            live: None,
            unregistered: Vec::new(),
            others: None,
            not_before: Instant::now(),
            pauses: pauses(bundle.first_pause, LONGEST_PAUSE),
            doubted: None,
            last_written: None,
        }
    }

    /// Watches the object forever.
    pub(super) async fn follow(mut self) {
        let mut versions = std::pin::pin!(follow(self.api.clone(), self.name));
        let mut wanted = self.bundle.wanted.subscribe();
        let (mut seen, mut due) = (false, None::<Instant>);
        loop {
            tokio::select! {
                version = versions.next() => match version {
                    Some(Ok(version)) => (self.live, seen) = (version.map(Arc::new), true),
                    Some(Err(error)) => {
                        let error = error_message(&error);
                        warn!(error, object = object::<C>(self.name), "cannot watch the object that the CA is published in; retrying");
                        if self.live.is_none() {
                            self.stands(State::Waits(error));
                        }
                        continue;
                    }
                    None => return,
                },
                _ = wanted.changed() => {}
                () = sleep_until(due.unwrap_or(self.not_before)), if due.is_some() => {}
            }
            let wanted = wanted.borrow_and_update().clone();
            due = if seen { self.look(&wanted).await } else { None };
        }
    }

    /// Records the state of the object, and writes the bundle where it differs, unless this installation only observes
    /// (`bundle.manager`). Returns when to check again without an event.
    async fn look(&mut self, wanted: &Wanted) -> Option<Instant> {
        let Some(live) = self.live.clone() else {
            // An object that was installed again never had our bundle.
            self.last_written = None;
            self.stands(State::Absent(format!("it is not installed; see '{}'", C::COMMAND)));
            return None;
        };
        let mine = match self.mine(&live) {
            Ok(mine) => mine,
            Err(state) => {
                self.stands(state);
                return None;
            }
        };
        self.stands(State::carries(&mine));
        let now = self.bundle.time_of_day.now();
        let right = mine.iter().all(|entry| wanted.missing(entry.bundle, now).is_none());
        let Some(manager) = self.bundle.manager.as_ref().filter(|_| !right) else {
            self.doubted = None;
            return None;
        };
        if Instant::now() < self.not_before {
            return Some(self.not_before);
        }
        let doubted = *self.doubted.get_or_insert_with(Instant::now);
        if let Some(origin) = &self.bundle.origin
            && doubted.elapsed() < DOUBT
            && origin.may_say_otherwise(wanted.bundle()).await
        {
            return Some(Instant::now() + FIRST_PAUSE);
        }
        self.doubted = None;
        if self.last_written.as_ref() == Some(wanted.bundle()) {
            let others = live.meddlers(manager).join(", ");
            warn!(
                object = object::<C>(self.name),
                others,
                "the CA bundle was changed or removed; restoring it; the other field managers must leave caBundle alone"
            );
        }
        let mine: Vec<&str> = mine.iter().map(|entry| entry.name).collect();
        self.publish(&live, &mine, wanted.bundle()).await
    }

    /// The entries to maintain: those with our names that call our Service. The error is the state of an object without
    /// any.
    fn mine<'o>(&mut self, live: &'o C) -> Result<Vec<Entry<'o>>, State> {
        let entries = live.entries();
        let registered = |name: &String| entries.iter().any(|entry| entry.name == *name);
        let unregistered: Vec<&String> = self.ours.iter().filter(|name| !registered(name)).collect();
        if unregistered != self.unregistered && !unregistered.is_empty() {
            let object = object::<C>(self.name);
            warn!(object, webhooks = ?unregistered, see = C::COMMAND, "webhooks are served but not registered, so they are never called; install them with the command in `see`");
        }
        self.unregistered = unregistered;
        let named = entries.into_iter().filter(|entry| self.ours.iter().any(|ours| ours == entry.name));
        let own = &self.bundle.services;
        let foreign = |entry: &Entry<'_>| entry.service.as_ref().is_some_and(|service| !own.contains(service));
        let (others, mine): (Vec<_>, Vec<_>) = named.partition(|entry| !own.is_empty() && foreign(entry));
        let other = others.into_iter().find_map(|other| other.service);
        if !mine.is_empty() {
            self.others = None;
            return Ok(mine);
        }
        let Some(other) = other else { return Err(State::Absent(C::NO_ENTRY.to_owned())) };
        if !C::SHARED {
            return Err(State::Absent(format!(
                "it calls {other}, of another installation; give --namespace and --service-name, or see '{}'",
                C::COMMAND
            )));
        }
        if self.others.as_ref() != Some(&other) {
            let object = object::<C>(self.name);
            warn!(
                object,
                calls = other,
                see = C::COMMAND,
                "another installation converts this kind, and this one does not"
            );
            self.others = Some(other);
        }
        Err(State::Carries(Vec::new()))
    }

    async fn publish(&mut self, live: &C, entries: &[&str], bundle: &Arc<str>) -> Option<Instant> {
        let written = self.write(live, entries, bundle).await;
        // A write that failed, or that someone undoes again and again, is repeated at growing intervals.
        self.not_before = Instant::now() + self.pauses.next().unwrap_or(LONGEST_PAUSE);
        match written {
            Ok(written) => {
                info!(object = object::<C>(self.name), webhooks = entries.len(), "wrote the CA bundle");
                self.bundle.metrics.wrote_bundle(object::<C>(self.name));
                let held = written.entries();
                self.stands(State::carries(held.iter().filter(|entry| entries.contains(&entry.name))));
                self.last_written = Some(Arc::clone(bundle));
                self.live = Some(Arc::new(written));
                None
            }
            Err(error) => {
                warn!(
                    error,
                    object = object::<C>(self.name),
                    "cannot write the CA bundle, without which calls fail; retrying"
                );
                self.stands(State::Waits(error));
                Some(self.not_before)
            }
        }
    }

    /// Puts the bundle into these entries, if the object has not changed since it was read.
    async fn write(&self, read: &C, entries: &[&str], bundle: &str) -> Result<C, String> {
        let patch = read.patch(entries, &ByteString(bundle.as_bytes().to_vec()));
        let params = PatchParams { field_manager: self.bundle.manager.clone(), ..PatchParams::default() };
        match timeout(WRITE, self.api.patch(self.name, &params, &patch)).await {
            Ok(Ok(written)) => Ok(written),
            Ok(Err(error)) => Err(error_message(&error)),
            Err(_) => Err(format!("the API server did not answer within {} s", WRITE.as_secs())),
        }
    }

    fn stands(&self, state: State) {
        self.bundle.states.send_if_modified(|states| {
            let object = object::<C>(self.name);
            let changed = states.get(&object).is_none_or(|(before, _)| *before != state);
            if changed {
                states.insert(object, (state, Instant::now()));
            }
            changed
        });
    }
}

impl Origin {
    /// Whether the Secret that all replicas read may have another bundle by now. A missing Secret, or one without a
    /// readable bundle, counts as no; an API server that does not answer counts as yes.
    async fn may_say_otherwise(&self, wanted: &str) -> bool {
        let secret = match timeout(DOUBT, self.secrets.get_opt(&self.name)).await {
            Ok(Ok(Some(secret))) => secret,
            Ok(Ok(None)) => return false,
            Ok(Err(_)) | Err(_) => return true,
        };
        let said = secret.data.as_ref().and_then(|data| bundle_fingerprints(&data.get("ca.crt")?.0).ok());
        said.is_some_and(|said| bundle_fingerprints(wanted.as_bytes()).is_ok_and(|wanted| wanted != said))
    }
}
