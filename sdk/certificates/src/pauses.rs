//! Pauses between tries.

use std::time::Duration;

use backon::ExponentialBuilder;
use kube::runtime::utils::ResetTimerBackoff;
use kube::runtime::watcher::ExponentialBackoff;

/// Pauses that double, and begin again after a quiet time.
pub(crate) type Pauses = ResetTimerBackoff<ExponentialBackoff>;

/// Pauses from `first` to `longest`. Twice the longest without a try is quiet: a failure after it has nothing to do with
/// those before.
pub(crate) fn pauses(first: Duration, longest: Duration) -> Pauses {
    let growing = ExponentialBuilder::default().with_min_delay(first).with_max_delay(longest);
    ResetTimerBackoff::new(growing.with_factor(2.0).without_max_times().into(), longest * 2)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_a_limit_and_reset_after_a_quiet_time() {
        let mut pauses = pauses(Duration::from_secs(1), Duration::from_secs(5));
        let mut found = Vec::new();
        for seconds in [0, 1, 2, 4, 5, 10, 11] {
            advance(Duration::from_secs(seconds)).await;
            found.extend(pauses.next().map(|pause| pause.as_secs()));
        }
        assert_eq!(found, [1, 2, 4, 5, 5, 5, 1]);
    }
}
