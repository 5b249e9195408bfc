//! An HTTP/1.1 listener that clients cannot hold.
//!
//! Clients (the API server, MCP clients behind a load balancer) keep connections open and call over them for hours. So
//! this is one accept loop that never waits for a client (the handshake happens in the connection's own task),
//! certificates that are swapped without closing the port, a deadline for everything that a client can be slow at, and
//! an end that closes kept connections, so that no request is lost to a process that is going.
//!
//! When [`Limits::connections`] are open, idle ones are closed for those that come: first those of the address that has
//! the most idle ones, and of these first those that never sent a request, then the oldest. While all are at work,
//! [`Limits::reserved`] more are accepted: each gets one answer from [`Handler::shed`] and is closed.
//!
//! ```
//! use std::sync::Arc;
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use hyper::{Request, Response};
//! use portcullis_listener::{Limits, RequestBody, Server};
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn serve() -> std::io::Result<()> {
//! let server = Server::bind("127.0.0.1:0", Limits::default()).await?;
//! let hello = |_: Request<RequestBody>| async { Response::new(Full::new(Bytes::from("hello\n"))) };
//! server.serve_plain(Arc::new(hello), CancellationToken::new()).await;
//! # Ok(())
//! # }
//! ```

mod body;
mod client_ca;
mod clock;
mod connection;
mod crowded;
mod handler;
mod limits;
mod places;
mod server;
mod socket;
mod tls;
mod workers;

/// Any error that the body of an answer may end with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub use body::{RequestBody, discard};
pub use client_ca::{ClientCa, ClientCaError, ClientCertificate};
pub use crowded::Crowded;
pub use handler::{Handler, come_again};
pub use limits::Limits;
pub use server::{Connections, MISTRUSTED, Server};
pub use tls::{TlsError, tls_config, tls_config_asking};
pub use workers::Workers;
