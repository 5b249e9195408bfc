//! Checks of the server, and the health report (toolhive-runner §1.9, toolhive-0.63 §4.3).

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use http::{Response, StatusCode};
use jiff::Timestamp;
use mcp_http::{Body, json};
use mcp_transport::{FailedCheck, Transport};
use serde::Serialize;

use crate::metrics::Metrics;
use crate::options::Environment;

/// How often the server is checked, and how long it may take to answer, where the environment says nothing.
const INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Serialize)]
struct Server {
    available: bool,
    response_time_ms: u128,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    last_checked: String,
}

#[derive(Serialize)]
struct Report<'a> {
    status: &'static str,
    timestamp: String,
    transport: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp: Option<&'a Server>,
}

/// What the last check of the server found.
#[derive(Debug)]
pub(crate) struct Health {
    transport: &'static str,
    interval: Duration,
    ping_timeout: Duration,
    last: ArcSwapOption<Server>,
}

impl Health {
    pub(crate) fn new(transport: &'static str, environment: &Environment) -> Self {
        let interval = environment.health_check_interval.unwrap_or(INTERVAL);
        let ping_timeout = environment.health_check_ping_timeout.unwrap_or(PING_TIMEOUT);
        Self { transport, interval, ping_timeout, last: ArcSwapOption::empty() }
    }

    /// Checks the server again and again. A server that does not answer is a word in the log, in the report and in a
    /// metric: ending the proxy would lose the sessions, and not mend the server.
    pub(crate) async fn monitor(&self, backend: &dyn Transport, metrics: &Metrics) {
        let mut was_up = true;
        loop {
            let start = Instant::now();
            let Some(ping) = backend.ping(self.ping_timeout) else { return };
            let failed = ping.await.err();
            let server = Server {
                available: failed.is_none(),
                response_time_ms: start.elapsed().as_millis(),
                error: failed.as_ref().map(|failed| failed.report.clone()),
                last_checked: Timestamp::now().to_string(),
            };
            match failed {
                Some(FailedCheck { log: error, .. }) => {
                    metrics.failed_checks.inc();
                    if was_up {
                        tracing::warn!(%error, "the MCP server fails its check; /health reports degraded");
                    }
                }
                None if !was_up => tracing::info!("the MCP server answers its check again"),
                None => {}
            }
            was_up = server.available;
            self.last.store(Some(Arc::new(server)));
            tokio::time::sleep(self.interval).await;
        }
    }

    /// Whether the server can be reached and passed its last check, where it is checked.
    pub(crate) fn is_up(&self, backend: &dyn Transport) -> bool {
        backend.is_running() && self.last.load().as_ref().is_none_or(|server| server.available)
    }

    /// 200 while the proxy serves, even when the server does not answer (`degraded`): a restart of the proxy would not help.
    pub(crate) fn report(&self, backend: &dyn Transport) -> Response<Body> {
        let status = if self.is_up(backend) { "healthy" } else { "degraded" };
        let last = self.last.load();
        let mcp = last.as_deref();
        let report = Report { status, timestamp: Timestamp::now().to_string(), transport: self.transport, mcp };
        // Strings and integers always serialise.
        json(StatusCode::OK, serde_json::to_vec(&report).unwrap_or_default())
    }
}
