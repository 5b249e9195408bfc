//! Measures for how long two operators acted, and for how long none did.

use std::time::{Duration, Instant};

/// The longest silence of an operator that acts: it reports every 20 ms, but the machine may be busy.
const PAUSE: Duration = Duration::from_millis(400);

/// The longest time in which two acted and in which none did, after `from`.
#[derive(Debug)]
pub(crate) struct Windows {
    pub(crate) two: Duration,
    pub(crate) none: Duration,
}

pub(crate) fn windows(actors: &[Vec<Instant>], from: Instant) -> Windows {
    let spans: Vec<Vec<(Instant, Instant)>> = actors.iter().map(|acts| spans(acts, from)).collect();
    let mut two = Duration::ZERO;
    for (index, ours) in spans.iter().enumerate() {
        for (began, ended) in ours {
            for (other_began, other_ended) in spans[index + 1..].iter().flatten() {
                let (late, early) = (*began.max(other_began), *ended.min(other_ended));
                two = two.max(early.saturating_duration_since(late));
            }
        }
    }
    let mut all: Vec<Instant> = actors.iter().flatten().copied().filter(|at| *at >= from).collect();
    all.sort();
    let gaps = std::iter::once(&from).chain(&all).zip(&all).map(|(earlier, later)| later.duration_since(*earlier));
    Windows { two, none: gaps.max().unwrap_or_default() }
}

/// From when to when one acted without a pause.
fn spans(acts: &[Instant], from: Instant) -> Vec<(Instant, Instant)> {
    let mut spans: Vec<(Instant, Instant)> = Vec::new();
    for at in acts.iter().copied().filter(|at| *at >= from) {
        match spans.last_mut() {
            Some((_, last)) if at.duration_since(*last) < PAUSE => *last = at,
            _ => spans.push((at, at)),
        }
    }
    spans
}
