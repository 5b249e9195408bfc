//! A client's socket: marks the first byte of a head, and gives up a client that reads nothing or has gone.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tracing::debug;

use crate::connection::Connection;

/// When the operating system asks a silent client whether it is still there, and how often: an event stream may be
/// silent for hours.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_mins(1)).with_interval(Duration::from_secs(15)).with_retries(4);

/// The socket of a [`Connection`]. It fails when the client takes no byte of an answer for too long.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    connection: Connection,
    /// Time in which a client has to take some bytes of what is ready for it.
    stall: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    /// Prepares an accepted socket. `stall` is the time for the client to read some bytes of an answer
    /// ([`Limits::write`](crate::Limits::write)).
    ///
    /// # Errors
    /// When the client has gone already.
    pub(crate) fn new(stream: TcpStream, connection: Connection, stall: Duration) -> io::Result<Self> {
        // Answers are small writes: waiting to fill a segment would add the client's delayed ACK to every one.
        stream.set_nodelay(true)?;
        if let Err(error) = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE) {
            debug!(%error, "cannot set SO_KEEPALIVE");
        }
        Ok(Self { stream, connection, stall, stalled: None })
    }

    /// Passes on what a write said, and counts the time while it says "later".
    fn poll_stall<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client stopped reading its answer")))
    }

    fn has_left(&self, cx: &mut Context<'_>) -> bool {
        let ready = pin!(self.stream.ready(Interest::READABLE));
        matches!(ready.poll(cx), Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.connection.first_byte();
        Poll::Ready(read)
    }
}

impl AsyncWrite for Socket {
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

    /// hyper flushes each time that the connection is worked on, also while it has nothing to write, and so this is where
    /// the client is looked for. hyper notices by itself that it has gone as long as it has nothing left to read; a client
    /// that sends the beginning of a second request and goes would hold its connection, and its event stream at the server,
    /// for ever.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.connection.takes_look() && self.has_left(cx) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the client has gone")));
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
