//! The stored pair and the bundles: their values, and whether they fit together.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use portcullis_pki::{PairProblem, TrustProblem, check_server_pair, check_trust};

use super::snapshot::Stored;

/// Fewer days than this are worth a warning.
pub(super) const SOON: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The parts of the serving Secret.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) cert: &'a [u8],
    pub(super) key: &'a [u8],
    pub(super) ca: &'a [u8],
}

/// The value of a key, when it is there and not empty.
pub(super) fn value<'a>(stored: &'a Stored, key: &str) -> Option<&'a [u8]> {
    let data: &BTreeMap<_, _> = stored.0.data.as_ref()?;
    data.get(key).map(|value| value.0.as_slice()).filter(|value| !value.is_empty())
}

/// The pair, when nothing of it is missing; the missing keys otherwise.
pub(super) fn pair(stored: &Stored) -> Result<Pair<'_>, Vec<&'static str>> {
    let keys = ["tls.crt", "tls.key", "ca.crt"];
    match keys.map(|key| value(stored, key)) {
        [Some(cert), Some(key), Some(ca)] => Ok(Pair { cert, key, ca }),
        found => Err(keys.iter().zip(found).filter(|(_, found)| found.is_none()).map(|(key, _)| *key).collect()),
    }
}

impl Pair<'_> {
    /// The problem that keeps it from serving callers that trust `bundle`. A pair that only ends soon has none.
    pub(super) fn problem(&self, bundle: &[u8], names: &[String], now: Timestamp) -> Option<PairProblem> {
        check_server_pair(self.cert, self.key, bundle, names, now, SignedDuration::ZERO).err()
    }

    /// Whether callers that trust `bundle` would trust it; `None` when it does not read.
    pub(super) fn trusted_by(&self, bundle: &[u8], now: Timestamp) -> Option<bool> {
        match check_trust(self.cert, bundle, now) {
            Ok(_) => Some(true),
            Err(TrustProblem::Certificate(_)) => None,
            Err(_) => Some(false),
        }
    }
}

/// The day of a time, as people write it.
pub(super) fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

/// A length of time, in the largest unit that fits.
pub(super) fn span(duration: SignedDuration) -> String {
    let seconds = duration.abs().as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
