//! One connection, from the first byte to the last.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::places::Place;
use super::stall::Stall;
use super::{Handler, Limits};

/// Time for a connection that gives way to another one to end in order.
const LEAVE: Duration = Duration::from_secs(1);

/// Serves a connection until it ends, or until `stop` and then the end of the answer under way. Whatever a peer does
/// wrong ends its own connection and nothing else.
pub(super) async fn serve<H: Handler>(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    handler: Arc<H>,
    limits: Limits,
    place: Place,
    stop: CancellationToken,
) {
    // Answers are one small write each: waiting to fill a segment would add the peer's delayed ACK to every one.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "connection is gone before it began");
        return;
    }
    let Some(config) = tls else {
        return requests(stream, handler, limits, place, stop).await;
    };
    let handshake = timeout(limits.handshake, TlsAcceptor::from(config).accept(stream));
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = place.wanted() => debug!("a handshake gives way to another connection"),
        shaken = handshake => match shaken {
            Ok(Ok(stream)) => requests(stream, handler, limits, place, stop).await,
            Ok(Err(error)) => debug!(%error, "TLS handshake failed"),
            Err(_) => debug!("TLS handshake took too long"),
        }
    }
}

async fn requests<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    handler: Arc<H>,
    limits: Limits,
    place: Place,
    stop: CancellationToken,
) {
    let asked = Arc::new(AtomicBool::new(false));
    let service = service_fn({
        let (asked, place) = (Arc::clone(&asked), place.clone());
        move |request| {
            asked.store(true, Ordering::Relaxed);
            let (handler, counted) = (Arc::clone(&handler), place.request());
            async move {
                let answer = handler.handle(request).await;
                drop(counted);
                Ok::<_, Infallible>(answer)
            }
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // hyper starts this clock when it begins to wait for a head, so it bounds idle time and slow heads alike.
        .header_read_timeout(limits.idle)
        .max_header_size(limits.head_bytes)
        // The smallest buffer that hyper takes.
        .max_buf_size(limits.head_bytes.max(8192))
        .serve_connection(TokioIo::new(Stall::new(stream, limits.write)), service);
    let mut connection = pin!(connection);
    let mut patience = pin!(sleep(limits.first_request));
    let (mut waiting, mut draining) = (true, false);
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    debug!(%error, "connection ended early");
                }
                return;
            }
            () = stop.cancelled(), if !draining => {
                // Ends a connection that idles, and lets one at work say `connection: close` with its answer, so that
                // the API server's pool does not send its next request here.
                connection.as_mut().graceful_shutdown();
                draining = true;
            }
            () = place.wanted(), if !draining => {
                // The same, and no time for a head that is only begun.
                connection.as_mut().graceful_shutdown();
                draining = true;
                asked.store(place.busy(), Ordering::Relaxed);
                patience.as_mut().reset(Instant::now() + LEAVE);
                waiting = true;
            }
            () = patience.as_mut(), if waiting => {
                if !asked.load(Ordering::Relaxed) {
                    debug!("no request came");
                    return;
                }
                waiting = false;
            }
        }
    }
}
