//! Times of a rotation, for those who want to see within seconds what takes hours, and clocks that are wrong.

use std::time::Duration;

use jiff::SignedDuration;

use crate::certificates::{CertificateSource, TimeOfDay};

#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct RotationFlags {
    /// How long a new CA is seen everywhere before anything is issued under it, in milliseconds
    #[arg(long, hide = true, value_name = "MS")]
    ca_settle: Option<u64>,
    /// How long a CA stays trusted after the last certificate under it was replaced, in milliseconds
    #[arg(long, hide = true, value_name = "MS")]
    ca_drain: Option<u64>,
    /// By how many seconds this machine's clock is wrong
    #[arg(long, hide = true, value_name = "SECONDS", allow_hyphen_values = true)]
    clock_skew: Option<i64>,
}

impl RotationFlags {
    pub(super) fn applied_to(&self, mut source: CertificateSource) -> CertificateSource {
        if let CertificateSource::Automatic(automatic) = &mut source {
            let (timing, milliseconds) = (&mut automatic.timing, |ms: Option<u64>| ms.map(Duration::from_millis));
            timing.settle = milliseconds(self.ca_settle).unwrap_or(timing.settle);
            timing.drain = milliseconds(self.ca_drain).unwrap_or(timing.drain);
        }
        if let Some(seconds) = self.clock_skew {
            let time_of_day = match &mut source {
                CertificateSource::Automatic(automatic) => &mut automatic.time_of_day,
                CertificateSource::Supplied(supplied) => &mut supplied.time_of_day,
            };
            *time_of_day = TimeOfDay::off_by(SignedDuration::from_secs(seconds));
        }
        source
    }
}
