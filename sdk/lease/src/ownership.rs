/// The owner of a namespace.
///
/// Two operators may validate the same object, but must not both write it. So in a namespace whose owner is unknown,
/// webhooks validate and controllers do not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// This operator.
    Mine,
    /// Another operator.
    Theirs,
    /// The owner is not known: nothing was seen yet, the view is too old, or a new hold has not settled.
    Unknown,
}

impl Ownership {
    /// Whether to reconcile: only in a namespace that this operator is known to own. On `Unknown`, requeue shortly, or
    /// wait for the next of [`Scope::changes`](crate::Scope::changes).
    pub fn may_write(self) -> bool {
        self == Self::Mine
    }

    /// Whether a webhook validates: always, unless another operator is known to.
    pub fn must_check(self) -> bool {
        self != Self::Theirs
    }
}
