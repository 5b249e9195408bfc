//! The middleware of an MCP proxy: their trait, and the chain and the context that they are given.
//!
//! A [`Middleware`] answers a request or hands it on to [`Next`]. A [`Registry`] knows middleware by their type names and builds the
//! [`Chain`] that a RunConfig asks for. The [`RequestContext`] travels beside a request: a middleware reads in it what those outside
//! of it found on the way in, and what those inside of it found once [`Next::call`] has answered. A middleware that edits the lists in
//! answers [registers](RequestContext::filter_lists) its filter on the way in, and one that looks at the server's own requests and notifications
//! [registers](RequestContext::watch_messages) a watcher; the chain runs all of them around the transport.
//!
//! ```
//! use futures::future::BoxFuture;
//! use http::{Request, Response};
//! use mcp_http::Body;
//! use mcp_middleware::{Middleware, Next, Registry};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! struct Parameters {
//!     label: String,
//! }
//!
//! /// Logs which tools are called, by whom, and who refused.
//! struct Trace(Parameters);
//!
//! impl Middleware for Trace {
//!     fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
//!         let context = next.context();
//!         Box::pin(async move {
//!             let response = next.call(request).await;
//!             let method = context.message().and_then(|message| message.method().map(str::to_owned));
//!             println!("{}: {method:?} by {:?}, refused: {:?}", self.0.label, context.identity(), context.denial());
//!             response
//!         })
//!     }
//! }
//!
//! let mut registry = Registry::default();
//! registry.register("trace", |parameters: Parameters, _| async move { Ok(Trace(parameters)) });
//! ```

mod bearer;
mod bodies;
mod chain;
mod context;
mod decisions;
mod door;
mod exchange;
mod fingerprint;
mod metrics;
mod network;
mod outcome;
mod registry;
mod response_filter;
mod secrets;
mod shadows;
mod target;

pub use bearer::{NoBearer, bearer_token};
pub use bodies::{ANSWERS, beside, read_message};
pub use chain::{Chain, Middleware, Next};
pub use context::{Denial, Identity, ReplaceError, RequestContext};
pub use decisions::{Decision, Decisions, Guard};
pub use exchange::{Asked, End, Exchange, Observation};
pub use fingerprint::Fingerprint;
pub use metrics::Metrics;
pub use network::client_network;
pub use outcome::Outcome;
pub use registry::{BuildContext, BuildError, Entry, Place, ProxySettings, Registry, Variables};
pub use response_filter::{ListFilter, Look, Missed};
pub use secrets::{Secret, SecretSource, Secrets};
pub use shadows::{Finding, Found, Run, Running, Shadow, Shadows};
pub use target::target_name;
