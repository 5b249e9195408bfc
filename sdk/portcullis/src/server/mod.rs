//! The listener: HTTPS for webhooks, plain HTTP for health and metrics.
//!
//! The API server calls webhooks over HTTP/1.1 with kept-alive connections. So this is one accept loop that never waits
//! for a peer (the handshake happens in the connection's own task), certificates that are swapped without closing the
//! port, a deadline for everything a peer can be slow at, and an end that closes kept connections, so that no request
//! is lost to a process that is going.

mod body;
mod connection;
mod limits;
mod places;
mod stall;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use body::RequestBody;
pub use limits::Limits;
pub use tls::{TlsError, tls_config};

pub(crate) use body::discard;
use places::{Places, Told};

use crate::words::MISTRUSTED;

/// Connections that the kernel holds until they are accepted. Where that queue is full, a peer's kernel tries again
/// after a second: the API server must not wait that long behind a crowd that is turned away at once. (The kernel's own
/// limit, `somaxconn`, is 4096 unless set.)
const QUEUE: u32 = 4096;
/// Time for those whose answers are cut off to be told so.
const CUT: Duration = Duration::from_secs(1);
/// Connections beyond [`Limits::connections`] that are told to come again, at the same time.
const BEYOND: usize = 32;
/// How long it is not said again that callers do not trust the certificate: whoever can call can do so often.
const SAID: Duration = Duration::from_mins(1);

/// Answers requests. Implemented by [`Routes`](crate::webhooks::Routes), and by every function from a request to a
/// future response.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Dropped when the peer hangs up.
    fn handle(&self, request: Request<RequestBody>) -> impl Future<Output = Response<Full<Bytes>>> + Send;

    /// Answers one request of a connection that came when all places were at work: at once, and without work. 429 with
    /// `Retry-After: 1`, unless written otherwise; the API server's client asks again then, while its own time lasts.
    /// The connection is closed after it.
    fn shed(&self, request: Request<RequestBody>) -> impl Future<Output = Response<Full<Bytes>>> + Send {
        async move {
            discard(request.into_body()).await;
            come_again(StatusCode::TOO_MANY_REQUESTS, "all connections of this server are at work")
        }
    }
}

impl<F, R> Handler for F
where
    F: Fn(Request<RequestBody>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<Full<Bytes>>> + Send,
{
    fn handle(&self, request: Request<RequestBody>) -> impl Future<Output = Response<Full<Bytes>>> + Send {
        self(request)
    }
}

/// An answer with `Retry-After: 1`, which the API server's client obeys while its own time lasts.
pub(crate) fn come_again(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{why}; ask again in a second\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// A bound listener that does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    limits: Limits,
}

impl Server {
    /// Binds the address; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be bound.
    #[allow(clippy::unused_async, reason = "binding a listener registers it with the runtime: only inside of one")]
    pub async fn bind(address: SocketAddr, limits: Limits) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // As `TcpListener::bind` does: the port of a process that has just ended is free.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self { listener: socket.listen(QUEUE)?, limits })
    }

    /// The address that is bound.
    ///
    /// # Errors
    /// When the socket is not open any more.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves HTTPS until `stop`, then finishes the answers under way. Each new connection takes the configuration that
    /// is then in `tls`: store another one there to change certificates.
    pub async fn serve_tls<H: Handler>(
        self,
        tls: Arc<ArcSwap<ServerConfig>>,
        handler: Arc<H>,
        stop: CancellationToken,
    ) {
        self.serve(Some(tls), handler, stop).await;
    }

    /// Serves plain HTTP until `stop`, then finishes the answers under way. For probes and metrics.
    pub async fn serve_plain<H: Handler>(self, handler: Arc<H>, stop: CancellationToken) {
        self.serve(None, handler, stop).await;
    }

    async fn serve<H: Handler>(
        self,
        tls: Option<Arc<ArcSwap<ServerConfig>>>,
        handler: Arc<H>,
        stop: CancellationToken,
    ) {
        let Self { listener, limits } = self;
        let (mut connections, mut places) = (JoinSet::new(), Places::default());
        let mut next: Option<TcpStream> = None;
        let mut said: Option<Instant> = None;
        loop {
            let full = connections.len() >= limits.connections;
            if next.is_some() || !full {
                // And it stays so until there is room, though those beyond the limit come and go.
                places.crowded(full);
            }
            // Those that are asked to leave make room soon. Where all are at work, a few more are let in to be told so,
            // and the rest waits in the kernel's queue.
            let room =
                |places: &mut Places| !full || (connections.len() < limits.connections + BEYOND && !places.free_some());
            if let Some(stream) = next.take_if(|_| room(&mut places)) {
                let config = tls.as_ref().map(|tls| tls.load_full());
                let (handler, place) = (Arc::clone(&handler), places.take(full));
                connections.spawn(connection::serve(stream, config, handler, limits, place));
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = connections.join_next() => if let Ok(Some(alert)) = ended
                    && said.is_none_or(|said| said.elapsed() >= SAID)
                {
                    said = Some(Instant::now());
                    warn!(?alert, "{MISTRUSTED}");
                },
                () = places.some_idle(), if next.is_some() => {}
                stream = accept(&listener), if next.is_none() => next = Some(stream),
            }
        }
        drop(listener);
        places.tell_all(Told::End);
        if timeout(limits.drain, all(&mut connections)).await.is_err() {
            warn!(connections = connections.len(), "answers under way did not finish in time and are cut off");
            places.tell_all(Told::Cut);
            if timeout(CUT, all(&mut connections)).await.is_err() {
                connections.shutdown().await;
            }
        }
        info!("listener is drained");
    }
}

async fn all<T: 'static>(connections: &mut JoinSet<T>) {
    while connections.join_next().await.is_some() {}
}

/// The next connection. An error here is the process running out of files or a peer gone already; neither is a reason
/// to stop listening, both may repeat at once.
async fn accept(listener: &TcpListener) -> TcpStream {
    let mut pause = Duration::from_millis(5);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        }
    }
}
