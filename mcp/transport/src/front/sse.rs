//! HTTP with server-sent events (MCP 2024-11-05) in front of a server that speaks over a pipe (toolhive-runner §1.12, toolhive-0.63 §4.3).
//!
//! A GET opens a session and its stream. What the client POSTs to the session is accepted at once and answered on that stream. The session
//! ends with the stream.

mod endpoint;
mod post;
mod request;
mod session;
mod stream;

use std::sync::Arc;

use mcp_http::BoxService;
use mcp_store::Bound;

use self::session::Sessions;
use super::service;
use crate::mux::{Mux, MuxConfig, Running};
use crate::pipe::{BoxFuture, Closed, OpenError, Pipe};
use crate::{ClientUrl, Transport};

pub use self::session::DueAnswers;

/// How an [`Sse`] is to run.
#[derive(Clone, Debug, Default)]
pub struct SseConfig {
    /// How clients reach the proxy. `X-Forwarded-Proto` is believed in any case.
    pub client_url: ClientUrl,
    /// The pipe and those who share it.
    pub mux: MuxConfig,
}

/// Everything that a request needs.
#[derive(Debug)]
struct Front {
    mux: Arc<Mux>,
    sessions: Sessions,
    config: SseConfig,
}

/// An open pipe and its front on the paths `/sse` and `/messages`. Dropping it closes the pipe.
#[derive(Debug)]
pub struct Sse {
    front: Arc<Front>,
    running: Running,
}

impl Sse {
    /// Opens the pipe. Needs a Tokio runtime.
    ///
    /// # Errors
    /// When the pipe cannot be opened for the first time: later on it is tried again.
    pub async fn start(pipe: Arc<dyn Pipe>, config: SseConfig) -> Result<Self, OpenError> {
        let running = Running::start(pipe, config.mux).await?;
        let front = Front { mux: Arc::clone(&running.mux), sessions: Sessions::default(), config };
        Ok(Self { front: Arc::new(front), running })
    }
}

impl Transport for Sse {
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
