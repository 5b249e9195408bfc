//! Streamable HTTP in front of a server that speaks over a pipe (toolhive-runner §1.11).

mod answer;
mod modern;
mod post;
mod request;

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use mcp_http::{Body, BoxService};
use mcp_store::SessionStore;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::service_fn;

use crate::Transport;
use crate::mux::{Mux, MuxConfig, State};
use crate::pipe::{BoxFuture, Closed, OpenError, Pipe};

/// How a [`Streamable`] is to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamableConfig {
    /// Whether an `MCP-Protocol-Version` that is not a published revision is refused. Default: no.
    pub strict_versions: bool,
    /// The pipe and those who share it.
    pub mux: MuxConfig,
}

/// Everything that a request needs.
#[derive(Debug)]
struct Front {
    mux: Arc<Mux>,
    sessions: Arc<dyn SessionStore>,
    config: StreamableConfig,
    tools: modern::Tools,
}

/// An open pipe and its streamable-HTTP front on the path `/mcp`. Dropping it closes the pipe.
#[derive(Debug)]
pub struct Streamable {
    front: Arc<Front>,
    state: watch::Receiver<State>,
    cancel: CancellationToken,
    tasks: TaskTracker,
}

impl Streamable {
    /// Opens the pipe. Sessions are kept in `sessions`. Needs a Tokio runtime.
    ///
    /// # Errors
    /// When the pipe cannot be opened for the first time: later on it is tried again.
    pub async fn start(
        pipe: Arc<dyn Pipe>,
        config: StreamableConfig,
        sessions: Arc<dyn SessionStore>,
    ) -> Result<Self, OpenError> {
        let cancel = CancellationToken::new();
        let tasks = TaskTracker::new();
        let (mux, state) = Mux::start(pipe, config.mux, &cancel, &tasks).await?;
        Ok(Self {
            front: Arc::new(Front { mux, sessions, config, tools: modern::Tools::default() }),
            state,
            cancel,
            tasks,
        })
    }
}

impl Transport for Streamable {
    fn service(&self) -> BoxService {
        let front = Arc::clone(&self.front);
        BoxService::new(service_fn(move |request: Request<Body>| {
            let front = Arc::clone(&front);
            async move { Ok::<Response<Body>, Infallible>(request::handle(&front, request).await) }
        }))
    }

    fn sessions(&self) -> usize {
        self.front.sessions.len()
    }

    fn is_running(&self) -> bool {
        *self.state.borrow() == State::Running
    }

    /// Waits until the pipe was given up.
    fn failed(&self) -> BoxFuture<'_, Closed> {
        let mut state = self.state.clone();
        Box::pin(async move {
            let given_up =
                state.wait_for(|state| matches!(state, State::Failed | State::Deaf)).await.map(|state| *state);
            match given_up {
                Ok(State::Deaf) => Closed::Stays,
                Ok(_) => Closed::Gone,
                // Ended in another way: that is not a failure.
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// Closes the input of the server and waits for its end.
    fn shut_down(self: Box<Self>) -> BoxFuture<'static, Closed> {
        Box::pin(async move {
            self.cancel.cancel();
            self.tasks.close();
            self.tasks.wait().await;
            if *self.state.borrow() == State::Deaf { Closed::Stays } else { Closed::Gone }
        })
    }
}

impl Drop for Streamable {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
