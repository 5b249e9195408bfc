//! The figures of the rounds, their medians, and the table of them.

use serde::Serialize;

use super::caller::Measured;
use crate::webhook::figures::{median, shown};

/// The figures of one proxy in one round: for the calls of a single session, and for those of several side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// One session: latencies.
    pub one: Measured,
    /// Several: requests per second and CPU time.
    pub several: Measured,
}

/// A proxy's rounds for one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the workload.
    pub workload: &'static str,
    /// The proxy between caller and server.
    pub proxy: &'static str,
    /// In the order in which they were taken; the same number for each proxy.
    pub rounds: Vec<Round>,
    /// The most that was resident, in MiB.
    pub peak: Option<f64>,
}

impl Row {
    fn median(&self, figure: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
        median(self.rounds.iter().filter_map(figure).collect())
    }

    /// The median of a figure less that of another row in the same round.
    pub fn added(&self, to: &Self, figure: impl Fn(&Round) -> f64) -> Option<f64> {
        median(self.rounds.iter().zip(&to.rounds).map(|(with, without)| figure(with) - figure(without)).collect())
    }

    /// A line that says how many times what `calls` took in a round this row added to another in the same round.
    pub fn added_beside(&self, to: &Self, calls: &Self) -> String {
        let times = |figure: fn(&Round) -> Option<f64>| {
            let rounds = self.rounds.iter().zip(&to.rounds).zip(&calls.rounds);
            let times = rounds.filter_map(|((with, to), calls)| Some((figure(with)? - figure(to)?) / figure(calls)?));
            shown(median(times.collect()), 2)
        };
        let (p50, cpu) = (times(|round| Some(round.one.p50)), times(|round| round.one.cpu));
        let (several_p50, several_cpu) = (times(|round| Some(round.several.p50)), times(|round| round.several.cpu));
        let calls = calls.proxy;
        format!(
            "times {calls}: {p50} p50 and {cpu} CPU of one session; {several_p50} p50 and {several_cpu} CPU of several"
        )
    }
}

const COLUMNS: [&str; 7] = ["p50 ms", "p99 ms", "+p50 ms", "+p99 ms", "req/s", "CPU ms/req", "peak MiB"];

/// The table of one workload. `without` is the row that other proxies add to; the last line tells of `ours` against `baseline`.
pub fn table(title: &str, rows: &[&Row], without: Option<&Row>, ours: &Row, baseline: Option<&Row>) -> String {
    let mut lines = vec![line(title, COLUMNS.map(str::to_owned))];
    for row in rows {
        let added = |figure: fn(&Round) -> f64| {
            without
                .filter(|without| without.proxy != row.proxy && row.peak.is_some())
                .and_then(|without| row.added(without, figure))
        };
        let cells = [
            shown(row.median(|round| Some(round.one.p50)), 3),
            shown(row.median(|round| Some(round.one.p99)), 3),
            shown(added(|round| round.one.p50), 3),
            shown(added(|round| round.one.p99), 3),
            shown(row.median(|round| Some(round.several.per_second)), 0),
            shown(row.median(|round| round.several.cpu), 4),
            shown(row.peak, 1),
        ];
        lines.push(line(row.proxy, cells));
    }
    if let Some(baseline) = baseline {
        lines.push(line(&format!("{} / {}", ours.proxy, baseline.proxy), ratios(ours, baseline, without)));
    }
    lines.join("\n")
}

/// Our figures divided by the baseline's.
fn ratios(ours: &Row, baseline: &Row, without: Option<&Row>) -> [String; 7] {
    // The row that others add to adds nothing to itself.
    let divided = |a: Option<f64>, b: Option<f64>| shown(a.zip(b).filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b), 2);
    let of = |figure: fn(&Round) -> Option<f64>| divided(ours.median(figure), baseline.median(figure));
    let added = |figure: fn(&Round) -> f64| {
        let of = |row: &Row| without.and_then(|without| row.added(without, figure));
        divided(of(ours), of(baseline))
    };
    [
        of(|round| Some(round.one.p50)),
        of(|round| Some(round.one.p99)),
        added(|round| round.one.p50),
        added(|round| round.one.p99),
        of(|round| Some(round.several.per_second)),
        of(|round| round.several.cpu),
        divided(ours.peak, baseline.peak),
    ]
}

fn line(name: &str, cells: [String; 7]) -> String {
    format!("{name:<24} {}", cells.map(|cell| format!("{cell:>10}")).join(" "))
}
