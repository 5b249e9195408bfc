//! The few numbers that say how the proxy does, in the text format of Prometheus.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one process.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Answers by the first digit of their status.
    classes: [AtomicU64; 5],
    /// Requests whose answer is not complete.
    pub(crate) in_flight: AtomicU64,
    /// Open connections.
    pub(crate) connections: AtomicU64,
}

impl Metrics {
    pub(crate) fn count(&self, status: http::StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = self.classes.get(class) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// The report; `sessions` are those that the transport remembers.
    pub(crate) fn text(&self, sessions: usize) -> String {
        let mut lines = vec![
            "# HELP mcp_runner_requests_total Requests that passed to the gate, by class of the answer's status."
                .to_owned(),
            "# TYPE mcp_runner_requests_total counter".to_owned(),
        ];
        for (class, counter) in (1..).zip(&self.classes) {
            lines.push(format!("mcp_runner_requests_total{{code=\"{class}xx\"}} {}", counter.load(Relaxed)));
        }
        for (name, help, value) in [
            ("requests_in_flight", "Requests whose answer is not complete.", self.in_flight.load(Relaxed)),
            ("connections", "Open connections.", self.connections.load(Relaxed)),
            ("sessions", "Sessions that are remembered.", sessions as u64),
        ] {
            lines.push(format!("# HELP mcp_runner_{name} {help}"));
            lines.push(format!("# TYPE mcp_runner_{name} gauge"));
            lines.push(format!("mcp_runner_{name} {value}"));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}
