//! A bound port.

use std::net::SocketAddr;
use std::time::Duration;
use std::{io, iter};

use tokio::net::{TcpListener, TcpSocket, TcpStream, ToSocketAddrs, lookup_host};
use tokio::time::sleep;
use tracing::warn;

/// Connections that the kernel holds until they are accepted. Where that queue is full, a client's kernel tries again
/// after a second: the API server must not wait that long behind a crowd that is gone at once. (The kernel's own limit,
/// `somaxconn`, is 4096 unless set.)
const QUEUE: u32 = 4096;

/// A bound port, for an accept loop.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Binds the first of the addresses that can be bound; port 0 chooses a free one.
    ///
    /// # Errors
    /// When none can be bound.
    pub async fn bind(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name resolves to no address");
        for address in lookup_host(addresses).await? {
            match listen(address) {
                Ok(listener) => return Ok(Self(listener)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// When the socket is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Returns the next connection. An error of the kernel (no file left, a client that has gone) is logged and tried
    /// again after a pause, since it may repeat at once and is no reason to stop listening.
    pub async fn accept(&self) -> (TcpStream, SocketAddr) {
        let mut pause = Duration::from_millis(5);
        loop {
            match self.0.accept().await {
                Ok(accepted) => return accepted,
                Err(error) => {
                    warn!(%error, "cannot accept a connection; trying again");
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
            }
        }
    }

    /// Closes the port, and returns the connections that were not accepted yet. They may have sent a request, and would be
    /// reset with the port.
    pub fn close(self) -> Vec<(TcpStream, SocketAddr)> {
        // It stays one that does not block.
        let Ok(listener) = self.0.into_std() else { return Vec::new() };
        let accepted = iter::from_fn(|| listener.accept().ok());
        let ready = accepted.filter_map(|(stream, peer)| {
            stream.set_nonblocking(true).ok()?;
            Some((TcpStream::from_std(stream).ok()?, peer))
        });
        ready.collect()
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As `TcpListener::bind` does: the port of a process that has just ended is free.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}
