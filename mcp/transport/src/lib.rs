//! What carries MCP between clients and one server.
//!
//! A [`Transport`] is what the request gate wraps. There are three: [`Proxy`] stands before a server that speaks streamable HTTP, beside it
//! or remote, and passes bytes both ways; [`Streamable`] serves streamable HTTP in front of a server that speaks over a [`Pipe`], such as the standard
//! input and output of a [`Process`] or, by [`Attach`], of a container, and [`Sse`] serves the older HTTP with server-sent events there. A crate of
//! its own can add a transport, or a pipe under the fronts that are here. Facts: toolhive-runner §1.10, §1.11, §1.12.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use mcp_store::{Limits, MemorySessions};
//! use mcp_transport::{Proxy, ProxyConfig, Transport as _};
//!
//! let sessions = Arc::new(MemorySessions::new(Limits::new(Duration::from_hours(2))));
//! let proxy = Proxy::new(ProxyConfig::new("http://mcp-weather:8080")?, sessions);
//! let service = proxy.service();
//! # drop(service);
//! assert!(ProxyConfig::new("https://example.com").is_err(), "that is a remote server: see ProxyConfig::remote");
//! # Ok::<(), mcp_transport::BackendError>(())
//! ```

mod carriers;
mod client_url;
mod endpoints;
mod front;
mod modern;
mod mux;
mod pipe;
mod proxy;
mod query;
mod sessions;

use std::fmt;
use std::time::Duration;

use mcp_http::BoxService;
use mcp_store::Bound;

pub use carriers::named_session;
pub use client_url::ClientUrl;
pub use endpoints::{Endpoints, Misrouted, Route};
pub use front::{DueAnswers, Sse, SseConfig, Streamable, StreamableConfig};
pub use modern::refuse_method;
pub use mux::MuxConfig;
pub use pipe::{Attach, BoxFuture, Closed, End, OpenError, OpenPipe, Pipe, Process};
pub use proxy::{BackendError, Proxy, ProxyConfig, names_hop_by_hop_only};

/// Why the server failed a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCheck {
    /// A sentence for the health report, which anybody may read.
    pub report: String,
    /// The same for the log, with addresses and what came of them.
    pub log: String,
}

/// One way to serve MCP, with its connection to the server.
pub trait Transport: fmt::Debug + Send + Sync {
    /// The service at the end of a [`Chain`](mcp_middleware::Chain), which gives it each body whole and within its limits. Ask
    /// [`refuse_method`] before it and every middleware.
    fn service(&self) -> BoxService;

    /// How many sessions there are.
    fn sessions(&self) -> usize;

    /// The bounds that clients share here.
    fn bounds(&self) -> Vec<Bound> {
        Vec::new()
    }

    /// Asks the server for a sign of life. `None` where the connection to it says enough: see [`Transport::is_running`].
    fn ping(&self, _timeout: Duration) -> Option<BoxFuture<'_, Result<(), FailedCheck>>> {
        None
    }

    /// Whether requests can reach the server, as far as is known without asking it.
    fn is_running(&self) -> bool {
        true
    }

    /// Waits until the transport has given up on the server: for ever, where it never does. The process should end then. Returns
    /// whether the server is still there.
    fn failed(&self) -> BoxFuture<'_, Closed> {
        Box::pin(std::future::pending())
    }

    /// Ends what belongs to the transport. Returns whether a server that should have ended with it is still there.
    fn shut_down(self: Box<Self>) -> BoxFuture<'static, Closed> {
        Box::pin(std::future::ready(Closed::Gone))
    }
}
