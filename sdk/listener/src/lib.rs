//! An HTTP/1.1 listener that slow clients cannot block.
//!
//! Clients (the API server, a load balancer) keep connections open and reuse them for hours. So the
//! accept loop never waits for a client (the TLS handshake runs in the task of the connection), certificates are
//! replaced without closing the port, each phase of a connection has a timeout, and shutdown closes
//! keep-alive connections so that no request is lost.
//!
//! When [`Limits::connections`] are open, the one that has been idle longest is closed for a new one. While none is
//! idle, new ones wait in the kernel's queue, and [`Crowded`] lets handlers give up slow clients.
//!
//! ```
//! use std::sync::Arc;
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use hyper::{Request, Response};
//! use portcullis_listener::{Incoming, Limits, Server};
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn serve() -> std::io::Result<()> {
//! let server = Server::bind("127.0.0.1:0", Limits::default()).await?;
//! let hello = |_: Request<Incoming>| async { Response::new(Full::new(Bytes::from("hello\n"))) };
//! server.serve_plain(Arc::new(hello), CancellationToken::new()).await;
//! # Ok(())
//! # }
//! ```

mod body;
mod connection;
mod handler;
mod limits;
mod listener;
mod server;
mod tls;

/// Any error of a response body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub use body::discard;
pub use handler::{Crowded, Handler, retry_later};
pub use hyper::body::Incoming;
pub use limits::Limits;
pub use listener::Listener;
pub use server::Server;
pub use tls::{TlsError, tls_config};
