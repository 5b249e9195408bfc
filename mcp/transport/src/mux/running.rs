//! A multiplexer from the first opening of its pipe to its end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backlog::Backlog;
use super::calls::Calls;
use super::handshake::Handshake;
use super::listeners::Listeners;
use super::queue::Queue;
use super::subscriptions::Subscriptions;
use super::supervisor::{State, Supervisor};
use super::{Mux, MuxConfig};
use crate::pipe::{BoxFuture, Closed, OpenError, Pipe};

/// A multiplexer and the tasks that keep its pipe open. Dropping it closes the pipe.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) mux: Arc<Mux>,
    state: watch::Receiver<State>,
    cancel: CancellationToken,
    tasks: TaskTracker,
}

impl Running {
    /// Opens the pipe, unless the server is started elsewhere, and starts the task that keeps it open.
    pub(crate) async fn start(pipe: Arc<dyn Pipe>, config: MuxConfig) -> Result<Self, OpenError> {
        let first = if pipe.is_started_elsewhere() { None } else { Some(pipe.open().await?) };
        let (cancel, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (queue, lines) = Queue::new();
        let backlog = Arc::new(Backlog::default());
        let mux = Arc::new(Mux {
            subscriptions: Subscriptions::default(),
            listeners: Listeners::new(Arc::clone(&backlog)),
            answer_timeout: config.answer_timeout,
            notice: config.notice,
            calls: Calls::new(backlog),
            handshake: Handshake::default(),
            queue,
            tasks: tasks.clone(),
            answered: AtomicBool::new(false),
        });
        let (supervisor, state) = Supervisor::new(pipe, Arc::clone(&mux), lines, cancel.clone());
        tasks.spawn(supervisor.run(first));
        Ok(Self { mux, state, cancel, tasks })
    }

    /// Whether the pipe takes requests, and the server answers as far as is known.
    pub(crate) fn is_running(&self) -> bool {
        match *self.state.borrow() {
            State::Running => true,
            State::Silent => self.mux.has_answered(),
            State::Restarting | State::Failed | State::Deaf | State::Stopped => false,
        }
    }

    /// Waits until the pipe was given up.
    pub(crate) fn failed(&self) -> BoxFuture<'_, Closed> {
        let mut state = self.state.clone();
        Box::pin(async move {
            match state.wait_for(|state| matches!(state, State::Failed | State::Deaf)).await.map(|state| *state) {
                Ok(State::Deaf) => Closed::Stays,
                Ok(_) => Closed::Gone,
                // Ended in another way: that is not a failure.
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// Closes the input of the server and waits for its end.
    pub(crate) fn shut_down(self) -> BoxFuture<'static, Closed> {
        Box::pin(async move {
            self.cancel.cancel();
            self.tasks.close();
            self.tasks.wait().await;
            if *self.state.borrow() == State::Deaf { Closed::Stays } else { Closed::Gone }
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
