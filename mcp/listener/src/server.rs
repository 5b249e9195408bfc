//! The accept loop, from binding the port to the last answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use portcullis_listener::Listener;
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::connection::Told;
use crate::handler::Handler;
use crate::heads::Heads;
use crate::limits::Limits;
use crate::places::{Places, Taken};
use crate::serve::serve;
use crate::socket::Socket;
use crate::workers::Workers;

/// Interval at which a full listener looks for a place while a new connection waits.
const LOOK: Duration = Duration::from_millis(25);
/// Time for clients whose answers are cut off to be told so.
const CUT: Duration = Duration::from_secs(1);
/// The longest head on a reserved connection, in bytes.
const SMALL_HEAD: usize = 8192;

/// A bound listener that does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    limits: Limits,
    places: Places,
}

impl Server {
    /// Binds the first of the addresses that can be bound; port 0 chooses a free one.
    ///
    /// # Errors
    /// When none can be bound.
    pub async fn bind(addresses: impl ToSocketAddrs, limits: Limits) -> io::Result<Self> {
        Ok(Self {
            listener: Listener::bind(addresses).await?,
            limits,
            places: Places::new(limits.connections, limits.heads),
        })
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// When the socket is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the places, for use while the server runs.
    pub fn places(&self) -> Places {
        self.places.clone()
    }

    /// Serves connections on these threads until `stop` is cancelled, then finishes the responses in flight.
    pub async fn serve<H: Handler>(self, workers: Workers, handler: Arc<H>, stop: CancellationToken) {
        let Self { listener, limits, places } = self;
        let address = listener.local_addr().ok().map(|address| address.to_string());
        let (mut ordinary, mut reserved) = (JoinSet::new(), JoinSet::new());
        let mut next: Option<(TcpStream, SocketAddr)> = None;
        let spawn = |tasks: &mut JoinSet<()>, stream, taken| {
            let handler = Arc::clone(&handler);
            workers.spawn(tasks, stream, move |stream| connection(stream, handler, limits, taken));
        };
        loop {
            let full = ordinary.len() >= limits.connections;
            // While there is no room it stays so, though connections beyond the limit come and go.
            if next.is_some() || !full {
                places.crowded().set(full);
            }
            let has_room = |peer: SocketAddr, reserved: usize| {
                if !full {
                    return true;
                }
                if places.give(peer) {
                    return false;
                }
                if reserved >= limits.reserved {
                    places.give_reserved();
                }
                reserved < limits.reserved
            };
            if let Some((stream, peer)) = next.take_if(|(_, peer)| has_room(*peer, reserved.len())) {
                let tasks = if full { &mut reserved } else { &mut ordinary };
                spawn(tasks, stream, places.take(peer, full));
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = ordinary.join_next() => {}
                Some(_) = reserved.join_next() => {}
                () = sleep(LOOK), if next.is_some() => {}
                accepted = listener.accept(), if next.is_none() => next = Some(accepted),
            }
        }
        let room = limits.connections.saturating_sub(ordinary.len());
        for (stream, peer) in next.into_iter().chain(listener.close()).take(room) {
            spawn(&mut ordinary, stream, places.take(peer, false));
        }
        let mut tasks = [ordinary, reserved];
        let count = |tasks: &[JoinSet<()>]| tasks.iter().map(JoinSet::len).sum::<usize>();
        info!(address, connections = count(&tasks), "draining");
        places.tell_all(Told::End);
        if timeout(limits.drain, all(&mut tasks)).await.is_err() {
            warn!(connections = count(&tasks), "responses did not finish in time and are aborted");
            places.tell_all(Told::Cut);
            if timeout(CUT, all(&mut tasks)).await.is_err() {
                for tasks in &mut tasks {
                    tasks.shutdown().await;
                }
            }
        }
        info!(address, "listener is drained");
    }
}

async fn all(tasks: &mut [JoinSet<()>]) {
    for tasks in tasks {
        while tasks.join_next().await.is_some() {}
    }
}

async fn connection<H: Handler>(stream: TcpStream, handler: Arc<H>, mut limits: Limits, taken: Taken) {
    let place = taken.place();
    let socket = match Socket::new(stream, place.connection().clone(), limits.write) {
        Ok(socket) => socket,
        Err(error) => {
            debug!(%error, "client disconnected before its connection was set up");
            return;
        }
    };
    if place.is_reserved() {
        limits.head_bytes = limits.head_bytes.min(SMALL_HEAD);
    }
    serve(Heads::new(socket, place.clone()), place, &*handler, limits).await;
}
