//! The accept loop, from binding the port to the last answer.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{io, iter};

use arc_swap::ArcSwap;
use futures::FutureExt as _;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream, ToSocketAddrs, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::connection::{self, Distrust};
use crate::handler::Handler;
use crate::limits::Limits;
use crate::places::{Places, Told};
use crate::workers::Workers;

/// Log message when a client aborts the TLS handshake because of the served certificate.
pub const UNTRUSTED_CERTIFICATE: &str = "a caller does not trust the certificate that is served";

/// Connections that the kernel holds until they are accepted. Where that queue is full, a client's kernel tries again
/// after a second: the API server must not wait that long behind a crowd that is turned away at once. (The kernel's own
/// limit, `somaxconn`, is 4096 unless set.)
const QUEUE: u32 = 4096;
/// Time for those whose answers are cut off to be told so.
const CUT: Duration = Duration::from_secs(1);
/// Interval between log lines about a certificate that is not trusted: clients can call often.
const SAID: Duration = Duration::from_mins(1);

/// A bound listener that does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    limits: Limits,
    open: Connections,
    workers: Option<Workers>,
    ending: CancellationToken,
}

/// The number of connections that a server has open.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<AtomicUsize>);

impl Connections {
    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Server {
    /// Binds the first of the addresses that can be bound; port 0 chooses a free one.
    ///
    /// # Errors
    /// When none can be bound.
    pub async fn bind(addresses: impl ToSocketAddrs, limits: Limits) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name resolves to no address");
        for address in lookup_host(addresses).await? {
            match listen(address) {
                Ok(listener) => {
                    return Ok(Self {
                        listener,
                        limits,
                        open: Connections::default(),
                        workers: None,
                        ending: CancellationToken::new(),
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Serves connections on these threads instead of the runtime that calls `serve_…`.
    #[must_use]
    pub fn on(self, workers: Workers) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Closes each connection with its next response (`connection: close`) once `ending` is cancelled, and still accepts
    /// new ones. Cancel it some time before `stop`: a client that keeps connections in a pool then has none left on which
    /// its next request would meet the end of the server.
    #[must_use]
    pub fn ending(self, ending: CancellationToken) -> Self {
        Self { ending, ..self }
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// When the socket is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns a counter of open connections, for use while the server runs.
    pub fn connections(&self) -> Connections {
        self.open.clone()
    }

    /// Serves HTTPS until `stop` is cancelled, then finishes the responses in flight. Each new connection uses the
    /// current configuration in `tls`: store another one to change certificates.
    pub async fn serve_tls<H: Handler>(
        self,
        tls: Arc<ArcSwap<ServerConfig>>,
        handler: Arc<H>,
        stop: CancellationToken,
    ) {
        self.serve(Some(tls), handler, stop).await;
    }

    /// Serves plain HTTP until `stop` is cancelled, then finishes the responses in flight.
    pub async fn serve_plain<H: Handler>(self, handler: Arc<H>, stop: CancellationToken) {
        self.serve(None, handler, stop).await;
    }

    async fn serve<H: Handler>(
        self,
        tls: Option<Arc<ArcSwap<ServerConfig>>>,
        handler: Arc<H>,
        stop: CancellationToken,
    ) {
        let Self { listener, limits, open, workers, ending } = self;
        // A process has several: for webhooks, probes and metrics.
        let address = listener.local_addr().ok().map(|address| address.to_string());
        let (mut connections, mut reserved, mut places) = (JoinSet::new(), JoinSet::new(), Places::default());
        let mut next: Option<(TcpStream, SocketAddr)> = None;
        let mut ends = pin!(ending.cancelled().fuse());
        let (mut said_of_ours, mut said_of_theirs) = (None::<Instant>, None::<Instant>);
        let spawn = |tasks: &mut JoinSet<_>, stream, place| {
            let config = tls.as_ref().map(|tls| tls.load_full());
            let handler = Arc::clone(&handler);
            let serve = move |stream| connection::serve(stream, config, handler, limits, place);
            match &workers {
                Some(workers) => workers.spawn(tasks, stream, serve),
                None => drop(tasks.spawn(serve(stream))),
            }
        };
        loop {
            let full = connections.len() >= limits.connections;
            if next.is_some() || !full {
                // And it stays so until there is room, though those beyond the limit come and go.
                places.crowded(full);
            }
            // Those that are asked to leave make room soon. Where all are at work, a few more are let in to be told so,
            // and the rest waits in the kernel's queue.
            let room = |places: &mut Places| {
                if !full {
                    return true;
                }
                if places.free_some() {
                    return false;
                }
                let reserved_is_free = reserved.len() < limits.reserved;
                if !reserved_is_free {
                    places.free_reserved();
                }
                reserved_is_free
            };
            if let Some((stream, peer)) = next.take_if(|_| room(&mut places)) {
                let tasks = if full { &mut reserved } else { &mut connections };
                spawn(tasks, stream, places.take(peer, full));
            }
            open.0.store(connections.len() + reserved.len(), Ordering::Relaxed);
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = &mut ends => {
                    places.close_after_answers();
                    continue;
                }
                Some(ended) = connections.join_next() => ended,
                Some(ended) = reserved.join_next() => ended,
                () = places.changed(), if next.is_some() => continue,
                accepted = accept(&listener), if next.is_none() => {
                    next = Some(accepted);
                    continue;
                }
            };
            let Ok(Some(distrust)) = ended else { continue };
            let said = match distrust {
                Distrust::OfOurs(_) => &mut said_of_ours,
                Distrust::OfTheirs(_) => &mut said_of_theirs,
            };
            if said.is_none_or(|said| said.elapsed() >= SAID) {
                *said = Some(Instant::now());
                match distrust {
                    Distrust::OfOurs(alert) => warn!(?alert, "{UNTRUSTED_CERTIFICATE}"),
                    Distrust::OfTheirs(problem) => {
                        warn!(%problem, "refused a client: its certificate is not trusted");
                    }
                }
            }
        }
        // Who waits in the kernel's queue may have sent a request, and would be reset with the listener.
        let room = limits.connections.saturating_sub(connections.len());
        for (stream, peer) in next.into_iter().chain(queued(listener)).take(room) {
            spawn(&mut connections, stream, places.take(peer, false));
        }
        open.0.store(connections.len() + reserved.len(), Ordering::Relaxed);
        info!(address, connections = connections.len() + reserved.len(), "draining");
        places.tell_all(Told::End);
        if timeout(limits.drain, all([&mut connections, &mut reserved], &open)).await.is_err() {
            let connections_left = connections.len() + reserved.len();
            warn!(connections = connections_left, "responses did not finish in time and are aborted");
            places.tell_all(Told::Cut);
            if timeout(CUT, all([&mut connections, &mut reserved], &open)).await.is_err() {
                connections.shutdown().await;
                reserved.shutdown().await;
            }
        }
        open.0.store(0, Ordering::Relaxed);
        info!(address, "listener is drained");
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As `TcpListener::bind` does: the port of a process that has just ended is free.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}

async fn all<T: 'static>(tasks: [&mut JoinSet<T>; 2], open: &Connections) {
    for tasks in tasks {
        while tasks.join_next().await.is_some() {
            open.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Closes the listener, and returns the connections that it had not yet accepted.
fn queued(listener: TcpListener) -> Vec<(TcpStream, SocketAddr)> {
    // It stays one that does not block.
    let Ok(listener) = listener.into_std() else { return Vec::new() };
    let accepted = iter::from_fn(|| listener.accept().ok());
    let ready = accepted.filter_map(|(stream, peer)| {
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, peer))
    });
    ready.collect()
}

/// The next connection. An error here is the process running out of files or a client gone already; neither is a reason
/// to stop listening, both may repeat at once.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut pause = Duration::from_millis(5);
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                warn!(%error, "cannot accept a connection; trying again");
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        }
    }
}
