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

    pub(crate) fn text(&self, sessions: usize) -> String {
        let mut out = String::from(
            "# HELP mcp_runner_requests_total Requests that passed to the gate, by class of the answer's status.\n\
             # TYPE mcp_runner_requests_total counter\n",
        );
        for (class, counter) in self.classes.iter().enumerate() {
            out += &format!("mcp_runner_requests_total{{code=\"{}xx\"}} {}\n", class + 1, counter.load(Relaxed));
        }
        for (name, help, value) in [
            ("requests_in_flight", "Requests whose answer is not complete.", self.in_flight.load(Relaxed)),
            ("connections", "Open connections.", self.connections.load(Relaxed)),
            ("sessions", "Sessions that are remembered.", sessions as u64),
        ] {
            out += &format!(
                "# HELP mcp_runner_{name} {help}\n# TYPE mcp_runner_{name} gauge\nmcp_runner_{name} {value}\n"
            );
        }
        out
    }
}
