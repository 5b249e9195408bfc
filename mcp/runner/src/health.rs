//! The health report (toolhive-runner §1.9).

use std::time::{Duration, Instant};

use http::{Response, StatusCode};
use jiff::Timestamp;
use mcp_http::{Body, json};
use mcp_transport::Proxy;
use serde::Serialize;
use tokio::sync::Mutex;

use crate::backend::{Backend, PING_TIMEOUT};

/// Probes within this time share one look at the server.
const FRESH: Duration = Duration::from_secs(1);

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
    mcp: Option<Server>,
}

/// Looks at the server, at most once a second.
#[derive(Debug)]
pub(crate) struct Health {
    transport: &'static str,
    last: Mutex<Option<(Instant, Server)>>,
}

impl Health {
    pub(crate) fn new(transport: &'static str) -> Self {
        Self { transport, last: Mutex::new(None) }
    }

    /// 200 while the proxy serves, even when the server does not answer (`degraded`): a restart of the proxy would not help.
    /// Once it drains it takes no connections, which a probe sees as not ready.
    pub(crate) async fn report(&self, backend: &Backend) -> Response<Body> {
        let (up, mcp) = match backend {
            Backend::Http(proxy) => {
                let server = self.server(proxy).await;
                (server.available, Some(server))
            }
            Backend::Stdio(front) => (front.is_running(), None),
        };
        let status = if up { "healthy" } else { "degraded" };
        let report = Report { status, timestamp: Timestamp::now().to_string(), transport: self.transport, mcp };
        // Strings and integers always serialise.
        json(StatusCode::OK, serde_json::to_vec(&report).unwrap_or_default())
    }

    async fn server(&self, proxy: &Proxy) -> Server {
        let mut last = self.last.lock().await;
        if let Some((when, server)) = &*last
            && when.elapsed() < FRESH
        {
            return server.clone();
        }
        let start = Instant::now();
        let ping = proxy.ping(PING_TIMEOUT).await;
        let server = Server {
            available: ping.is_ok(),
            response_time_ms: start.elapsed().as_millis(),
            error: ping.err(),
            last_checked: Timestamp::now().to_string(),
        };
        *last = Some((Instant::now(), server.clone()));
        server
    }
}
