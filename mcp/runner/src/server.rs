//! The listener: connections in, and out again when the proxy drains.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::deadlines::{LIMITS, Phase, Watched};
use crate::socket::Socket;

/// Connections that are served at once; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 4096;
/// The longest head of a request, in bytes: what one client can make the proxy hold before it has said anything.
const MAX_HEAD: usize = 64 << 10;
/// The pause after the operating system refused a connection, so that running out of files does not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long calls under way may take once the proxy is to end: within a pod's 30 s.
const DRAIN: Duration = Duration::from_secs(25);

/// When the operating system asks a silent client whether it is still there, and how often: an event stream may be silent for hours.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_mins(1)).with_interval(Duration::from_secs(15)).with_retries(4);

/// Accepts connections until the proxy is to end, then waits for the calls under way.
pub(crate) async fn serve(listener: TcpListener, app: Arc<App>) {
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let abort = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = app.drain.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, peer, place)) = accepted else { continue };
        let (app, abort) = (Arc::clone(&app), abort.clone());
        connections.spawn(async move {
            app.metrics.connections.fetch_add(1, Relaxed);
            tokio::select! {
                () = connection(stream, peer, &app) => {}
                () = abort.cancelled() => {}
            }
            app.metrics.connections.fetch_sub(1, Relaxed);
            drop(place);
        });
    }
    // Refuse what comes now, so that clients go to another replica.
    drop(listener);
    connections.close();
    tracing::info!(connections = connections.len(), "draining");
    if tokio::time::timeout(DRAIN, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "calls under way did not finish in time");
        abort.cancel();
        connections.wait().await;
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, place)),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, app: &Arc<App>) {
    // Event streams are written in small pieces; without this each waits for the acknowledgement of the one before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    if let Err(error) = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE) {
        tracing::debug!(%error, "cannot set SO_KEEPALIVE");
    }
    let phase = Arc::new(Phase::default());
    let socket = Socket::new(stream);
    let io = TokioIo::new(Watched::new(socket.clone(), Arc::clone(&phase), LIMITS.reading_within(app.read_timeout)));
    let service = service_fn(|request| Arc::clone(app).serve(peer, Arc::clone(&phase), request));
    // The deadline of hyper would count the time between two requests as part of the head; the socket keeps our own.
    let connection =
        http1::Builder::new().header_read_timeout(None).max_buf_size(MAX_HEAD).serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    let served = async {
        tokio::select! {
            result = connection.as_mut() => result,
            () = app.drain.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    let result = tokio::select! {
        result = served => result,
        () = socket.left(|| phase.is_serving()) => return tracing::debug!(%peer, "the client has gone"),
    };
    if let Err(error) = result {
        tracing::debug!(%error, %peer, "a connection ended early");
    }
}
