use crate::Epoch;

/// Who owns a namespace.
///
/// Two operators may validate the same object, but must not both write it. So in a namespace whose owner is unknown,
/// webhooks validate and controllers do not write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ownership {
    /// This operator.
    Mine {
        /// The epoch to stamp writes with.
        epoch: Epoch,
    },
    /// Another operator.
    Theirs,
    /// Not known: nothing was seen yet, or not for too long, or a new hold has not settled.
    Unknown,
}

impl Ownership {
    /// Whether to reconcile: only in a namespace that this operator is known to own. On `Unknown`, requeue shortly, or
    /// wait for the next [`Change`](crate::Change).
    pub fn may_write(&self) -> bool {
        matches!(self, Self::Mine { .. })
    }

    /// Whether a webhook validates: always, unless another operator is known to.
    pub fn must_check(&self) -> bool {
        !matches!(self, Self::Theirs)
    }

    /// The epoch, if this operator owns the namespace.
    pub fn epoch(&self) -> Option<Epoch> {
        if let Self::Mine { epoch } = self { Some(*epoch) } else { None }
    }
}
