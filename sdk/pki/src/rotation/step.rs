//! The next step of a rotation.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{Anchor, Authorities, Phase};
use crate::{Certificate, PkiError};

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The validity of certificates and the timing of their rotation. Values that [`check`](Self::check) refuses are not
/// used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotationTiming {
    /// Time for which a new CA must have been seen everywhere before anything is issued under it: API servers take up a
    /// changed configuration a little after it is read back.
    pub settle: Duration,
    /// Time for which a CA stays trusted after the last certificate under it was replaced.
    pub drain: Duration,
    /// A CA with less than this left is rotated.
    pub ca_left: SignedDuration,
    /// A leaf with less than this left is replaced.
    pub leaf_left: SignedDuration,
    /// Validity of a new CA.
    pub ca_validity: SignedDuration,
    /// Validity of a new leaf.
    pub leaf_validity: SignedDuration,
}

impl Default for RotationTiming {
    /// Two minutes and an hour; a CA of ten years that is rotated in its last 395 days, so that it can always issue
    /// leaves of a whole year, which are replaced in their last 30 days.
    fn default() -> Self {
        Self {
            settle: Duration::from_mins(2),
            drain: Duration::from_hours(1),
            ca_left: DAY * 395,
            leaf_left: DAY * 30,
            ca_validity: DAY * 3650,
            leaf_validity: DAY * 365,
        }
    }
}

impl RotationTiming {
    /// Returns the timing for leaves that are valid for this long, under a CA that still outlasts the next one when
    /// that is issued.
    #[must_use]
    pub fn with_validity(self, validity: SignedDuration) -> Self {
        let twice = validity.saturating_add(validity);
        let ca_validity = self.ca_validity.max(twice.saturating_add(self.ca_left));
        Self { leaf_validity: validity, ca_validity, ..self }
    }

    /// Checks that new certificates are not due for replacement at once.
    ///
    /// # Errors
    /// [`PkiError::Timing`] when a CA or a leaf would be due for replacement as soon as it is made.
    pub fn check(&self) -> Result<(), PkiError> {
        for (validity, is, left, limit) in [
            ("ca_validity", self.ca_validity, "ca_left", self.ca_left),
            ("leaf_validity", self.leaf_validity, "leaf_left", self.leaf_left),
        ] {
            if is <= limit {
                return Err(PkiError::Timing { validity, is, left, limit });
            }
        }
        Ok(())
    }
}

/// The observations of one process, by its own monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Time for which every object has been seen to hold the bundle of the stored authorities; `None` while one does
    /// not.
    pub published_for: Option<Duration>,
    /// Time for which the stored leaf and the stored authorities have been seen as they are.
    pub unchanged_for: Duration,
}

/// The next step of a rotation. Each, except `Wait`, is one conditional write; a process that loses the race reads
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Do nothing for this time; with `None`, until something changes.
    Wait(Option<Duration>),
    /// Generate the next authority and store it beside the current one.
    MakeNext,
    /// Make the next authority the current one ([`Authorities::promote`]).
    Promote,
    /// Issue a leaf under the current authority.
    Issue,
    /// Remove the authorities before the current one.
    Forget,
}

/// Returns the next step for valid authorities and the leaf of `cert_pem` under one of them, where no check follows for
/// a long time: at an upgrade, say. Nothing waits for the bundle to be published, so a replica that serves a leaf that
/// is issued under another authority has to wait for that.
///
/// A leaf that ends soon is replaced by one that lasts for the whole [`RotationTiming::leaf_validity`]. An authority
/// that would end before it is replaced first; what it has issued stays trusted.
pub fn renewal(authorities: &Authorities, leaf: &Certificate, timing: &RotationTiming, now: Timestamp) -> Step {
    if leaf.not_after.duration_since(now) > timing.leaf_left {
        return Step::Wait(None);
    }
    let lasts = |ca: &Certificate| ca.not_after.duration_since(now) > timing.leaf_validity;
    match authorities.phase() {
        _ if lasts(authorities.current.certificate()) => Step::Issue,
        Phase::Publishing => Step::Promote,
        _ => Step::MakeNext,
    }
}

/// Returns the next step for valid authorities and the leaf of `cert_pem` under one of them.
pub fn step(
    authorities: &Authorities,
    cert_pem: &[u8],
    leaf: &Certificate,
    timing: &RotationTiming,
    observed: Observed,
    now: Timestamp,
) -> Step {
    let current = authorities.current.certificate();
    let issued_by_current = Anchor::from(&authorities.current).verifies(cert_pem, now);
    // A leaf under the same authority needs no wait, and one that would not last longer no replacement.
    let ends_soon = leaf.not_after.duration_since(now) <= timing.leaf_left;
    if issued_by_current && ends_soon && current.not_after.duration_since(leaf.not_after) > DAY {
        return Step::Issue;
    }
    let settled = |step| match observed.published_for {
        Some(time) if time >= timing.settle => step,
        time => Step::Wait(time.map(|time| timing.settle.saturating_sub(time))),
    };
    match authorities.phase() {
        Phase::Publishing => settled(Step::Promote),
        _ if !issued_by_current => settled(Step::Issue),
        // A process goes over to the new leaf when it has seen the bundle everywhere for as long as `settle`. Until
        // then some still serve under the previous authority.
        Phase::Draining => match observed.published_for {
            None => Step::Wait(None),
            Some(time) => {
                let gone_over = timing.settle.saturating_add(timing.settle / 4).saturating_sub(time);
                let left = timing.drain.saturating_sub(observed.unchanged_for).max(gone_over);
                if left.is_zero() { Step::Forget } else { Step::Wait(Some(left)) }
            }
        },
        Phase::Steady if current.not_after.duration_since(now) <= timing.ca_left => Step::MakeNext,
        Phase::Steady => Step::Wait(None),
    }
}
