//! Serving one connection, from the first byte to the last.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::{AlertDescription, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use crate::body::{Answer, RequestBody};
use crate::clock::{Clock, Due};
use crate::connection::{Busy, Connection, Told};
use crate::handler::{Handler, retry_later};
use crate::limits::Limits;
use crate::socket::Socket;

/// What is read from a TLS connection at a time, in bytes: a whole record and its head.
const READ_BUFFER: usize = 16 * 1024 + 512;
/// The smallest buffer that hyper takes, in bytes.
const SMALLEST_BUFFER: usize = 8192;

/// Serves a connection with or without TLS, as [`Connection::serve`] does. Returns the alert of a client that did not
/// trust our certificate.
pub(crate) async fn serve<H: Handler>(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    handler: Arc<H>,
    limits: Limits,
    connection: Connection,
) -> Option<AlertDescription> {
    let socket = match Socket::new(stream, connection.clone(), limits.write) {
        Ok(socket) => socket,
        Err(error) => {
            debug!(%error, "client disconnected before its connection was set up");
            return None;
        }
    };
    let Some(config) = tls else {
        connection.serve(socket, handler, limits).await;
        return None;
    };
    // rustls reads 4 KiB at a time, and most requests are longer.
    let stream = BufReader::with_capacity(READ_BUFFER, socket);
    let handshake = timeout(limits.handshake, TlsAcceptor::from(config).accept(stream));
    let mut handshake = pin!(handshake);
    let shaken = poll_fn(|cx| match connection.listen(cx.waker()) {
        Told::Stay | Told::LastAnswer => handshake.as_mut().poll(cx).map(Some),
        _ => Poll::Ready(None),
    });
    match shaken.await {
        Some(Ok(Ok(stream))) => {
            connection.waits();
            connection.serve(stream, handler, limits).await;
        }
        Some(Ok(Err(error))) => {
            debug!(%error, "TLS handshake failed");
            return distrust(&error);
        }
        Some(Err(_)) => debug!("TLS handshake took too long"),
        None => debug!("closed a connection during its TLS handshake, for a new client or to stop"),
    }
    None
}

/// The alert of a client that refused our certificate in a handshake.
fn distrust(error: &io::Error) -> Option<AlertDescription> {
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

impl Connection {
    /// Serves the requests that arrive on `stream` until the client or a timeout ends it, or an instruction
    /// ([`Self::tell`]). Faults of a client end its own connection and nothing else. Of `limits`, `connections`, `handshake`
    /// and `drain` have no effect here, nor has `write`, which belongs to the [`Socket`].
    pub async fn serve<H, S>(&self, stream: S, handler: Arc<H>, limits: Limits)
    where
        H: Handler,
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let service = service_fn(|request: Request<Incoming>| {
            let (handler, busy) = (Arc::clone(&handler), self.request());
            async move { Ok::<_, Infallible>(answer(&*handler, busy, request).await) }
        });
        let http = http1::Builder::new()
            // hyper's own would count the time between two requests as part of the head.
            .header_read_timeout(None)
            .max_header_size(limits.head_bytes)
            .max_buf_size(limits.head_bytes.max(SMALLEST_BUFFER))
            .serve_connection(TokioIo::new(stream), service);
        let (mut http, mut clock, mut told) = (pin!(http), Clock::new(limits), Told::LastAnswer);
        // By hand and not with `select!`: this runs at every wake-up, and locks of timers and tokens cost more than the
        // rest of it.
        let ended = poll_fn(|cx| {
            let news = self.listen(cx.waker());
            if news > told {
                // Ends a connection that idles, and lets one at work say `connection: close` with its answer, so that the
                // client's pool does not send its next request here. One on which nothing was asked would be ended at once,
                // and with it a request that is just arriving: the clock gives it a moment.
                if self.requests() > 0 {
                    http.as_mut().graceful_shutdown();
                }
                told = news;
            }
            loop {
                if let Poll::Ready(ended) = http.as_mut().poll(cx) {
                    return Poll::Ready(Some(ended));
                }
                match clock.poll(cx, self) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Due::Look) => self.look(),
                    Poll::Ready(Due::End) => return Poll::Ready(None),
                }
            }
        });
        let peer = self.peer();
        match ended.await {
            Some(Ok(())) => {}
            Some(Err(error)) => debug!(%error, %peer, "connection ended early"),
            None => debug!(%peer, "closed a connection: no request arrived in time, or another one needs its place"),
        }
    }
}

async fn answer<H: Handler>(handler: &H, busy: Busy, request: Request<Incoming>) -> Response<Answer<H::Body>> {
    let connection = busy.connection().clone();
    let mut answer = pin!(handler.handle(request.map(|body| RequestBody::new(body, connection.clone()))));
    let answer = poll_fn(|cx| match connection.told() {
        // Another replica, or the next process, can do better.
        Told::Cut | Told::Close => {
            Poll::Ready(retry_later(StatusCode::SERVICE_UNAVAILABLE, "this server is shutting down").map(Either::Right))
        }
        _ => answer.as_mut().poll(cx).map(|answer| answer.map(Either::Left)),
    });
    let mut answer = answer.await;
    if connection.told() != Told::Stay {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer.map(|body| Answer { body, _busy: busy })
}
