//! The server: from the first connection to the last response.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::connection::{Connection, Shared};
use crate::handler::{Crowded, Handler};
use crate::limits::Limits;
use crate::listener::Listener;

/// Time for a new connection to send its first request before it may be closed for another one.
const MOMENT: Duration = Duration::from_millis(100);
/// Interval at which a full server looks for an idle connection while a new one waits.
const LOOK: Duration = Duration::from_millis(25);
/// Time for clients to read the 503 that ends their requests.
const CUT: Duration = Duration::from_secs(1);
/// Interval between log lines about a certificate that is not trusted: clients can call often.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// A bound listener that does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    limits: Limits,
    ending: CancellationToken,
}

impl Server {
    /// Binds the first of the addresses that can be bound; port 0 chooses a free one.
    ///
    /// # Errors
    /// When none can be bound.
    pub async fn bind(addresses: impl ToSocketAddrs, limits: Limits) -> io::Result<Self> {
        Ok(Self { listener: Listener::bind(addresses).await?, limits, ending: CancellationToken::new() })
    }

    /// Closes each connection with its next response (`connection: close`) once `ending` is cancelled, and still
    /// accepts new ones. Cancel it some time before `stop`: a client that keeps connections in a pool then has none
    /// left on which its next request would meet the end of the server.
    #[must_use]
    pub fn with_drain_signal(self, ending: CancellationToken) -> Self {
        Self { ending, ..self }
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// When the socket is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
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
        let Self { listener, limits, ending } = self;
        // A process has several listeners: for webhooks, probes and metrics.
        let address = listener.local_addr().ok().map(|address| address.to_string());
        let (crowded, cut) = (Crowded::default(), CancellationToken::new());
        let shared = Arc::new(Shared { handler, limits, crowded, ending, stop, cut });
        let (mut tasks, mut open) = (JoinSet::new(), Vec::new());
        let mut next = None;
        let mut logged = None::<Instant>;
        let spawn = |tasks: &mut JoinSet<_>, open: &mut Vec<_>, stream: TcpStream| {
            let connection = Arc::new(Connection::new(&shared.stop));
            open.push(Arc::clone(&connection));
            let config = tls.as_ref().map(|tls| tls.load_full());
            tasks.spawn(Arc::clone(&shared).serve(stream, config, connection));
        };
        loop {
            let full = tasks.len() >= limits.connections;
            if next.is_some() || open.len() > 2 * tasks.len() + 16 {
                // Remove closed connections: their tasks have dropped them.
                open.retain(|connection| Arc::strong_count(connection) > 1);
            }
            if !full && let Some((stream, _)) = next.take() {
                spawn(&mut tasks, &mut open, stream);
            }
            if next.is_some() {
                close_longest_idle(&open);
            }
            // While there is no room, the listener stays crowded, whether another connection waits or not.
            if next.is_some() || !full {
                shared.crowded.set(full);
            }
            let ended = tokio::select! {
                biased;
                () = shared.stop.cancelled() => break,
                Some(ended) = tasks.join_next() => ended,
                () = sleep(LOOK), if next.is_some() => continue,
                accepted = listener.accept(), if next.is_none() => {
                    next = Some(accepted);
                    continue;
                }
            };
            if let Ok(Some(alert)) = ended
                && logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL)
            {
                logged = Some(Instant::now());
                warn!(
                    address,
                    ?alert,
                    "a client rejected the served certificate in the TLS handshake; check the CA bundle that it trusts"
                );
            }
        }
        let room = limits.connections.saturating_sub(tasks.len());
        for (stream, _) in next.into_iter().chain(listener.close()).take(room) {
            spawn(&mut tasks, &mut open, stream);
        }
        info!(address, connections = tasks.len(), "draining");
        if timeout(limits.drain, all(&mut tasks)).await.is_err() {
            warn!(
                address,
                connections = tasks.len(),
                seconds = limits.drain.as_secs(),
                "responses did not finish in time and are aborted"
            );
            shared.cut.cancel();
            if timeout(CUT, all(&mut tasks)).await.is_err() {
                tasks.shutdown().await;
            }
        }
        info!(address, "listener is drained");
    }
}

async fn all<T: 'static>(tasks: &mut JoinSet<T>) {
    while tasks.join_next().await.is_some() {}
}

/// Closes the connection that has been idle longest. No other is chosen until it has ended.
fn close_longest_idle(open: &[Arc<Connection>]) {
    let idle = open.iter().filter_map(|one| Some((one.idle_since()?, one)));
    if let Some((since, connection)) = idle.min_by_key(|(since, _)| *since)
        && (connection.had_request() || since.elapsed() >= MOMENT)
    {
        connection.leave.cancel();
    }
}
