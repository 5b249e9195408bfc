//! Deadlines of answers.

use std::time::Duration;

/// The most that the API server ever waits for a webhook.
const LONGEST: Duration = Duration::from_secs(30);

/// The time for an answer to a call with this query: what `?timeout=` says, or else the webhook's own timeout; less a
/// margin for the way back. An answer after the API server has given up is lost.
pub(super) fn time_for_answer(query: Option<&str>, configured: Duration) -> Duration {
    let asked = query.and_then(timeout_in).unwrap_or(configured).min(LONGEST);
    asked.saturating_sub((asked / 10).min(Duration::from_millis(500)))
}

fn timeout_in(query: &str) -> Option<Duration> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    go_duration(value).filter(|timeout| !timeout.is_zero())
}

/// A duration as Go writes a positive one: `10s`, `1m0s`, `1.5s`, `500ms`.
fn go_duration(text: &str) -> Option<Duration> {
    // Nearly every call has whole seconds.
    if let Some(seconds) = text.strip_suffix('s').and_then(|seconds| seconds.parse().ok()) {
        return Some(Duration::from_secs(seconds));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let unit = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "%C2%B5s" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_is_the_callers_timeout_less_a_margin() {
        let ten = Duration::from_secs(10);
        let cases = [
            (None, 9_500),
            (Some("timeout=10s"), 9_500),
            (Some("timeout=1s"), 900),
            (Some("a=b&timeout=30s"), 29_500),
            (Some("timeout=1m0s"), 29_500),
            (Some("timeout=500ms"), 450),
            (Some("timeout=1.5s"), 1_350),
            (Some("timeout=1h2m3s"), 29_500),
            (Some("timeout=0s"), 9_500),
            (Some("timeout="), 9_500),
            (Some("timeout=soon"), 9_500),
            (Some("timeout=-3s"), 9_500),
            (Some("timeout=99999999999999999999999h"), 9_500),
            (Some("timeouts=1s"), 9_500),
        ];
        for (query, expected) in cases {
            assert_eq!(time_for_answer(query, ten), Duration::from_millis(expected), "{query:?}");
        }
    }
}
