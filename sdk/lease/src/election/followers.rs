//! Further Leases of one election, for operators that look at another name: they say what the first one says.
//!
//! The first Lease alone decides who holds. Before each write of it, the same record is written to the others, so while the
//! hold counts none of them has been renewed earlier than the first. Nobody else's is overwritten: as long as
//! another holder renews one, the first is not written either.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::api::{Answer, LeaseApi};
use crate::{Candidate, Clock, Decision, LeaseError, Moment, Observation, Role, Timing, Write, decide};

#[derive(Debug)]
pub(super) struct Follower {
    api: LeaseApi,
    seen: Mutex<Observation>,
}

impl Follower {
    pub(super) fn new(api: LeaseApi) -> Self {
        Self { api, seen: Mutex::default() }
    }

    /// Reads it, to know when another's ends: by our own observation, as of the first Lease.
    pub(super) async fn read(&self, clock: &dyn Clock) -> Result<(), LeaseError> {
        let begun = clock.now();
        let found = self.api.read().await.map_err(|error| self.api.error("read", error))?;
        self.seen().read(found, begun, clock.now());
        Ok(())
    }

    /// That another holder renews it, or did a moment ago.
    pub(super) fn taken(&self, identity: &str, timing: Timing, now: Moment) -> Option<LeaseError> {
        let seen = self.seen();
        // We hold none of it: asked like this, whoever else is named in it is waited for.
        let me = Candidate { identity, role: Role::Holder(timing), hold: None };
        let holder = seen.last().and_then(|record| record.holder.clone())?;
        matches!(decide(&seen, now, &me), Decision::Wait { .. }).then(|| self.api.taken(holder))
    }

    /// Writes what is to be written to the first Lease.
    pub(super) async fn write(&self, write: &Write, clock: &dyn Clock) -> Result<Answer, LeaseError> {
        let replaces = self.seen().present().map(|record| record.version.clone());
        let write = Write { replaces, ..write.clone() };
        let answer = self.api.write(&write).await.map_err(|error| self.api.error("write", error))?;
        if let Answer::Stored(stored) = &answer {
            self.seen().see(Some(stored.clone()), clock.now());
        }
        Ok(answer)
    }

    /// Whether it names this holder.
    pub(super) fn is_of(&self, identity: &str) -> bool {
        self.seen().present().is_some_and(|record| record.holder.as_deref() == Some(identity))
    }

    fn seen(&self) -> MutexGuard<'_, Observation> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
