use crate::{Changes, Epoch, LeaseHandle, Scopes};
use futures::stream::{StreamExt as _, select};

/// Whether this replica leads. Cheap to clone; every answer is as of now.
#[derive(Clone, Debug)]
pub struct Leadership(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// There is no election: it is the only replica, as far as it knows.
    Alone,
    /// It reads and serves, and never writes.
    Follower,
    /// One hold on a lease; of a cluster-wide installation, while no other acts that was there first.
    Term { lease: LeaseHandle, epoch: Epoch, among: Option<Scopes> },
}

impl Leadership {
    /// For a process without leader election: it always leads.
    pub fn alone() -> Self {
        Self(Kind::Alone)
    }

    /// For a replica that only reads and serves: it never leads.
    pub fn follower() -> Self {
        Self(Kind::Follower)
    }

    /// For one hold on the Lease of leader election. A cluster-wide installation passes as `among` its view of the
    /// others, the earliest of which leads.
    pub fn term(lease: LeaseHandle, epoch: Epoch, among: Option<Scopes>) -> Self {
        Self(Kind::Term { lease, epoch, among })
    }

    /// Waits until this replica may write, or its hold ends. Returns whether it may write.
    pub async fn begun(&self) -> bool {
        self.turns(|_| self.holds()).await;
        self.holds()
    }

    /// Waits until this replica may no longer write in this epoch. It does not end while the other installations are
    /// temporarily unknown; [`holds`](Self::holds) returns `false` meanwhile.
    pub async fn ended(&self) {
        self.turns(|among| among.is_some_and(|among| among.ahead().is_some())).await;
    }

    /// Ends when this says so, or with the hold.
    async fn turns(&self, done: impl Fn(Option<&Scopes>) -> bool) {
        let Kind::Term { lease, epoch, among } = &self.0 else { return std::future::pending().await };
        let among = among.as_ref();
        let mut changes = select(lease.changes(), among.map_or_else(Changes::never, Scopes::changes));
        while lease.held().is_some_and(|hold| hold.epoch == *epoch) && !done(among) {
            if changes.next().await.is_none() {
                return;
            }
        }
    }

    /// Whether this replica may write now, in this epoch. A process that was suspended may run for a moment before it
    /// notices that it lost the Lease: check before every write that must not happen twice.
    /// [`Scope::owns`](crate::Scope::owns) of a controller's scope checks this too.
    pub fn holds(&self) -> bool {
        match &self.0 {
            Kind::Alone => true,
            Kind::Follower => false,
            Kind::Term { lease, epoch, among } => {
                lease.held().is_some_and(|hold| hold.epoch == *epoch)
                    && among.as_ref().is_none_or(|among| among.leads(*epoch))
            }
        }
    }

    /// The fencing epoch: later than that of every leader before. Zero without an election.
    pub fn epoch(&self) -> Epoch {
        if let Kind::Term { epoch, .. } = &self.0 { *epoch } else { Epoch::default() }
    }

    /// Reports that something written in this epoch was seen. If it is later than this replica's, its hold ends at
    /// once.
    pub fn fence(&self, epoch: Epoch) {
        if let Kind::Term { lease, .. } = &self.0 {
            lease.fence(epoch);
        }
    }
}
