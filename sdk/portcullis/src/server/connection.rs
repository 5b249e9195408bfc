//! One connection, from the first byte to the last.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::{AlertDescription, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use super::body::RequestBody;
use super::places::{Place, Told};
use super::stall::Stall;
use super::{Handler, Limits, come_again};

/// Time for a connection that gives way to another one to end in order, when it has asked something before: an answer
/// may be on its way.
const LEAVE: Duration = Duration::from_secs(1);
/// The same for one that never asked anything.
const LEAVE_UNHEARD: Duration = Duration::from_millis(100);

/// What is read from a TLS connection at a time, in bytes: a whole record and its head.
const READ_BUFFER: usize = 16 * 1024 + 512;

/// Serves a connection until it ends, or until it is told to and then the end of the answer under way. Whatever a peer
/// does wrong ends its own connection and nothing else. Returns what a peer said that did not trust our certificate.
pub(super) async fn serve<H: Handler>(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    handler: Arc<H>,
    limits: Limits,
    place: Place,
) -> Option<AlertDescription> {
    // Answers are one small write each: waiting to fill a segment would add the peer's delayed ACK to every one.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "connection is gone before it began");
        return None;
    }
    let Some(config) = tls else {
        requests(stream, handler, limits, place).await;
        return None;
    };
    // rustls reads 4 KiB at a time, and most requests are longer.
    let stream = BufReader::with_capacity(READ_BUFFER, stream);
    let handshake = timeout(limits.handshake, TlsAcceptor::from(config).accept(stream));
    let mut handshake = pin!(handshake);
    let shaken = poll_fn(|cx| match place.listen(cx.waker()) {
        Told::Stay => handshake.as_mut().poll(cx).map(Some),
        _ => Poll::Ready(None),
    });
    match shaken.await {
        Some(Ok(Ok(stream))) => requests(stream, handler, limits, place).await,
        Some(Ok(Err(error))) => {
            debug!(%error, "TLS handshake failed");
            return mistrust(&error);
        }
        Some(Err(_)) => debug!("TLS handshake took too long"),
        None => debug!("a handshake gives way"),
    }
    None
}

/// What the peer said, where it broke the handshake off because of our certificate.
fn mistrust(error: &io::Error) -> Option<AlertDescription> {
    use AlertDescription as Alert;
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(
            alert @ (Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA),
        ) => Some(*alert),
        _ => None,
    }
}

async fn requests<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    handler: Arc<H>,
    limits: Limits,
    place: Place,
) {
    let service = service_fn({
        let (place, beyond) = (place.clone(), place.beyond());
        move |request: Request<Incoming>| {
            let (handler, busy) = (Arc::clone(&handler), place.request());
            let request = request.map(|body| RequestBody::new(body, place.crowded()));
            async move {
                let answer = async {
                    if beyond {
                        let mut answer = handler.shed(request).await;
                        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                        answer
                    } else {
                        handler.handle(request).await
                    }
                };
                let mut answer = pin!(answer);
                let answer = poll_fn(|cx| match busy.place().told() {
                    // Another replica, or the next process, can do better.
                    Told::Cut => Poll::Ready(come_again(StatusCode::SERVICE_UNAVAILABLE, "this server is ending")),
                    _ => answer.as_mut().poll(cx),
                });
                let answer = answer.await;
                drop(busy);
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
    let (mut waiting, mut asked, mut told) = (true, 0, Told::Stay);
    // By hand and not with `select!`: this runs at every wake-up, and locks of timers and tokens cost more than the
    // rest of it.
    let ended = poll_fn(|cx| {
        let news = place.listen(cx.waker());
        if news > told {
            if told == Told::Stay {
                // Ends a connection that idles, and lets one at work say `connection: close` with its answer, so that
                // the API server's pool does not send its next request here.
                connection.as_mut().graceful_shutdown();
            }
            if news == Told::Leave {
                // The same, and no time for a head that is only begun.
                asked = place.asked();
                let leave = if asked > 0 { LEAVE } else { LEAVE_UNHEARD };
                patience.as_mut().reset(Instant::now() + leave);
                waiting = !place.busy();
            }
            told = news;
        }
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        if waiting && patience.as_mut().poll(cx).is_ready() {
            // One that was told to leave may have been asked something in that moment.
            if place.asked() == asked {
                return Poll::Ready(None);
            }
            waiting = false;
        }
        Poll::Pending
    });
    match ended.await {
        Some(Ok(())) => {}
        Some(Err(error)) => debug!(%error, "connection ended early"),
        None => debug!("no request came"),
    }
}
