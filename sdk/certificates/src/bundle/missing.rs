//! Reports which objects do not carry the wanted bundle yet.

use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::state::{State, States, Wanted};
use super::{Bundle, objects};
use crate::Configurations;
use crate::ServingCertificate;

/// The meaning of an object without calls to us ([`State::Absent`]), for a caller that waits.
#[derive(Clone, Copy)]
enum Absence {
    /// It counts as missing: the API server cannot call us.
    Missed,
    /// It counts as done.
    Passed,
    /// It counts as done, and so does an object without any bundle.
    Unpublished,
}

impl Bundle {
    /// Waits until every object has been seen with the bundle that is wanted now, and returns the bundle. It has no
    /// deadline of its own, and calls `waiting` with what is missing whenever that changes. Where the bundle is
    /// published only when this has returned, an object without a bundle does not count.
    pub async fn wait_until_published(&self, configurations: &Configurations, waiting: impl FnMut(&str)) -> Arc<str> {
        self.until(None, configurations, waiting).await
    }

    /// Waits until callers accept this chain by the bundle of every object. What is to be published stays as it is. An
    /// object without calls to us does not count.
    pub async fn wait_until_accepted(
        &self,
        certificate: &ServingCertificate,
        configurations: &Configurations,
        waiting: impl FnMut(&str),
    ) {
        self.until(Some(Wanted::accepted(certificate)), configurations, waiting).await;
    }

    /// Waits until an entry is seen by whose bundle callers refuse what is wanted now. An object through which no one
    /// is called does not count.
    pub async fn wait_until_refused(&self, configurations: &Configurations) {
        let look = |_: &Wanted, missing: Option<&str>| match missing {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        };
        self.look(None, Absence::Passed, configurations, look).await;
    }

    async fn until(
        &self,
        other: Option<Wanted>,
        configurations: &Configurations,
        mut waiting: impl FnMut(&str),
    ) -> Arc<str> {
        let look = |now: &Wanted, missing: Option<&str>| match missing {
            None => ControlFlow::Break(Arc::clone(now.bundle())),
            Some(missing) => {
                waiting(missing);
                ControlFlow::Continue(())
            }
        };
        let absence = match other {
            Some(_) => Absence::Passed,
            None if self.published_later => Absence::Unpublished,
            None => Absence::Missed,
        };
        self.look(other, absence, configurations, look).await
    }

    /// Calls `report` with what is missing, or `None`, whenever that changes. It never ends.
    pub async fn report(&self, configurations: &Configurations, mut report: impl FnMut(Option<&str>)) {
        let look = |_: &Wanted, missing: Option<&str>| {
            report(missing);
            ControlFlow::<()>::Continue(())
        };
        self.look(None, Absence::Missed, configurations, look).await;
    }

    async fn look<T>(
        &self,
        other: Option<Wanted>,
        absence: Absence,
        configurations: &Configurations,
        mut look: impl FnMut(&Wanted, Option<&str>) -> ControlFlow<T>,
    ) -> T {
        let objects = objects(configurations);
        let (mut wanted, mut states) = (self.wanted.subscribe(), self.states.subscribe());
        loop {
            let now = wanted.borrow_and_update().clone();
            let now = other.as_ref().unwrap_or(&now);
            let missing = {
                let states = states.borrow_and_update();
                let standing = |object: &String| states.get(object).map(|(state, _)| state);
                objects.iter().find_map(|object| match (standing(object), absence) {
                    (Some(State::Absent(_)), Absence::Passed | Absence::Unpublished) => None,
                    (Some(State::Carries(entries)), Absence::Unpublished) if holds_none(entries) => None,
                    (state, _) => self.missing_in(now, object, state),
                })
            };
            if let ControlFlow::Break(done) = look(now, missing.as_deref()) {
                return done;
            }
            // Neither channel ends while `self` is here.
            tokio::select! {
                _ = wanted.changed() => {}
                _ = states.changed() => {}
            }
        }
    }

    /// Says what this object lacks, given its last known state.
    fn missing_in(&self, wanted: &Wanted, object: &str, state: Option<&State>) -> Option<String> {
        match state {
            None => Some(format!("the CA to be published in {object}")),
            Some(State::Waits(why) | State::Absent(why)) => Some(format!("the CA to be published in {object}: {why}")),
            Some(State::Carries(entries)) => entries.iter().find_map(|(entry, carried)| {
                let why = wanted.missing(carried.as_deref(), self.time_of_day.now())?;
                let why = if why.is_empty() { why } else { format!(": {entry}: {why}; {}", self.cure) };
                Some(format!("the CA to be published in {object}{why}"))
            }),
        }
    }

    /// The time since when every object has carried `bundle`; not before `begun`, when it became wanted. An object
    /// through which no one calls us does not count.
    pub fn published_since(&self, configurations: &Configurations, bundle: &str, begun: Instant) -> Option<Instant> {
        let (wanted, states) = (Wanted::Held(Arc::from(bundle)), self.states.borrow());
        objects(configurations).iter().try_fold(begun, |since, object| match states.get(object) {
            Some((State::Absent(_), _)) => Some(since),
            Some((state, at)) => self.missing_in(&wanted, object, Some(state)).is_none().then_some(since.max(*at)),
            None => None,
        })
    }

    /// Notifies when the state of one of the objects changes.
    pub fn changes(&self) -> Changes {
        Changes(self.states.subscribe())
    }
}

/// Whether no entry has a bundle.
fn holds_none(entries: &[(String, Option<Vec<u8>>)]) -> bool {
    entries.iter().all(|(_, bundle)| bundle.as_ref().is_none_or(Vec::is_empty))
}

/// Notifications of changes to the state of the objects.
#[derive(Debug)]
pub struct Changes(watch::Receiver<States>);

impl Changes {
    /// Waits for the next change since the last call.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
