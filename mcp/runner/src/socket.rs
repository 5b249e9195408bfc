//! A client's socket that can be looked at while somebody else reads and writes it.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;

/// How often is asked whether a client is still there.
const LOOK: Duration = Duration::from_secs(5);

/// The socket. Clones are the same socket; one of them reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct Socket(Arc<TcpStream>);

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    /// Returns some seconds after the client has gone while `serving` says that it is being served.
    ///
    /// hyper notices it by itself as long as it has nothing left to read. A client that sends the beginning of a second request
    /// and goes would hold its place, and its event stream at the server, for ever.
    pub(crate) async fn left(&self, serving: impl Fn() -> bool) {
        loop {
            tokio::time::sleep(LOOK).await;
            if serving() && self.is_closed().await {
                return;
            }
        }
    }

    async fn is_closed(&self) -> bool {
        tokio::select! {
            biased;
            ready = self.0.ready(Interest::READABLE) => ready.is_ok_and(Ready::is_read_closed),
            () = std::future::ready(()) => false,
        }
    }

    fn poll_try<T>(&self, cx: &mut Context<'_>, attempt: impl Fn(&TcpStream) -> io::Result<T>) -> Poll<io::Result<T>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match attempt(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |stream| stream.try_write(buffer))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |stream| stream.try_write_vectored(buffers))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}
