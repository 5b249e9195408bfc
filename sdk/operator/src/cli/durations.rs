//! Durations on the command line, and the flags of Leases.

use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use portcullis_lease::{ScopeTiming, Timing};

use super::installation::switch;
use crate::Switch;
use crate::options::LeaseTiming;

#[derive(clap::Args, Clone, Debug)]
pub(super) struct LeaseFlags {
    /// Whether replicas elect a leader, which alone runs the controllers; those of a restricted operator always do
    #[arg(long, default_value_t, value_parser = switch("One replica runs the controllers", "Every replica does"))]
    pub(super) leader_elect: Switch,
    /// Name of this replica in its Leases [default: the release's]
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub(super) identity: Option<String>,
    /// For tests that cannot wait: duration, deadline, renewal, settling, grace and freshness, separated by commas
    #[arg(long, hide = true, value_name = "DURATIONS")]
    pub(super) lease_timing: Option<LeaseTiming>,
}

impl FromStr for LeaseTiming {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let durations = text.split(',').map(duration).collect::<Result<Vec<_>, _>>()?;
        let [lasts, deadline, renew, settle, grace, freshness] = durations[..] else {
            return Err(format!("{} durations, 6 are needed", durations.len()));
        };
        let leader = Timing::new(lasts, deadline, renew).map_err(|error| error.to_string())?;
        let watch = ScopeTiming::new(lasts, grace, freshness).map_err(|error| error.to_string())?;
        Ok(Self { leader, scope: leader.settle(settle), watch })
    }
}

/// A duration on the command line. A plain number is in seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs).ok();
    let written = || text.parse::<SignedDuration>().ok().and_then(|parsed| Duration::try_from(parsed).ok());
    seconds.or_else(written).ok_or_else(|| format!("'{text}' is no span of time: write it as in 500ms, 5s or 2m"))
}

/// One that is neither shorter nor longer than these, in seconds.
pub(super) fn duration_within(
    least: u32,
    most: u32,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    let (least, most) = (SignedDuration::from_secs(least.into()), SignedDuration::from_secs(most.into()));
    move |text| {
        let duration = duration(text)?;
        let within = SignedDuration::try_from(duration).is_ok_and(|duration| (least..=most).contains(&duration));
        if within { Ok(duration) } else { Err(format!("give at least {least:#} and at most {most:#}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("1200ms"), Ok(Duration::from_millis(1200)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert_eq!((duration("7200"), duration("2h")), (Ok(Duration::from_hours(2)), Ok(Duration::from_hours(2))));
        let within = duration_within(1, 600);
        assert_eq!((within("1"), within("10m")), (Ok(Duration::from_secs(1)), Ok(Duration::from_mins(10))));
        for wrong in ["0", "601s", "99999999999999999999s", "18446744073709551615"] {
            assert!(within(wrong).is_err(), "{wrong}");
        }
        assert_eq!(within("999ms").unwrap_err(), "give at least 1s and at most 10m");
        for wrong in ["", "-5", "-5s", "soon"] {
            assert!(duration(wrong).unwrap_err().contains("write it as in"), "{wrong}");
        }
        let timing: LeaseTiming = "3s,2s,400ms,1200ms,1s,1s".parse().unwrap();
        let durations = |timing: Timing| (timing.duration(), timing.deadline());
        assert_eq!(durations(timing.leader), (Duration::from_secs(3), Duration::from_secs(2)));
        assert_eq!(durations(timing.scope), durations(timing.leader));
        assert_eq!(
            "2s,3s,1s,1s,1s,1s".parse::<LeaseTiming>().unwrap_err(),
            "deadline (3s) must be less than duration (2s)"
        );
        assert!("3s,2s".parse::<LeaseTiming>().unwrap_err().starts_with("2 durations"));
    }
}
