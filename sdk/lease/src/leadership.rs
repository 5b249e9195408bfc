use crate::LeaseHandle;

/// Whether this replica leads. Cheap to clone; every answer is as of now.
#[derive(Clone, Debug)]
pub struct Leadership(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// There is no election: it is the only replica, as far as it knows.
    Alone,
    /// It reads and serves, and never writes.
    Follower,
    /// One hold on a Lease.
    Term { lease: LeaseHandle, epoch: u32 },
}

impl Leadership {
    /// A process without leader election, which always leads.
    pub fn always() -> Self {
        Self(Kind::Alone)
    }

    /// A replica that only reads and serves, and never leads.
    pub fn never() -> Self {
        Self(Kind::Follower)
    }

    /// One hold on the Lease of leader election.
    pub fn term(lease: LeaseHandle, epoch: u32) -> Self {
        Self(Kind::Term { lease, epoch })
    }

    /// Waits until this replica may no longer write in this epoch.
    pub async fn ended(&self) {
        match &self.0 {
            Kind::Term { lease, epoch } => lease.lost(*epoch).await,
            Kind::Alone | Kind::Follower => std::future::pending().await,
        }
    }

    /// Whether this replica may write now, in this epoch. A process that was suspended may run for a moment before it
    /// notices that it lost the Lease: check before every write that must not happen twice.
    /// [`Scope::owns`](crate::Scope::owns) of a controller's scope checks this too.
    pub fn holds(&self) -> bool {
        match &self.0 {
            Kind::Alone => true,
            Kind::Follower => false,
            Kind::Term { lease, epoch } => lease.held() == Some(*epoch),
        }
    }

    /// The epoch of the hold: greater than that of every leader before. Zero without an election.
    pub fn epoch(&self) -> u32 {
        if let Kind::Term { epoch, .. } = &self.0 { *epoch } else { 0 }
    }
}
