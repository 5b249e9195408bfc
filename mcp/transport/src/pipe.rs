//! A server at the other end of two byte streams: how it is opened, and how it ends.
//!
//! [`Process`] starts the server. Another way to reach one is a type of its own that implements [`Pipe`].

pub(crate) mod lines;
mod process;

use std::fmt;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

pub use process::Process;

/// A future in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way to reach a server that reads one JSON-RPC message a line and writes one a line.
pub trait Pipe: fmt::Debug + Send + Sync {
    /// Opens the pipe. Called again after its end.
    fn open(&self) -> BoxFuture<'_, Result<OpenPipe, OpenError>>;
}

/// A pipe that is open. Dropping `write` tells the server that nothing more comes.
pub struct OpenPipe {
    /// What the server says.
    pub read: Box<dyn AsyncRead + Send + Unpin>,
    /// What the server hears.
    pub write: Box<dyn AsyncWrite + Send + Unpin>,
    /// Its end.
    pub end: Box<dyn End>,
}

impl fmt::Debug for OpenPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenPipe").finish_non_exhaustive()
    }
}

/// The end of an open pipe.
pub trait End: Send {
    /// Waits until the server has gone of itself.
    fn ended(&mut self) -> BoxFuture<'_, ()>;

    /// Sees to it that the server is gone; both halves may have been dropped. `why` is for the log.
    fn close(self: Box<Self>, why: &'static str) -> BoxFuture<'static, ()>;
}

/// The pipe cannot be opened. Fix the command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no command.
    #[error("the command of the MCP server is empty")]
    Empty,
    /// The operating system refuses.
    #[error("cannot start {program:?}: {source}")]
    Spawn {
        /// What was to be started.
        program: std::ffi::OsString,
        /// Why not.
        source: std::io::Error,
    },
    /// Another pipe's reason.
    #[error("cannot reach the MCP server: {0}")]
    Unreachable(#[source] mcp_http::BoxError),
}
