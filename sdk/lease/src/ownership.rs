use crate::{Epoch, Moment};

/// Who owns a namespace.
///
/// Admission and reconciliation ask different things of it. An object that two operators check is checked; one that
/// two operators write to is fought over. So what is unknown is checked and not written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ownership {
    /// The one who asks.
    Mine {
        /// Stamp writes with it.
        epoch: Epoch,
        /// From when on.
        since: Moment,
    },
    /// Another operator.
    Theirs {
        /// Its identity, as it says; empty where it released the namespace to a successor, or is not known by name.
        holder: String,
        /// Its epoch.
        epoch: Epoch,
        /// Since when that has been seen.
        since: Moment,
        /// When that ends unless another sign of life is seen.
        until: Option<Moment>,
    },
    /// Not known now: nothing was seen yet, or not for too long, or a hold has begun and is not settled.
    Unknown,
}

impl Ownership {
    /// Whether to reconcile: only on a namespace that is known to be ours. On `Unknown`, look again shortly, or wait
    /// for the change that is told.
    pub fn may_write(&self) -> bool {
        matches!(self, Self::Mine { .. })
    }

    /// Whether a webhook checks: unless another operator is known to do it.
    pub fn must_check(&self) -> bool {
        !matches!(self, Self::Theirs { .. })
    }

    /// The epoch, when it is ours.
    pub fn epoch(&self) -> Option<Epoch> {
        if let Self::Mine { epoch, .. } = self { Some(*epoch) } else { None }
    }
}
