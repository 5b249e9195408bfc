use portcullis_lease::{Epoch, LeaseHandle};

/// Whether this replica leads. Cheap to clone; every answer is as of now.
#[derive(Clone, Debug)]
pub struct Leadership(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// There is no election: it is the only replica, as far as it knows.
    Alone,
    /// It reads and serves, and never writes.
    Follower,
    /// One hold on a lease.
    Term(LeaseHandle, Epoch),
}

impl Leadership {
    /// Of a process that takes part in no election.
    pub fn alone() -> Self {
        Self(Kind::Alone)
    }

    pub(crate) fn follower() -> Self {
        Self(Kind::Follower)
    }

    pub(crate) fn term(lease: LeaseHandle, epoch: Epoch) -> Self {
        Self(Kind::Term(lease, epoch))
    }

    /// Whether this replica may write, now and in this epoch. A process that was stopped and goes on may run some steps
    /// before it is told that it lost: ask before every write that hurts twice. [`Scope::owns`](super::Scope::owns) of
    /// a controller's scope asks this too.
    pub fn holds(&self) -> bool {
        match &self.0 {
            Kind::Alone => true,
            Kind::Follower => false,
            Kind::Term(lease, epoch) => lease.held().is_some_and(|hold| hold.epoch == *epoch),
        }
    }

    /// The fencing epoch: later than that of every leader before. Zero without an election.
    pub fn epoch(&self) -> Epoch {
        if let Kind::Term(_, epoch) = &self.0 { *epoch } else { Epoch::default() }
    }

    /// Tells that something was met that was written in this epoch. If it is later than ours, our hold ends at once.
    pub fn fence(&self, epoch: Epoch) {
        if let Kind::Term(lease, _) = &self.0 {
            lease.fence(epoch);
        }
    }
}
