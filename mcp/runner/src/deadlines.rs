//! What a client on a socket may not do: keep a connection open for nothing, send a head or a body drop by drop, never read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use mcp_http::BoxError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// To send the next request on an open connection.
    idle: Duration,
    /// To send the head of a request, from its first byte.
    head: Duration,
    /// To take none of the bytes that are ready for it.
    stall: Duration,
}

pub(crate) const LIMITS: Limits =
    Limits { idle: Duration::from_mins(2), head: Duration::from_secs(10), stall: Duration::from_mins(1) };
/// How long a request may take to arrive when the document says nothing.
pub(crate) const READ: Duration = Duration::from_secs(30);

impl Limits {
    /// These limits, where a whole request has `read` to arrive.
    pub(crate) fn reading_within(self, read: Duration) -> Self {
        Self { head: self.head.min(read), ..self }
    }
}

/// What a connection is doing: set by its socket and its service.
#[derive(Debug, Default)]
pub(crate) struct Phase {
    doing: AtomicU8,
    served: AtomicU32,
}

const WAITS: u8 = 0;
const READS_HEAD: u8 = 1;
const SERVES: u8 = 2;

impl Phase {
    /// A request was read and is served: no deadline of the connection applies.
    pub(crate) fn serving(&self) {
        self.doing.store(SERVES, Relaxed);
    }

    /// Its answer is complete.
    pub(crate) fn waiting(&self) {
        self.served.fetch_add(1, Relaxed);
        self.doing.store(WAITS, Relaxed);
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.doing.load(Relaxed) == SERVES
    }

    fn first_byte(&self) {
        let _ = self.doing.compare_exchange(WAITS, READS_HEAD, Relaxed, Relaxed);
    }

    /// What is being done and for the how manieth request: a deadline belongs to one of these.
    fn now(&self) -> (u8, u32) {
        (self.doing.load(Relaxed), self.served.load(Relaxed))
    }
}

/// A socket that gives up on a client that is too slow.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    limits: Limits,
    phase: Arc<Phase>,
    /// What `deadline` belongs to.
    timed: Option<(u8, u32)>,
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, phase: Arc<Phase>, limits: Limits) -> Self {
        let timer = Box::pin(tokio::time::sleep(limits.idle));
        Self { stream, limits, phase, timed: None, deadline: timer.deadline(), timer, stalled: None }
    }

    /// Called when the socket has nothing: whether it was silent for too long.
    ///
    /// The timer is moved only when it is due or too late, not for each request.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.phase.now();
        let limit = match now.0 {
            WAITS => self.limits.idle,
            READS_HEAD => self.limits.head,
            _ => return Poll::Pending,
        };
        if self.timed != Some(now) {
            self.timed = Some(now);
            self.deadline = Instant::now() + limit;
        }
        if self.timer.deadline() > self.deadline {
            self.timer.as_mut().reset(self.deadline);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= self.deadline {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(self.deadline);
        }
        Poll::Pending
    }

    fn poll_stall<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.limits.stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Ready(result) => {
                this.phase.first_byte();
                Poll::Ready(result)
            }
            Poll::Pending => {
                ready!(this.poll_silence(cx));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client is silent")))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buffer);
        self.poll_stall(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.poll_stall(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A request body that must be complete within its deadline. The timer starts when the first byte is waited for.
#[derive(Debug)]
pub(crate) struct TimedBody {
    body: Incoming,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    pub(crate) fn new(body: Incoming, limit: Duration) -> Self {
        Self { body, limit, timer: None }
    }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        let limit = this.limit;
        let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Some(Err("the request's body takes too long".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SHORT: Limits =
        Limits { idle: MS.saturating_mul(200), head: MS.saturating_mul(50), stall: MS.saturating_mul(100) };

    fn watched(capacity: usize) -> (Watched<DuplexStream>, Arc<Phase>, DuplexStream) {
        let (ours, client) = duplex(capacity);
        let phase = Arc::new(Phase::default());
        (Watched::new(ours, Arc::clone(&phase), SHORT), phase, client)
    }

    async fn cut_off_after(mut socket: Watched<DuplexStream>) -> Duration {
        let start = Instant::now();
        let error = socket.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_renews_the_time_to_the_next_also_when_it_is_answered_at_once() {
        let (mut socket, phase, mut client) = watched(64);
        for _ in 0..5 {
            let (read, ()) = tokio::join!(socket.read_u8(), async {
                tokio::time::sleep(SHORT.idle * 9 / 10).await;
                client.write_u8(1).await.unwrap();
            });
            read.unwrap();
            // Answered before the socket is asked for more.
            phase.serving();
            phase.waiting();
        }
        assert_eq!(cut_off_after(socket).await, SHORT.idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_from_its_first_byte_however_many_follow() {
        let (mut socket, _phase, mut client) = watched(64);
        client.write_u8(1).await.unwrap();
        socket.read_u8().await.unwrap();
        let start = Instant::now();
        let drops = async {
            loop {
                tokio::time::sleep(10 * MS).await;
                client.write_u8(1).await.unwrap();
            }
        };
        let reads = async { while socket.read_u8().await.is_ok() {} };
        tokio::select! {
            () = reads => {}
            () = drops => {}
        }
        assert_eq!(start.elapsed(), SHORT.head);
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_request_is_served_silence_has_no_limit() {
        let (mut socket, phase, _client) = watched(64);
        phase.serving();
        assert!(tokio::time::timeout(100 * SHORT.idle, socket.read_u8()).await.is_err());
        phase.waiting();
        assert_eq!(cut_off_after(socket).await, SHORT.idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_given_up_and_one_that_reads_slowly_is_not() {
        let (mut socket, _phase, mut client) = watched(1);
        let (written, ()) = tokio::join!(socket.write_all(&[1; 20]), async {
            for _ in 0..19 {
                tokio::time::sleep(SHORT.stall * 9 / 10).await;
                client.read_u8().await.unwrap();
            }
        });
        written.unwrap();
        let start = Instant::now();
        assert_eq!(socket.write_all(&[1; 2]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), SHORT.stall);
    }
}
