//! The server: from the first connection to the last answer.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt as _;
use rustls::ServerConfig;
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::connection::{Connection, Crowded, Told};
use crate::handler::Handler;
use crate::limits::Limits;
use crate::listener::Listener;
use crate::serve;

/// Time for a new connection to send its first request before it may be closed for another one.
const MOMENT: Duration = Duration::from_millis(100);
/// Interval at which a full server looks for an idle connection while a new one waits.
const LOOK: Duration = Duration::from_millis(25);
/// Time for clients whose answers are cut off to be told so.
const CUT: Duration = Duration::from_secs(1);
/// Interval between log lines about a certificate that is not trusted: clients can call often.
const SAID: Duration = Duration::from_mins(1);

/// A bound listener that does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    limits: Limits,
    count: Connections,
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
        let listener = Listener::bind(addresses).await?;
        Ok(Self { listener, limits, count: Connections::default(), ending: CancellationToken::new() })
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
        self.count.clone()
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
        let Self { listener, limits, count, ending } = self;
        // A process has several: for webhooks, probes and metrics.
        let address = listener.local_addr().ok().map(|address| address.to_string());
        let (mut tasks, mut open) = (JoinSet::new(), Open::default());
        let mut next: Option<(TcpStream, SocketAddr)> = None;
        let mut ends = pin!(ending.cancelled().fuse());
        let mut said = None::<Instant>;
        let spawn = |tasks: &mut JoinSet<_>, stream, connection| {
            let config = tls.as_ref().map(|tls| tls.load_full());
            tasks.spawn(serve::serve(stream, config, Arc::clone(&handler), limits, connection));
        };
        loop {
            let full = tasks.len() >= limits.connections;
            if !full && let Some((stream, peer)) = next.take() {
                spawn(&mut tasks, stream, open.add(peer));
            }
            if next.is_some() {
                open.close_longest_idle();
            }
            // While there is no room it stays so, whether the next one has come yet or not.
            if next.is_some() || !full {
                open.crowded.set(full);
            }
            count.0.store(tasks.len(), Ordering::Relaxed);
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = &mut ends => {
                    open.tell_all(Told::LastAnswer);
                    continue;
                }
                Some(ended) = tasks.join_next() => ended,
                () = sleep(LOOK), if next.is_some() => continue,
                accepted = listener.accept(), if next.is_none() => {
                    next = Some(accepted);
                    continue;
                }
            };
            if let Ok(Some(alert)) = ended
                && said.is_none_or(|said| said.elapsed() >= SAID)
            {
                said = Some(Instant::now());
                warn!(?alert, "a caller does not trust the certificate that is served");
            }
        }
        let room = limits.connections.saturating_sub(tasks.len());
        for (stream, peer) in next.into_iter().chain(listener.close()).take(room) {
            spawn(&mut tasks, stream, open.add(peer));
        }
        count.0.store(tasks.len(), Ordering::Relaxed);
        info!(address, connections = tasks.len(), "draining");
        open.tell_all(Told::End);
        if timeout(limits.drain, all(&mut tasks, &count)).await.is_err() {
            warn!(connections = tasks.len(), "responses did not finish in time and are aborted");
            open.tell_all(Told::Cut);
            if timeout(CUT, all(&mut tasks, &count)).await.is_err() {
                tasks.shutdown().await;
            }
        }
        count.0.store(0, Ordering::Relaxed);
        info!(address, "listener is drained");
    }
}

async fn all<T: 'static>(tasks: &mut JoinSet<T>, count: &Connections) {
    while tasks.join_next().await.is_some() {
        count.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The open connections of a server.
#[derive(Default)]
struct Open {
    connections: Vec<Connection>,
    /// At this number of connections, the closed ones are removed.
    sweep_at: usize,
    crowded: Crowded,
    /// New connections are told this.
    told: Option<Told>,
}

impl Open {
    fn add(&mut self, peer: SocketAddr) -> Connection {
        if self.connections.len() >= self.sweep_at {
            self.connections.retain(Connection::is_shared);
            self.sweep_at = 2 * self.connections.len() + 16;
        }
        let connection = Connection::new(peer, &self.crowded);
        if let Some(told) = self.told {
            connection.tell(told);
        }
        self.connections.push(connection.clone());
        connection
    }

    fn tell_all(&mut self, what: Told) {
        self.told = Some(what);
        self.connections.iter().for_each(|connection| connection.tell(what));
    }

    /// Has the connection leave that has been idle longest, unless one is leaving already.
    fn close_longest_idle(&mut self) {
        self.connections.retain(Connection::is_shared);
        let idle = || self.connections.iter().filter_map(|one| Some((one.idle_since()?, one)));
        if idle().any(|(_, connection)| connection.told() == Told::Leave) {
            return;
        }
        if let Some((since, connection)) = idle().min_by_key(|(since, _)| *since)
            && (connection.requests() > 0 || since.elapsed() >= MOMENT)
        {
            connection.tell(Told::Leave);
        }
    }
}
