//! The process: started, written to, read from, started again.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use mcp_wire::Message;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::calls::{Call, Reply};
use super::front::{Front, Line};
use super::handshake::INITIALIZED;
use super::rewrite::{Params, request_line};
use super::{StartError, StdioConfig, dispatch, lines};

const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long a process may take to end after its input was closed.
const LEAVE: Duration = Duration::from_secs(3);
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);
/// Lines of the error stream longer than this are dropped.
const MAX_LOG_LINE: usize = 16 << 10;
/// Lines that are written with one system call.
const BATCH: usize = 64;

/// What the process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It takes requests.
    Running,
    /// It ended and is started again.
    Restarting,
    /// It was given up.
    Failed,
    /// It was ended on purpose.
    Stopped,
}

/// Starts the process and the task that keeps it running.
pub(super) fn start(
    config: StdioConfig,
    cancel: &CancellationToken,
    tasks: &TaskTracker,
) -> Result<(Arc<Front>, watch::Receiver<State>), StartError> {
    let first = spawn(&config)?;
    let (front, queue) = Front::new(&config, tasks.clone());
    let front = Arc::new(front);
    let (state, watched) = watch::channel(State::Running);
    let supervisor = Supervisor { config, front: Arc::clone(&front), queue, state, cancel: cancel.clone() };
    tasks.spawn(supervisor.run(first));
    Ok((front, watched))
}

fn spawn(config: &StdioConfig) -> Result<Child, StartError> {
    let (program, arguments) = config.command.split_first().ok_or(StartError::Empty)?;
    Command::new(program)
        .args(arguments)
        .envs(config.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| StartError::Spawn { program: program.clone(), source })
}

struct Supervisor {
    config: StdioConfig,
    front: Arc<Front>,
    queue: mpsc::Receiver<Line>,
    state: watch::Sender<State>,
    cancel: CancellationToken,
}

impl Supervisor {
    async fn run(mut self, first: Child) {
        let mut next = Some(first);
        let mut failures = 0;
        loop {
            let child = match next.take() {
                Some(child) => Ok(child),
                None => spawn(&self.config),
            };
            match child {
                Ok(child) => {
                    self.serve(child).await;
                    if self.cancel.is_cancelled() {
                        self.state.send_replace(State::Stopped);
                        self.front.calls.fail_all();
                        return;
                    }
                }
                Err(error) => tracing::error!(%error, "the MCP server's process cannot be started again"),
            }
            self.front.calls.fail_all();
            failures = if self.front.take_answered() { 1 } else { failures + 1 };
            if failures >= self.config.max_failures {
                tracing::error!(starts = failures, "gave up on the MCP server's process: it ends without answering");
                // From here on every call fails at once: the queue has no reader.
                self.state.send_replace(State::Failed);
                return;
            }
            let pause = self.config.restart_pause * 2_u32.saturating_pow(failures - 1);
            tokio::select! {
                () = tokio::time::sleep(pause.min(MAX_PAUSE)) => {}
                () = self.cancel.cancelled() => {}
            }
        }
    }

    /// Serves one process until it ends or is to end.
    async fn serve(&mut self, mut child: Child) {
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return;
        };
        let mut readers = JoinSet::new();
        let front = Arc::clone(&self.front);
        let limit = self.config.max_line_bytes;
        readers.spawn(async move { lines::read(stdout, limit, |line| dispatch::line(&front, &line)).await });
        let mut log = JoinSet::new();
        log.spawn(lines::read(stderr, MAX_LOG_LINE, |line| {
            let line = String::from_utf8_lossy(&line);
            tracing::info!(target: "mcp_server", "{}", line.trim_end());
        }));
        let pid = child.id();
        let why = tokio::select! {
            () = self.cancel.cancelled() => "it was asked to",
            _ = child.wait() => "of itself",
            _ = readers.join_next() => "after it closed its output",
            () = talk(stdin, &self.front, &mut self.queue, &self.state) => "after it took no more input",
        };
        self.state.send_replace(State::Restarting);
        // `talk` is gone and with it the input of the process, which asks it to end.
        match timeout(LEAVE, child.wait()).await {
            Ok(Ok(status)) if self.cancel.is_cancelled() => {
                tracing::info!(pid, %status, "the MCP server's process ended");
            }
            Ok(Ok(status)) => tracing::warn!(pid, %status, why, "the MCP server's process ended"),
            Ok(Err(error)) => tracing::warn!(pid, %error, "lost the MCP server's process"),
            Err(_) => {
                tracing::warn!(pid, why, "killing the MCP server's process: it does not end when its input does");
                if let Err(error) = child.kill().await {
                    tracing::error!(pid, %error, "cannot kill the MCP server's process");
                }
            }
        }
        // What it said last may still be in the pipes; a grandchild may hold them open.
        let _ = timeout(Duration::from_millis(200), async {
            while readers.join_next().await.is_some() {}
            while log.join_next().await.is_some() {}
        })
        .await;
    }
}

/// Greets a process that takes the place of another, then writes to it what is asked. Returns when it takes no more.
async fn talk(mut stdin: ChildStdin, front: &Front, queue: &mut mpsc::Receiver<Line>, state: &watch::Sender<State>) {
    match timeout(GREETING_TIMEOUT, greet(&mut stdin, front)).await {
        Ok(Ok(())) => state.send_replace(State::Running),
        Ok(Err(problem)) => return tracing::warn!(problem, "the MCP server's process cannot be greeted"),
        Err(_) => return tracing::warn!("the MCP server's process does not answer the handshake"),
    };
    let mut batch = Vec::with_capacity(BATCH);
    let mut buffer = BytesMut::new();
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        for line in batch.drain(..) {
            // A call that has failed or was left while it waited here must not be acted on.
            if line.call.is_none_or(|call| front.calls.is_open(call)) {
                buffer.extend_from_slice(&line.bytes);
            }
        }
        if stdin.write_all(&buffer).await.is_err() {
            return;
        }
        buffer.clear();
    }
}

/// Repeats the handshake and the subscriptions, when there were any.
async fn greet(stdin: &mut ChildStdin, front: &Front) -> Result<(), &'static str> {
    const CLOSED: &str = "its input is closed";
    let Some(request) = front.handshake.request() else { return Ok(()) };
    let message = Message::parse(&request).map_err(|_| "the handshake that was kept is broken")?;
    let params = Params::read_loose(message.params());
    let id = front.calls.fresh_id();
    let (reply, answer) = oneshot::channel();
    let kept = message.id().map(|id| id.raw()).unwrap_or_default();
    front.calls.open(id, Call { id: kept.into(), token: None, session: None, reply: Reply::Once(reply) });
    stdin.write_all(&request_line(&request, &message, &params, id)).await.map_err(|_| CLOSED)?;
    let answer = answer.await.map_err(|_| "it ended during the handshake")?;
    front.handshake.keep(&request, &answer).ok_or("it refuses the handshake")?;
    if front.handshake.is_initialized() {
        stdin.write_all(INITIALIZED).await.map_err(|_| CLOSED)?;
    }
    for uri in front.subscriptions.uris() {
        let line = front.subscription_line("resources/subscribe", &uri);
        stdin.write_all(&line).await.map_err(|_| CLOSED)?;
    }
    Ok(())
}
