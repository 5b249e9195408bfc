//! A bound port.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{io, iter};

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream, ToSocketAddrs, lookup_host};
use tokio::time::{Instant, sleep};
use tracing::warn;

/// Connections that the kernel holds until they are accepted. Where that queue is full, a client's kernel tries again
/// after a second: the API server must not wait that long because of a short burst. (The kernel's own limit,
/// `somaxconn`, is 4096 unless set.)
const QUEUE: u32 = 4096;

/// The shortest time between two log lines about connections that cannot be accepted.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// A bound port, for an accept loop.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    errors: Mutex<ErrorLog>,
}

/// Limits the log lines about connections that cannot be accepted: without a free file descriptor, every try fails.
#[derive(Debug, Default)]
struct ErrorLog {
    logged: Option<Instant>,
    /// The errors since that line.
    count: u64,
}

impl Listener {
    /// Binds the first of the addresses that can be bound; port 0 chooses a free one. `0.0.0.0` and `::` are all
    /// addresses of the host, of IPv4 and of IPv6 where it has both.
    ///
    /// # Errors
    /// When none can be bound.
    pub async fn bind(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name resolves to no address");
        for address in lookup_host(addresses).await? {
            match listen_on_all(address) {
                Ok(socket) => return Ok(Self { socket, errors: Mutex::default() }),
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
        self.socket.local_addr()
    }

    /// Returns the next connection, with the client's address: an IPv4 address as such, whatever family the socket is
    /// of.
    ///
    /// After an error of the kernel, such as no free file descriptor, it tries again after a pause of at most a second.
    /// Errors are logged once a second, with their number.
    pub async fn accept(&self) -> (TcpStream, SocketAddr) {
        let mut pause = Duration::from_millis(5);
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => return (stream, canonical(peer)),
                Err(error) => {
                    if let Some(errors) = self.count_error() {
                        warn!(%error, errors, "cannot accept connections; trying again");
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
            }
        }
    }

    /// Counts an error. Returns the number of errors since the last log line when the next one is due.
    fn count_error(&self) -> Option<u64> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).count(Instant::now())
    }

    /// Closes the port, and returns the connections that were not accepted yet. They may have sent a request, and would
    /// be reset with the port.
    pub fn close(self) -> Vec<(TcpStream, SocketAddr)> {
        // The listener stays non-blocking, so `accept` returns when no connection is left.
        let Ok(listener) = self.socket.into_std() else { return Vec::new() };
        let accepted = iter::from_fn(|| listener.accept().ok());
        let ready = accepted.filter_map(|(stream, peer)| {
            stream.set_nonblocking(true).ok()?;
            Some((TcpStream::from_std(stream).ok()?, canonical(peer)))
        });
        ready.collect()
    }
}

// === impl ErrorLog ===

impl ErrorLog {
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|logged| now < logged + LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

/// A host may be without IPv6.
fn listen_on_all(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_unspecified() {
        return listen(address);
    }
    let port = address.port();
    listen((Ipv6Addr::UNSPECIFIED, port).into()).or_else(|_| listen((Ipv4Addr::UNSPECIFIED, port).into()))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // `TcpListener::bind` does so, too: the port of a process that has just ended is free.
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        SockRef::from(&socket).set_only_v6(false)?;
    }
    socket.bind(address)?;
    socket.listen(QUEUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_errors_are_logged_once_a_second_with_their_number() {
        let (mut log, start) = (ErrorLog::default(), Instant::now());
        let after = |millis| start + Duration::from_millis(millis);
        let logged: Vec<_> = [0, 5, 999, 1000, 1001, 2500].map(|millis| log.count(after(millis))).into();
        assert_eq!(logged, [Some(1), None, None, Some(3), None, Some(2)]);
    }

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        let has_v6 = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        for all in ["0.0.0.0:0", "[::]:0"] {
            let listener = Listener::bind(all).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let v4 = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            assert_eq!(listener.accept().await.1, v4.local_addr().unwrap(), "{all}");
            let v6 = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await;
            assert_eq!(v6.is_ok(), has_v6, "{all}");
        }
        let one = Listener::bind("127.0.0.1:0").await.unwrap();
        assert!(one.local_addr().unwrap().is_ipv4());
    }
}
