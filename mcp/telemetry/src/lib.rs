//! Traces and metrics: the middleware `telemetry` (toolhive-runner §2.12).
//!
//! ```
//! use mcp_middleware::Registry;
//!
//! let mut registry = Registry::default();
//! mcp_telemetry::register(&mut registry);
//! assert!(registry.kinds().eq(["telemetry"]));
//! ```

mod export;

use futures::future::BoxFuture;
use http::{Request, Response};
use mcp_http::Body;
use mcp_middleware::{BuildContext, BuildError, Middleware, Next, Registry};
use mcp_runconfig::{TELEMETRY, TelemetryParameters};
use opentelemetry_sdk::metrics::ManualReader;

use self::export::{Pipeline, start};

/// Adds the middleware `telemetry`.
pub fn register(registry: &mut Registry) {
    registry.register(TELEMETRY, Telemetry::new);
}

/// Records each request.
struct Telemetry(Pipeline);

impl Telemetry {
    async fn new(parameters: TelemetryParameters, context: BuildContext) -> Result<Self, BuildError> {
        Ok(Self(start::<ManualReader>(&parameters.config, &context, None).await?))
    }
}

impl Middleware for Telemetry {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        next.call(request)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.close())
    }
}
