//! The heads of requests while they arrive: a limit on each, and a budget for all.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::places::{Place, Room};
use crate::socket::Socket;

/// The longest head of the first request on a connection, in bytes. [`Limits::head_bytes`](crate::Limits::head_bytes) holds for
/// the rest.
const FIRST: usize = 16 << 10;
/// The bytes of each head that do not count: the first buffer of a connection.
const FREE: usize = 8 << 10;
/// When to look again whether other heads have gone.
const LATER: Duration = Duration::from_millis(10);
const TOO_LONG: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// A socket that counts the bytes of heads.
#[derive(Debug)]
pub(crate) struct Heads {
    socket: Socket,
    place: Place,
    /// The number of requests before the head that arrives.
    requests: usize,
    /// The bytes of it that have arrived.
    read: usize,
    /// Ends when it is time to see whether there is room for more of it.
    later: Option<Pin<Box<Sleep>>>,
}

impl Heads {
    pub(crate) fn new(socket: Socket, place: Place) -> Self {
        Self { socket, place, requests: 0, read: 0, later: None }
    }
}

impl AsyncRead for Heads {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { socket, place, requests, read, later } = &mut *self;
        let socket = Pin::new(socket);
        if place.connection().idle_since().is_none() {
            // The body of a request, or nothing.
            return socket.poll_read(cx, buffer);
        }
        let begun = place.connection().requests();
        if *requests != begun {
            (*requests, *read) = (begun, 0);
        }
        // Most heads come in one piece, and are not counted: this is the next read.
        loop {
            let room = if *read > FREE { place.holds_head(*read - FREE) } else { Room::Now };
            match room {
                Room::Now => break,
                Room::Later => {
                    ready!(later.get_or_insert_with(|| Box::pin(sleep(LATER))).as_mut().poll(cx));
                    *later = None;
                }
                Room::Never => return Poll::Ready(Err(io::Error::other("heads hold too much memory"))),
            }
        }
        let before = buffer.filled().len();
        if begun > 0 {
            ready!(socket.poll_read(cx, buffer))?;
        } else if *read >= FIRST {
            // Nothing was written on this connection, so that there is room in the socket's buffer.
            let _ = socket.poll_write(cx, TOO_LONG);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the first head is too long")));
        } else {
            let piece = buffer.initialize_unfilled_to(buffer.remaining().min(FIRST - *read));
            let mut piece = ReadBuf::new(piece);
            ready!(socket.poll_read(cx, &mut piece))?;
            let came = piece.filled().len();
            buffer.advance(came);
        }
        *read += buffer.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Heads {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
