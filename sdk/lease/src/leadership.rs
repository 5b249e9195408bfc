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
    /// Of a process that takes part in no election.
    pub fn alone() -> Self {
        Self(Kind::Alone)
    }

    /// Of a replica that reads and serves, and never writes.
    pub fn follower() -> Self {
        Self(Kind::Follower)
    }

    /// Of one hold on the Lease of leader election; of a cluster-wide installation, `among` those that were there first.
    pub fn term(lease: LeaseHandle, epoch: Epoch, among: Option<Scopes>) -> Self {
        Self(Kind::Term { lease, epoch, among })
    }

    /// Ends when this replica may write, or when its hold ends before.
    pub async fn begun(&self) -> bool {
        self.turns(|_| self.holds()).await;
        self.holds()
    }

    /// Ends when this replica may not write any more in this epoch. That it is not known for a while who else is there
    /// ends nothing: [`holds`](Self::holds) says so meanwhile.
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

    /// Whether this replica may write, now and in this epoch. A process that was stopped and goes on may run some steps
    /// before it is told that it lost: ask before every write that hurts twice. [`Scope::owns`](crate::Scope::owns) of
    /// a controller's scope asks this too.
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

    /// Tells that something was met that was written in this epoch. If it is later than ours, our hold ends at once.
    pub fn fence(&self, epoch: Epoch) {
        if let Kind::Term { lease, .. } = &self.0 {
            lease.fence(epoch);
        }
    }
}
