//! Checks of the server, the health report (toolhive-runner §1.9, toolhive-0.63 §4.3), and whether the proxy is ready.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use http::{Response, StatusCode};
use jiff::Timestamp;
use mcp_http::{Body, json};
use mcp_transport::{FailedCheck, Transport};
use serde::Serialize;

use crate::metrics::Metrics;
use crate::options::Environment;

/// The default interval of checks of the server, and their default timeout.
const INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between checks of a server that does not answer.
const RETRY: Duration = Duration::from_secs(1);
/// The time without an answer after which the proxy is not ready any more, where the environment says nothing. Its clients get errors in the
/// meantime, and no refused connections.
const UNREADY_AFTER: Duration = Duration::from_mins(1);

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

/// The result of the last check of the server.
#[derive(Debug)]
pub(crate) struct Health {
    transport: &'static str,
    interval: Duration,
    retry: Duration,
    ping_timeout: Duration,
    /// None where the proxy is ready whatever the server does.
    unready_after: Option<Duration>,
    last: ArcSwapOption<Server>,
    /// When the server was there for the last time.
    seen: Mutex<Option<Instant>>,
}

impl Health {
    /// The health of a proxy that waits for its server. One in front of a remote server does not, as no restart and no other pod would help.
    pub(crate) fn new(transport: &'static str, is_remote: bool, environment: &Environment) -> Self {
        let interval = environment.health_check_interval.unwrap_or(INTERVAL);
        let unready_after = environment.unready_after.unwrap_or(UNREADY_AFTER);
        Self {
            transport,
            interval,
            retry: environment.health_check_interval.unwrap_or(RETRY),
            ping_timeout: environment.health_check_ping_timeout.unwrap_or(PING_TIMEOUT),
            unready_after: (!is_remote).then_some(unready_after),
            last: ArcSwapOption::empty(),
            seen: Mutex::default(),
        }
    }

    /// Checks the server again and again. A server that does not answer is a word in the log, in the report and in a
    /// metric: ending the proxy would lose the sessions, and not mend the server.
    pub(crate) async fn monitor(&self, backend: &dyn Transport, metrics: &Metrics) {
        let mut was_up = true;
        loop {
            let start = Instant::now();
            let Some(ping) = backend.ping(self.ping_timeout) else { break };
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
            self.see(was_up);
            tokio::time::sleep(if was_up { self.interval } else { self.retry }).await;
        }
        // The connection to it says enough.
        loop {
            self.see(backend.is_running());
            tokio::time::sleep(self.retry).await;
        }
    }

    /// Whether the server can be reached and passed its last check, where it is checked.
    pub(crate) fn is_up(&self, backend: &dyn Transport) -> bool {
        backend.is_running() && self.last.load().as_ref().is_none_or(|server| server.available)
    }

    /// Whether requests are likely to be answered: the server was there once, and is, or was not long ago.
    pub(crate) fn is_ready(&self, backend: &dyn Transport) -> bool {
        let Some(unready_after) = self.unready_after else { return true };
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.is_some_and(|seen| self.is_up(backend) || seen.elapsed() < unready_after)
    }

    fn see(&self, is_there: bool) {
        if is_there {
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
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
