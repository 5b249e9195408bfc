//! What clients see of a multiplexer: one module a protocol.

mod answer;
mod events;
mod forward;
mod sse;
mod streamable;

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use mcp_http::{Body, BoxService};
use tower::service_fn;

pub use sse::{DueAnswers, Sse, SseConfig};
pub use streamable::{Streamable, StreamableConfig};

/// A service whose every request `handle` answers.
fn service<F, A>(front: &Arc<F>, handle: fn(Arc<F>, Request<Body>) -> A) -> BoxService
where
    F: Send + Sync + 'static,
    A: Future<Output = Response<Body>> + Send + 'static,
{
    let front = Arc::clone(front);
    BoxService::new(service_fn(move |request: Request<Body>| {
        let answer = handle(Arc::clone(&front), request);
        async move { Ok::<Response<Body>, Infallible>(answer.await) }
    }))
}
