//! The diagnostics listener: `/metrics` beside the proxy's port (toolhive-runner §1.9).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use mcp_http::{Body, text};
use mcp_runconfig::{RunConfig, TelemetryConfig};
use portcullis_listener::{Incoming, Limits, Server};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::reports::Reports;

const PORT: u16 = 9464;
/// Metrics have one scraper, or a few.
const LIMITS: fn() -> Limits = || Limits { connections: 32, drain: Duration::from_secs(1), ..Limits::default() };

/// The settings of the listener in `telemetry_config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Diagnostics {
    port: u16,
    /// Whether the proxy's port serves `/metrics` as well.
    pub(crate) on_transport_port: bool,
}

impl Diagnostics {
    pub(crate) fn of(config: &RunConfig) -> Self {
        let TelemetryConfig { prometheus_port, metrics_on_transport_port, .. } =
            config.telemetry_config.clone().unwrap_or_default();
        Self {
            port: if prometheus_port == 0 { PORT } else { prometheus_port },
            on_transport_port: metrics_on_transport_port.unwrap_or(true),
        }
    }

    /// Binds beside the proxy, to a free port where its own is taken. Nobody is refused a call because there are no metrics.
    pub(crate) async fn bind(self, proxy: SocketAddr) -> Option<Server> {
        let bind = |port| Server::bind((proxy.ip(), port), LIMITS());
        let bound = match bind(self.port).await {
            Ok(server) => Ok(server),
            Err(error) => {
                tracing::warn!(%error, port = self.port, "cannot listen for diagnostics; trying a free port");
                bind(0).await
            }
        };
        let server = bound.inspect_err(|error| tracing::warn!(%error, "there is no diagnostics listener")).ok()?;
        let address = server.local_addr().map(|address| address.to_string()).unwrap_or_default();
        tracing::info!(diagnostics = address, "serving /metrics");
        Some(server)
    }
}

/// Serves `/metrics` until `stop`.
pub(crate) async fn serve(server: Server, app: Arc<App>, stop: CancellationToken) {
    let reports = Reports::default();
    let answer = move |request: Request<Incoming>| {
        let response = respond(&app, &reports, request.method(), request.uri().path());
        async move { response }
    };
    server.serve_plain(Arc::new(answer), stop).await;
}

fn respond(app: &App, reports: &Reports, method: &Method, path: &str) -> Response<Body> {
    match (path, method) {
        ("/metrics", &Method::GET) => app.metrics(reports),
        ("/metrics", _) => text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
        _ => text(StatusCode::NOT_FOUND, "GET /metrics\n"),
    }
}
