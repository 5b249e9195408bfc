//! Streamable HTTP in front of a server that speaks over a pipe (toolhive-runner §1.11).

mod answer;
mod modern;
mod post;
mod request;

use std::sync::Arc;

use mcp_http::BoxService;
use mcp_store::{Bound, SessionStore};

use super::service;
use crate::Transport;
use crate::mux::{Mux, MuxConfig, Running};
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
    running: Running,
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
        let running = Running::start(pipe, config.mux).await?;
        let front = Front { mux: Arc::clone(&running.mux), sessions, config, tools: modern::Tools::default() };
        Ok(Self { front: Arc::new(front), running })
    }
}

impl Transport for Streamable {
    fn service(&self) -> BoxService {
        service(&self.front, request::handle)
    }

    fn sessions(&self) -> usize {
        self.front.sessions.len()
    }

    fn bounds(&self) -> Vec<Bound> {
        self.front.mux.bounds()
    }

    fn is_running(&self) -> bool {
        self.running.is_running()
    }

    fn failed(&self) -> BoxFuture<'_, Closed> {
        self.running.failed()
    }

    fn shut_down(self: Box<Self>) -> BoxFuture<'static, Closed> {
        self.running.shut_down()
    }
}
