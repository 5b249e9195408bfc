//! Samples, their medians, and the table of them.

use std::time::Duration;

use serde::Serialize;

use super::servers::Which;
use super::workload::Workload;

/// One window of calls to one server.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Name of the server.
    pub server: &'static str,
    /// Name of the workload.
    pub workload: &'static str,
    /// Answers that were right.
    pub answers: u64,
    /// CPU time of the server for one answer, in milliseconds.
    pub cpu_ms: f64,
    /// CPUs that everything but server and callers used meanwhile.
    pub others: f64,
}

/// Memory of one server, in MiB.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Name of the server.
    pub server: &'static str,
    /// Resident before the first call.
    pub idle: f64,
    /// The most that was resident, admission only.
    pub admission: Option<f64>,
    /// The most that was resident, conversion in a new process.
    pub conversion: Option<f64>,
}

/// All of one run.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// In the order in which they were taken.
    pub samples: Vec<Sample>,
    /// One for each server.
    pub memory: Vec<Memory>,
}

/// Milliseconds, as a figure to look at.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// KiB as MiB.
#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
pub fn mebibytes(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// The median; none of nothing.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

impl Figures {
    /// The median of the CPU time per answer, in milliseconds.
    pub fn cpu_ms(&self, server: &str, workload: &str) -> Option<f64> {
        let of = |sample: &&Sample| sample.server == server && sample.workload == workload;
        median(self.samples.iter().filter(of).map(|sample| sample.cpu_ms).collect())
    }

    /// The tables, for people.
    pub fn table(&self, servers: &[Which], workloads: &[Workload]) -> String {
        let mut lines = vec!["CPU ms per answer (median of the rounds)".to_owned()];
        let names = servers.iter().map(|server| server.name().to_owned());
        lines.push(row(
            "",
            names.chain(["vs ctrl-rt", "goal", "vs kube-rs", "vs floor", "vs baseline"].map(str::to_owned)),
        ));
        for workload in workloads {
            let of = |server: Which| self.cpu_ms(server.name(), workload.name);
            let ratio = |of: Option<f64>, to: Option<f64>| {
                of.zip(to).map_or_else(|| "-".into(), |(of, to)| format!("{:.1}x", of / to))
            };
            let ours = of(Which::Portcullis);
            let ratios = [
                ratio(of(Which::ControllerRuntime), ours),
                format!("{}x", workload.goal),
                ratio(of(Which::KubeRs), ours),
                ratio(ours, of(Which::Floor)),
                of(Which::Baseline).zip(ours).map_or_else(|| "-".into(), |(old, new)| format!("{:.3}", new / old)),
            ];
            lines.push(row(workload.name, servers.iter().map(|server| shown(of(*server), 4)).chain(ratios)));
        }
        lines.push(String::new());
        lines.push(row("resident MiB", ["idle", "admission", "conversion"].map(str::to_owned)));
        for memory in &self.memory {
            let figures = [Some(memory.idle), memory.admission, memory.conversion];
            lines.push(row(memory.server, figures.map(|figure| shown(figure, 1))));
        }
        let others = median(self.samples.iter().map(|sample| sample.others).collect()).unwrap_or_default();
        lines.push(String::new());
        lines.push(format!("Everything else on this machine used {others:.2} CPUs meanwhile (median of the windows)."));
        lines.join("\n")
    }
}

/// A figure with so many digits, or a dash.
pub fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".into(), |figure| format!("{figure:.digits$}"))
}

fn row(name: &str, cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|cell| format!("{cell:>13}")).collect();
    format!("{name:<18} {}", cells.join(" "))
}
