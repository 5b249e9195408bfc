//! One connection, from the first byte to the last.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::stall::Stall;
use super::{Handler, Limits};

/// Serves a connection until it ends, or until `stop` and then the end of the answer under way. Whatever a peer does
/// wrong ends its own connection and nothing else.
pub(super) async fn serve<H: Handler>(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    handler: Arc<H>,
    limits: Limits,
    stop: CancellationToken,
) {
    // Answers are one small write each: waiting to fill a segment would add the peer's delayed ACK to every one.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "connection is gone before it began");
        return;
    }
    let Some(config) = tls else {
        return requests(stream, handler, limits, stop).await;
    };
    let handshake = timeout(limits.handshake, TlsAcceptor::from(config).accept(stream));
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        shaken = handshake => match shaken {
            Ok(Ok(stream)) => requests(stream, handler, limits, stop).await,
            Ok(Err(error)) => debug!(%error, "TLS handshake failed"),
            Err(_) => debug!("TLS handshake took too long"),
        }
    }
}

async fn requests<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    handler: Arc<H>,
    limits: Limits,
    stop: CancellationToken,
) {
    let asked = Arc::new(AtomicBool::new(false));
    let service = service_fn({
        let asked = Arc::clone(&asked);
        move |request| {
            asked.store(true, Ordering::Relaxed);
            let handler = Arc::clone(&handler);
            async move { Ok::<_, Infallible>(handler.handle(request).await) }
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
    let mut first = pin!(sleep(limits.first_request));
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
            () = first.as_mut(), if waiting => {
                if !asked.load(Ordering::Relaxed) {
                    debug!("no request came");
                    return;
                }
                waiting = false;
            }
        }
    }
}
