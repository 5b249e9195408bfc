//! The repairs of what is stored, before a rotation goes a step further.

use super::Stored;

/// A write that repairs one of the two Secrets. The order is that in which they are made: each stands on those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Repair {
    /// Stores a new authority, because none that is stored can issue.
    ReplaceAuthority,
    /// Stores the authorities without what is damaged, and with those that callers must keep trusting.
    RewriteAuthorities,
    /// Issues a leaf, because the stored one cannot be served.
    IssueLeaf,
    /// Stores the bundle of all authorities beside the pair.
    PublishBundle,
}

impl Stored {
    /// Returns the next repair; `None` when nothing is damaged.
    ///
    /// `has_adopted` says that `authorities` trust more than the Secret holds, and `can_serve` that a server can use the
    /// pair: the TLS library may refuse what passes the checks of [`Stored::read`].
    pub fn next_repair(&self, has_adopted: bool, can_serve: bool) -> Option<Repair> {
        if self.authorities.is_err() {
            Some(Repair::ReplaceAuthority)
        } else if has_adopted || !self.damage.is_empty() {
            Some(Repair::RewriteAuthorities)
        } else if !can_serve {
            Some(Repair::IssueLeaf)
        } else if !self.publishes_all {
            Some(Repair::PublishBundle)
        } else {
            None
        }
    }
}
