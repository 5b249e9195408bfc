//! The decision which damage of the stored Secrets is repaired next.

use super::Stored;

/// A repair of the stored Secrets. Each is one conditional write; a process that loses the race reads again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repair {
    /// Store a new authority, since no stored one can issue.
    Replace,
    /// Store the authorities again, without what is damaged and with those that callers must keep trusting.
    Store,
    /// Issue a leaf under the current authority, since the stored one cannot be served.
    Issue,
    /// Store the bundle of the authorities beside the pair.
    Publish,
}

/// Returns the repair to make next, or `None` when both Secrets are valid. `adopted` says that
/// [`Authorities::trust`](super::Authorities::trust) has added an authority that is not stored yet.
///
/// Authorities are repaired before the leaf: a leaf must never be issued under an authority that is not stored.
pub fn next_repair(stored: &Stored, adopted: bool) -> Option<Repair> {
    if stored.authorities.is_err() {
        Some(Repair::Replace)
    } else if adopted || !stored.damage.is_empty() {
        Some(Repair::Store)
    } else if stored.leaf.is_err() {
        Some(Repair::Issue)
    } else if !stored.publishes_all {
        Some(Repair::Publish)
    } else {
        None
    }
}
