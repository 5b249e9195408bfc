//! A server at the other end of two byte streams: how it is opened, and how it ends.
//!
//! [`Process`] starts the server, [`Attach`] finds it in a container. Another way to reach one is a type of its own that implements [`Pipe`].

mod attach;
pub(crate) mod lines;
mod process;

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use self::lines::Lines;

pub use attach::Attach;
pub use process::Process;

/// How long a server may take to end after its input was closed.
const LEAVE: Duration = Duration::from_secs(3);
/// Lines of the error stream longer than this are dropped.
const MAX_LOG_LINE: usize = 16 << 10;

/// A future in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way to reach a server that reads one JSON-RPC message a line and writes one a line.
pub trait Pipe: fmt::Debug + Send + Sync {
    /// Opens the pipe. Called again after its end.
    fn open(&self) -> BoxFuture<'_, Result<OpenPipe, OpenError>>;

    /// Whether somebody else starts the server, and again when it ends. Then it is waited for, however long that takes; one that
    /// is started here is given up when it ends again and again without an answer.
    fn is_started_elsewhere(&self) -> bool {
        false
    }
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

    /// Sees to it that the server is gone, as far as that can be done from here; both halves may have been dropped. `why` is for the log.
    fn close(self: Box<Self>, why: &'static str) -> BoxFuture<'static, Closed>;
}

/// What became of a server whose input was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It has ended, as far as is known.
    Gone,
    /// It goes on, and can never be spoken to again: somebody has to replace it.
    Stays,
}

/// Logs what a server writes to its standard error.
async fn log_errors_of(errors: impl AsyncRead + Unpin) {
    let mut lines = Lines::new(errors, MAX_LOG_LINE);
    while let Some(line) = lines.next().await {
        let line = String::from_utf8_lossy(&line);
        tracing::info!(target: "mcp_server", "{}", line.trim_end());
    }
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
