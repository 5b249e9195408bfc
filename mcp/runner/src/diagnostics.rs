//! The diagnostics listener: `/metrics` beside the proxy's port (toolhive-runner §1.9).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use mcp_http::{Body, text};
use mcp_runconfig::{RunConfig, fold};
use portcullis_listener::{Incoming, Limits, Server};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::app::App;

const PORT: u16 = 9464;
/// Who reads metrics is one scraper, or a few.
const LIMITS: fn() -> Limits = || Limits { connections: 32, drain: Duration::from_secs(1), ..Limits::default() };

/// What the document says of it in `telemetry_config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Diagnostics {
    port: u16,
    /// Whether the proxy's port serves `/metrics` as well.
    pub(crate) on_transport_port: bool,
}

impl Diagnostics {
    pub(crate) fn of(config: &RunConfig) -> Self {
        let member = |object: &serde_json::Map<String, Value>, name: &str| {
            object.iter().find(|(key, _)| fold(key) == fold(name)).map(|(_, value)| value.clone())
        };
        let telemetry = member(&config.extra, "telemetry_config");
        let setting =
            |name: &str| telemetry.as_ref().and_then(Value::as_object).and_then(|object| member(object, name));
        let port = setting("prometheusPort").and_then(|port| port.as_u64()).and_then(|port| u16::try_from(port).ok());
        Self {
            port: port.filter(|port| *port != 0).unwrap_or(PORT),
            on_transport_port: setting("metricsOnTransportPort").and_then(|flag| flag.as_bool()).unwrap_or(true),
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
    let answer = move |request: Request<Incoming>| {
        let response = respond(&app, request.method(), request.uri().path());
        async move { response }
    };
    server.serve_plain(Arc::new(answer), stop).await;
}

fn respond(app: &App, method: &Method, path: &str) -> Response<Body> {
    match (path, method) {
        ("/metrics", &Method::GET) => app.metrics(),
        ("/metrics", _) => text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
        _ => text(StatusCode::NOT_FOUND, "GET /metrics\n"),
    }
}
