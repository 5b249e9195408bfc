//! The pipe: opened, written to, read from, opened again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Buf as _;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::calls::{Call, Reply};
use super::handshake::{self, INITIALIZED};
use super::outlet::Outlet;
use super::queue::Queued;
use super::rewrite::request_line;
use super::{Mux, dispatch};
use crate::pipe::lines::Lines;
use crate::pipe::{Closed, OpenPipe, Pipe};

/// The longest line taken from the server in bytes; longer ones are dropped.
const MAX_LINE: usize = 16 << 20;
/// Pipes in a row that answered nothing before the multiplexer gives up: about six seconds.
const MAX_FAILURES: u32 = 6;
/// The pause before the pipe is opened again; it doubles up to [`MAX_PAUSE`].
const RESTART_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long a server may take to answer anything, from its first request on. One that was started elsewhere may be fetching its packages,
/// and starts from the beginning when its input is closed.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_ELSEWHERE: Duration = Duration::from_mins(3);
/// When nothing was asked of a server for so long, it is asked for a sign of life: kubelets close attachments that are idle for hours.
const KEEP_ALIVE: Duration = Duration::from_mins(5);

type Input = Box<dyn AsyncWrite + Send + Unpin>;

/// What the pipe is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It takes requests.
    Running,
    /// It takes requests, and the server had answered none of them for some time after it was opened.
    Silent,
    /// It ended and is opened again.
    Restarting,
    /// It was given up.
    Failed,
    /// It was given up: the server goes on, and never reads again.
    Deaf,
    /// It was ended on purpose.
    Stopped,
}

/// Keeps the pipe open.
pub(super) struct Supervisor {
    pipe: Arc<dyn Pipe>,
    mux: Arc<Mux>,
    lines: Outlet,
    state: watch::Sender<State>,
    cancel: CancellationToken,
    /// How long the server was asked and silent since its last answer, over all pipes: one that never answers may be detached in between.
    silent: Duration,
}

impl Supervisor {
    pub(super) fn new(
        pipe: Arc<dyn Pipe>,
        mux: Arc<Mux>,
        lines: mpsc::UnboundedReceiver<Queued>,
        cancel: CancellationToken,
    ) -> (Self, watch::Receiver<State>) {
        let (state, watched) =
            watch::channel(if pipe.is_started_elsewhere() { State::Restarting } else { State::Running });
        (Self { pipe, mux, lines: Outlet::new(lines), state, cancel, silent: Duration::ZERO }, watched)
    }

    /// Begins with the pipe that is open, if one is.
    pub(super) async fn run(mut self, mut next: Option<OpenPipe>) {
        let mut failures = 0;
        loop {
            let open = if let Some(open) = next.take() {
                Ok(open)
            } else {
                tokio::select! {
                    open = self.pipe.open() => open,
                    () = self.cancel.cancelled() => return self.end(State::Stopped),
                }
            };
            match open {
                Ok(open) => {
                    let closed = self.serve(open).await;
                    if closed == Closed::Stays {
                        return self.end(State::Deaf);
                    }
                    if self.cancel.is_cancelled() {
                        return self.end(State::Stopped);
                    }
                }
                Err(error) => tracing::error!(%error, "the MCP server's process cannot be started again"),
            }
            self.lines.keep_unwritten(&self.mux.calls);
            // The next may be of another version.
            if self.mux.handshake.serves_modern() == Some(false) {
                self.mux.handshake.set_modern(None);
            }
            self.mux.calls.fail_written();
            if self.mux.take_answered() {
                (failures, self.silent) = (1, Duration::ZERO);
            } else {
                failures += 1;
            }
            if failures >= MAX_FAILURES && !self.pipe.is_started_elsewhere() {
                tracing::error!(starts = failures, "gave up on the MCP server's process: it ends without answering");
                return self.end(State::Failed);
            }
            let pause = (RESTART_PAUSE * 2_u32.saturating_pow(failures - 1)).min(MAX_PAUSE);
            tracing::warn!(?pause, "the connection to the MCP server ended; opening it again after a pause");
            tokio::select! {
                () = sleep(pause) => {}
                () = self.cancel.cancelled() => return self.end(State::Stopped),
            }
        }
    }

    /// From here on every call fails at once.
    fn end(&mut self, state: State) {
        self.lines.close();
        self.state.send_replace(state);
        self.mux.calls.fail_all();
    }

    /// Serves one pipe until it ends or is to end.
    async fn serve(&mut self, open: OpenPipe) -> Closed {
        let elsewhere = self.pipe.is_started_elsewhere();
        let patience = if elsewhere { PATIENCE_ELSEWHERE } else { PATIENCE };
        let rest = elsewhere.then(|| patience.saturating_sub(self.silent));
        let (asked, first_asked) = oneshot::channel();
        let OpenPipe { read, write, mut end } = open;
        let mut asked_at = None;
        let mut reader = JoinSet::new();
        let mux = Arc::clone(&self.mux);
        reader.spawn(async move {
            let mut lines = Lines::new(read, MAX_LINE);
            while let Some(line) = lines.next().await {
                dispatch::line(&mux, line).await;
            }
        });
        let why = tokio::select! {
            () = self.cancel.cancelled() => "it was asked to",
            () = end.ended() => "of itself",
            _ = reader.join_next() => "after it closed its output",
            () = talk(write, &self.mux, &mut self.lines, Talk { state: &self.state, patience, elsewhere, asked }) => "after it took no more input",
            () = silence(first_asked, &mut asked_at, &self.mux, &self.state, rest) => "as it answers nothing",
        };
        self.silent += asked_at.map(|at: Instant| at.elapsed()).unwrap_or_default();
        self.state.send_replace(State::Restarting);
        // `talk` is gone and with it the input of the server, which asks it to end.
        let closed = end.close(why).await;
        // What it said last may still be in the pipe; somebody else may hold it open.
        let _ = timeout(Duration::from_millis(200), reader.join_next()).await;
        closed
    }
}

/// Tells when the server has answered nothing for some time after it was asked for the first time, and returns when that has gone on for as
/// long as `patience`, if there is an end to it. Notes when it was asked.
async fn silence(
    asked: oneshot::Receiver<()>,
    asked_at: &mut Option<Instant>,
    mux: &Mux,
    state: &watch::Sender<State>,
    patience: Option<Duration>,
) {
    if asked.await.is_ok() {
        *asked_at = Some(Instant::now());
        let notice = mux.notice;
        sleep(notice.min(patience.unwrap_or(notice))).await;
        if !mux.has_answered() {
            tracing::warn!("the MCP server has answered nothing for {notice:?}; /health reports degraded");
            state.send_if_modified(|state| {
                let ran = *state == State::Running;
                *state = if ran { State::Silent } else { *state };
                ran
            });
        }
        if let Some(patience) = patience {
            sleep(patience.saturating_sub(notice)).await;
            if !mux.has_answered() {
                tracing::warn!("the MCP server answers nothing: it does not start, or its input was closed");
                return;
            }
        }
    }
    std::future::pending::<()>().await;
}

/// How to talk to a server.
struct Talk<'a> {
    state: &'a watch::Sender<State>,
    /// How long it may take to answer the handshake.
    patience: Duration,
    /// Whether the pipe is closed by others when it is idle.
    elsewhere: bool,
    /// Told when it is asked for the first time.
    asked: oneshot::Sender<()>,
}

/// Greets a server that takes the place of another, then writes to it what is asked. Returns when it takes no more.
async fn talk(mut input: Input, mux: &Mux, lines: &mut Outlet, how: Talk<'_>) {
    let mut asked = Some(how.asked);
    if mux.handshake.version().is_some() {
        tell(&mut asked);
    }
    match timeout(how.patience, greet(&mut input, mux)).await {
        Ok(Ok(())) => how.state.send_replace(State::Running),
        Ok(Err(problem)) => return tracing::warn!(problem, "the handshake with the MCP server failed"),
        Err(_) => return tracing::warn!("the MCP server does not answer the handshake"),
    };
    loop {
        tokio::select! {
            more = lines.wait() => if !more {
                return;
            },
            // Of a server that was greeted: others may not know the method, or end at it.
            () = sleep(KEEP_ALIVE), if how.elsewhere && mux.handshake.version().is_some() => {
                tell(&mut asked);
                if input.write_all(&mux.ping_line()).await.is_err() || input.flush().await.is_err() {
                    return;
                }
            }
        }
        loop {
            let (mut text, asks) = lines.next(&mux.calls);
            if text.is_empty() {
                break;
            }
            // To a notification there is no answer.
            if asks {
                tell(&mut asked);
            }
            while text.has_remaining() {
                match input.write_buf(&mut text).await {
                    Ok(0) | Err(_) => return,
                    Ok(bytes) => lines.took(bytes),
                }
            }
        }
        if input.flush().await.is_err() {
            return;
        }
    }
}

/// Tells, the first time, that the server is asked.
fn tell(asked: &mut Option<oneshot::Sender<()>>) {
    if let Some(asked) = asked.take() {
        let _ = asked.send(());
    }
}

/// Repeats the handshake and the subscriptions, when there were any.
async fn greet(input: &mut Input, mux: &Mux) -> Result<(), &'static str> {
    const CLOSED: &str = "its input is closed";
    let Some(version) = mux.handshake.version() else { return Ok(()) };
    let request = handshake::request(version).map_err(|_| "the handshake is broken")?;
    let number = mux.calls.fresh();
    let (reply, answer) = oneshot::channel();
    let kept = request.id().map(|id| id.raw()).unwrap_or_default();
    let call = Call { id: kept.into(), token: None, origin: None, reply: Reply::Once(reply), written: true };
    mux.calls.open(number, call);
    let line = request_line(&request, &number.to_string());
    input.write_all(&line).await.map_err(|_| CLOSED)?;
    input.flush().await.map_err(|_| CLOSED)?;
    let answer = answer.await.map_err(|_| "it ended during the handshake")?;
    let answer = mcp_wire::Message::parse(&answer.bytes).map_err(|_| "it refuses the handshake")?;
    if !mux.handshake.keep(version, &answer) {
        // That it answers this is no reason to start it again at once.
        mux.take_answered();
        return Err("it refuses the handshake");
    }
    input.write_all(INITIALIZED).await.map_err(|_| CLOSED)?;
    mux.handshake.end();
    if mux.handshake.serves_modern() == Some(true) {
        input.write_all(&mux.discover_line()).await.map_err(|_| CLOSED)?;
    }
    for uri in mux.subscriptions.uris() {
        let line = mux.subscription_line("resources/subscribe", &uri);
        input.write_all(&line).await.map_err(|_| CLOSED)?;
    }
    input.flush().await.map_err(|_| CLOSED)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::task::{Context, Poll};

    use mcp_wire::OwnedMessage;
    use tokio::io::sink;

    use super::*;
    use crate::mux::{MuxConfig, Request, Running, Sent};
    use crate::pipe::{BoxFuture, End, OpenError};

    /// A server that reads all and never says a word, in a container.
    #[derive(Debug)]
    struct Mute;

    impl Pipe for Mute {
        fn open(&self) -> BoxFuture<'_, Result<OpenPipe, OpenError>> {
            let (read, held) = tokio::io::duplex(1);
            let end = Box::new(Held(held));
            Box::pin(async { Ok(OpenPipe { read: Box::new(read), write: Box::new(sink()), end }) })
        }

        fn is_started_elsewhere(&self) -> bool {
            true
        }
    }

    /// Keeps the other end of its output open.
    struct Held(#[expect(dead_code)] tokio::io::DuplexStream);

    impl End for Held {
        fn ended(&mut self) -> BoxFuture<'_, ()> {
            Box::pin(std::future::pending())
        }

        fn close(self: Box<Self>, _why: &'static str) -> BoxFuture<'static, Closed> {
            Box::pin(async { Closed::Stays })
        }
    }

    #[tokio::test]
    async fn a_handshake_is_kept_before_the_one_who_asked_hears_of_it() {
        let running = Running::start(Arc::new(Mute), MuxConfig::default()).await.unwrap();
        let (mux, (reply, _waiting)) = (&running.mux, oneshot::channel());
        let number = mux.calls.fresh();
        let reply = Reply::Handshake("2025-11-25", reply);
        mux.calls.open(number, Call { id: "0".into(), token: None, origin: None, reply, written: true });
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#);
        dispatch::line(mux, answer.into()).await;
        assert_eq!(mux.handshake.version(), Some("2025-11-25"), "a process that follows is greeted");
    }

    /// A process that ends when it is written to, having taken so many bytes, and one in its place that answers.
    #[derive(Debug)]
    struct Replaced(Mutex<Option<usize>>);

    impl Pipe for Replaced {
        fn open(&self) -> BoxFuture<'_, Result<OpenPipe, OpenError>> {
            let (near, far) = tokio::io::duplex(1 << 10);
            let (read, write) = tokio::io::split(near);
            if let Some(takes) = self.0.lock().unwrap().take() {
                let (write, end) = (Box::new(Ending(takes)), Box::new(Gone(Some(far))));
                return Box::pin(async { Ok(OpenPipe { read: Box::new(read), write, end }) });
            }
            tokio::spawn(async move {
                let (read, mut write) = tokio::io::split(far);
                let mut lines = Lines::new(read, MAX_LINE);
                while let Some(line) = lines.next().await {
                    let request: serde_json::Value = serde_json::from_slice(&line).unwrap();
                    let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}\n", request["id"]);
                    write.write_all(answer.as_bytes()).await.unwrap();
                }
            });
            let end = Box::new(Gone(None));
            Box::pin(async { Ok(OpenPipe { read: Box::new(read), write: Box::new(write), end }) })
        }
    }

    /// Takes so many bytes, and breaks.
    struct Ending(usize);

    impl AsyncWrite for Ending {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            Poll::Ready(if taken == 0 { Err(std::io::ErrorKind::BrokenPipe.into()) } else { Ok(taken) })
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Keeps the other end of its output open, where it has one.
    struct Gone(#[expect(dead_code)] Option<tokio::io::DuplexStream>);

    impl End for Gone {
        fn ended(&mut self) -> BoxFuture<'_, ()> {
            Box::pin(std::future::pending())
        }

        fn close(self: Box<Self>, _why: &'static str) -> BoxFuture<'static, Closed> {
            Box::pin(async { Closed::Gone })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_of_which_the_ended_process_took_nothing_waits_for_the_next() {
        let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        for (takes, answered) in [(0, [true, true]), (1, [false, true]), (90, [false, false])] {
            let pipe = Arc::new(Replaced(Mutex::new(Some(takes))));
            let running = Running::start(pipe, MuxConfig::default()).await.unwrap();
            let message = OwnedMessage::read(ping.as_slice().into()).unwrap();
            let call = || running.mux.call(Request { message: &message, origin: None }, false);
            let ((_one, first, _), (_other, second, _)) = tokio::join!(call(), call());
            assert_eq!([first.await.is_ok(), second.await.is_ok()], answered, "{takes} bytes were taken");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_given_up_for_calls_that_it_does_not_answer_and_never_for_notifications() {
        let running = Running::start(Arc::new(Mute), MuxConfig::default()).await.unwrap();
        let notification = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}\n";
        assert_eq!(running.mux.notify(notification.as_slice().into(), None).await, Sent::Queued);
        assert!(timeout(3 * PATIENCE_ELSEWHERE, running.failed()).await.is_err(), "nothing was asked of it");
        assert!(running.is_running());

        let message = OwnedMessage::read(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.as_slice().into()).unwrap();
        let request = Request { message: &message, origin: None };
        let (_waiting, answer, _) = running.mux.call(request, false).await;
        assert!(timeout(running.mux.notice + Duration::from_secs(1), running.failed()).await.is_err());
        assert!(!running.is_running());
        assert_eq!(timeout(PATIENCE_ELSEWHERE, running.failed()).await, Ok(Closed::Stays));
        assert!(answer.await.is_err(), "the call fails with it");
    }
}
