//! The pipe: opened, written to, read from, opened again.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use mcp_wire::Message;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::calls::{Call, Reply};
use super::handshake::INITIALIZED;
use super::queue::Queued;
use super::rewrite::{Params, request_line};
use super::{Mux, dispatch};
use crate::pipe::{OpenPipe, Pipe, lines};

/// The longest line taken from the server in bytes; longer ones are dropped.
const MAX_LINE: usize = 16 << 20;
/// Pipes in a row that answered nothing before the multiplexer gives up: about six seconds.
const MAX_FAILURES: u32 = 6;
/// The pause before the pipe is opened again; it doubles up to [`MAX_PAUSE`].
const RESTART_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(30);
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);
/// Lines that are written with one system call: so many, or so many bytes.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 64 << 10;

type Input = Box<dyn AsyncWrite + Send + Unpin>;

/// What the pipe is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It takes requests.
    Running,
    /// It ended and is opened again.
    Restarting,
    /// It was given up.
    Failed,
    /// It was ended on purpose.
    Stopped,
}

/// Keeps the pipe open.
pub(super) struct Supervisor {
    pipe: Arc<dyn Pipe>,
    mux: Arc<Mux>,
    lines: mpsc::UnboundedReceiver<Queued>,
    state: watch::Sender<State>,
    cancel: CancellationToken,
}

impl Supervisor {
    pub(super) fn new(
        pipe: Arc<dyn Pipe>,
        mux: Arc<Mux>,
        lines: mpsc::UnboundedReceiver<Queued>,
        cancel: CancellationToken,
    ) -> (Self, watch::Receiver<State>) {
        let (state, watched) = watch::channel(State::Running);
        (Self { pipe, mux, lines, state, cancel }, watched)
    }

    pub(super) async fn run(mut self, first: OpenPipe) {
        let mut next = Some(first);
        let mut failures = 0;
        loop {
            let open = match next.take() {
                Some(open) => Ok(open),
                None => self.pipe.open().await,
            };
            match open {
                Ok(open) => {
                    self.serve(open).await;
                    if self.cancel.is_cancelled() {
                        return self.stopped();
                    }
                }
                Err(error) => tracing::error!(%error, "the MCP server's process cannot be started again"),
            }
            self.mux.calls.fail_all();
            failures = if self.mux.take_answered() { 1 } else { failures + 1 };
            if failures >= MAX_FAILURES {
                tracing::error!(starts = failures, "gave up on the MCP server's process: it ends without answering");
                // From here on every call fails at once: the queue has no reader.
                self.state.send_replace(State::Failed);
                return;
            }
            let pause = (RESTART_PAUSE * 2_u32.saturating_pow(failures - 1)).min(MAX_PAUSE);
            tracing::warn!(?pause, "starting the MCP server's process again after a pause");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.cancel.cancelled() => return self.stopped(),
            }
        }
    }

    fn stopped(&self) {
        self.state.send_replace(State::Stopped);
        self.mux.calls.fail_all();
    }

    /// Serves one pipe until it ends or is to end.
    async fn serve(&mut self, open: OpenPipe) {
        let OpenPipe { read, write, mut end } = open;
        let mut reader = JoinSet::new();
        let mux = Arc::clone(&self.mux);
        reader.spawn(async move { lines::read(read, MAX_LINE, |line| dispatch::line(&mux, &line)).await });
        let why = tokio::select! {
            () = self.cancel.cancelled() => "it was asked to",
            () = end.ended() => "of itself",
            _ = reader.join_next() => "after it closed its output",
            () = talk(write, &self.mux, &mut self.lines, &self.state) => "after it took no more input",
        };
        self.state.send_replace(State::Restarting);
        // `talk` is gone and with it the input of the server, which asks it to end.
        end.close(why).await;
        // What it said last may still be in the pipe; somebody else may hold it open.
        let _ = timeout(Duration::from_millis(200), reader.join_next()).await;
    }
}

/// Greets a server that takes the place of another, then writes to it what is asked. Returns when it takes no more.
async fn talk(mut input: Input, mux: &Mux, lines: &mut mpsc::UnboundedReceiver<Queued>, state: &watch::Sender<State>) {
    match timeout(GREETING_TIMEOUT, greet(&mut input, mux)).await {
        Ok(Ok(())) => state.send_replace(State::Running),
        Ok(Err(problem)) => return tracing::warn!(problem, "the MCP server's process cannot be greeted"),
        Err(_) => return tracing::warn!("the MCP server's process does not answer the handshake"),
    };
    let mut batch = Vec::with_capacity(BATCH);
    let mut buffer = BytesMut::new();
    while lines.recv_many(&mut batch, BATCH).await > 0 {
        for queued in batch.drain(..) {
            // A call that has failed or was left while it waited here must not be acted on.
            if queued.line.call.is_some_and(|call| !mux.calls.is_open(call)) {
                continue;
            }
            let bytes = &queued.line.bytes;
            if buffer.len() + bytes.len() > BATCH_BYTES {
                let written = async {
                    input.write_all(&buffer).await?;
                    input.write_all(bytes).await
                };
                if written.await.is_err() {
                    return;
                }
                buffer.clear();
            } else {
                buffer.extend_from_slice(bytes);
            }
        }
        if input.write_all(&buffer).await.is_err() || input.flush().await.is_err() {
            return;
        }
        buffer.clear();
    }
}

/// Repeats the handshake and the subscriptions, when there were any.
async fn greet(input: &mut Input, mux: &Mux) -> Result<(), &'static str> {
    const CLOSED: &str = "its input is closed";
    let Some(request) = mux.handshake.request() else { return Ok(()) };
    let message = Message::parse(&request).map_err(|_| "the handshake that was kept is broken")?;
    let params = Params::read_loose(message.params());
    let number = mux.ids.fresh();
    let (reply, answer) = oneshot::channel();
    let kept = message.id().map(|id| id.raw()).unwrap_or_default();
    mux.calls.open(number, Call { id: kept.into(), token: None, origin: None, reply: Reply::Once(reply) });
    let line = request_line(&request, &message, &params, &mux.ids.text(number));
    input.write_all(&line).await.map_err(|_| CLOSED)?;
    input.flush().await.map_err(|_| CLOSED)?;
    let answer = answer.await.map_err(|_| "it ended during the handshake")?;
    mux.handshake.keep(&request, &answer.bytes).ok_or("it refuses the handshake")?;
    if mux.handshake.is_initialized() {
        input.write_all(INITIALIZED).await.map_err(|_| CLOSED)?;
    }
    for uri in mux.subscriptions.uris() {
        let line = mux.subscription_line("resources/subscribe", &uri);
        input.write_all(&line).await.map_err(|_| CLOSED)?;
    }
    input.flush().await.map_err(|_| CLOSED)
}
