//! What a client on a socket may not do: keep a connection open for nothing, send a head or a body drop by drop, never read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use mcp_transport::BoxError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// How long a connection may wait for its next request.
const IDLE: Duration = Duration::from_mins(2);
/// How long the head of a request may take from its first byte.
const HEAD: Duration = Duration::from_secs(10);
/// How long the body of a request may take.
const BODY: Duration = Duration::from_secs(30);
/// How long a client may take none of the bytes that are ready for it.
const STALL: Duration = Duration::from_mins(1);

/// What a connection is doing: set by its socket and its service.
#[derive(Debug, Default)]
pub(crate) struct Phase(AtomicU8);

const WAITS: u8 = 0;
const READS_HEAD: u8 = 1;
const SERVES: u8 = 2;

impl Phase {
    /// A request was read and is served: no deadline of the connection applies.
    pub(crate) fn serving(&self) {
        self.0.store(SERVES, Relaxed);
    }

    /// Its answer is complete.
    pub(crate) fn waiting(&self) {
        self.0.store(WAITS, Relaxed);
    }
}

/// A socket that gives up on a client that is too slow.
#[derive(Debug)]
pub(crate) struct Watched {
    stream: TcpStream,
    phase: Arc<Phase>,
    /// The phase that `deadline` belongs to.
    timed: u8,
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub(crate) fn new(stream: TcpStream, phase: Arc<Phase>) -> Self {
        let timer = Box::pin(tokio::time::sleep(IDLE));
        Self { stream, phase, timed: SERVES, deadline: timer.deadline(), timer, stalled: None }
    }

    /// Called when the socket has nothing: whether it was silent for too long.
    ///
    /// The timer is moved only when it is due or too late, not for each request.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let phase = self.phase.0.load(Relaxed);
        let limit = match phase {
            WAITS => IDLE,
            READS_HEAD => HEAD,
            _ => {
                self.timed = SERVES;
                return Poll::Pending;
            }
        };
        if self.timed != phase {
            self.timed = phase;
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
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Ready(result) => {
                // A request begins with its first byte.
                let _ = this.phase.0.compare_exchange(WAITS, READS_HEAD, Relaxed, Relaxed);
                Poll::Ready(result)
            }
            Poll::Pending => {
                ready!(this.poll_silence(cx));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client is silent")))
            }
        }
    }
}

impl AsyncWrite for Watched {
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
    timer: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, timer: None }
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
        let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(BODY)));
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
