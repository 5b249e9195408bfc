//! What carries MCP between a client and one server.
//!
//! [`Proxy`] stands before a server that speaks streamable HTTP and passes bytes both ways; [`StdioFront`] starts a server
//! that speaks over standard input and output and serves streamable HTTP in its place. Both are a [`BoxService`](mcp_http::BoxService), so the
//! request gate wraps either the same way. Facts: toolhive-runner §1.10, §1.11.
//!
//! ```
//! use mcp_transport::{Proxy, ProxyConfig};
//!
//! let proxy = Proxy::new(ProxyConfig::new("http://mcp-weather:8080")?);
//! let service = proxy.service();
//! # drop(service);
//! assert!(ProxyConfig::new("https://example.com").is_err(), "remote servers are not built yet");
//! # Ok::<(), mcp_transport::BackendError>(())
//! ```

mod modern;
mod proxy;
mod sessions;
mod stdio;

pub use modern::refuse_method;
pub use proxy::{BackendError, Proxy, ProxyConfig};
pub use stdio::{StartError, StdioConfig, StdioFront};
