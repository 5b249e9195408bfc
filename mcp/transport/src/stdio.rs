//! The streamable-HTTP front for a server that speaks over standard input and output (toolhive-runner §1.11).
//!
//! One process serves every client: ids and progress tokens are rewritten on the way in and restored on the way out, the
//! handshake is made once and its result given to each client. What cannot be told apart on a shared pipe is refused (requests of
//! the server to its client) or dropped (log messages).
//!
//! When the process ends, calls under way fail, it is started again after a pause and the handshake and the subscriptions are
//! repeated, so that sessions go on. After [`StdioConfig::max_failures`] starts in a row that answered nothing the
//! front gives up: [`StdioFront::failed`] says so, and a supervisor should end its own process.

mod calls;
mod child;
mod dispatch;
mod events;
mod front;
mod handshake;
mod lines;
mod rewrite;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use mcp_http::BoxService;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::child::State;
use self::front::Front;

/// How a [`StdioFront`] is to run.
#[derive(Clone, Debug)]
pub struct StdioConfig {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Environment on top of this process's own.
    pub environment: Vec<(String, String)>,
    /// Whether an `MCP-Protocol-Version` that is not a published revision is refused. Default: no.
    pub strict_versions: bool,
    /// How long an answer may take; progress renews it, up to ten times. Default: 60 s.
    pub answer_timeout: Duration,
    /// How long a session lives without being used. Default: two hours.
    pub session_ttl: Duration,
    /// How many sessions are kept; the one unused for longest goes first. Default: 10,000.
    pub max_sessions: usize,
    /// The longest request body in bytes. Default: 8 MiB.
    pub max_body_bytes: usize,
    /// The longest line taken from the process in bytes; longer ones are dropped. Default: 16 MiB.
    pub max_line_bytes: usize,
    /// Starts in a row that answered nothing before the front gives up. Default: 6, about six seconds.
    pub max_failures: u32,
    /// The pause before the first restart; it doubles up to 30 s. Default: 200 ms.
    pub restart_pause: Duration,
}

impl StdioConfig {
    /// Defaults for `command`, a program and its arguments.
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            strict_versions: false,
            answer_timeout: Duration::from_mins(1),
            session_ttl: Duration::from_hours(2),
            max_sessions: 10_000,
            max_body_bytes: 8 << 20,
            max_line_bytes: 16 << 20,
            max_failures: 6,
            restart_pause: Duration::from_millis(200),
        }
    }
}

/// The process cannot be started at all. Fix the command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no command.
    #[error("the command of the MCP server is empty")]
    Empty,
    /// The operating system refuses.
    #[error("cannot start {program:?}: {source}")]
    Spawn {
        /// What was to be started.
        program: OsString,
        /// Why not.
        source: std::io::Error,
    },
}

/// A running process and its front. Dropping it ends the process.
#[derive(Debug)]
pub struct StdioFront {
    front: Arc<Front>,
    state: watch::Receiver<State>,
    cancel: CancellationToken,
    tasks: TaskTracker,
}

impl StdioFront {
    /// Starts the process. Needs a Tokio runtime.
    ///
    /// # Errors
    /// When the very first start fails: later ones are tried again.
    pub fn start(config: StdioConfig) -> Result<Self, StartError> {
        let cancel = CancellationToken::new();
        let tasks = TaskTracker::new();
        let (front, state) = child::start(config, &cancel, &tasks)?;
        Ok(Self { front, state, cancel, tasks })
    }

    /// The front as a service on the path `/mcp`. Ask [`refuse_method`](crate::refuse_method) before it and every middleware.
    pub fn service(&self) -> BoxService {
        front::service(Arc::clone(&self.front))
    }

    /// Whether the process runs and can be asked.
    pub fn is_running(&self) -> bool {
        *self.state.borrow() == State::Running
    }

    /// Waits until the front has given up on the process.
    pub async fn failed(&self) {
        let mut state = self.state.clone();
        if state.wait_for(|state| *state == State::Failed).await.is_err() {
            // Ended in another way: that is not a failure.
            std::future::pending::<()>().await;
        }
    }

    /// How many sessions are kept.
    pub fn sessions(&self) -> usize {
        self.front.sessions.len()
    }

    /// Ends the process: closes its input, waits up to three seconds, kills it.
    pub async fn shut_down(self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for StdioFront {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
