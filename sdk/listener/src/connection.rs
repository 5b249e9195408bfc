//! One connection, from its TLS handshake to its last response.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt as _, Either};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::{AlertDescription, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::BoxError;
use crate::handler::{Crowded, Handler, retry_later};
use crate::limits::Limits;

/// Size of the reads from a TLS connection in bytes: a whole record and its head.
const READ_BUFFER: usize = 16 * 1024 + 512;
/// The smallest buffer that hyper takes, in bytes.
const SMALLEST_BUFFER: usize = 8192;
/// Time for the first request of a connection when the server stops: the client does not know that yet.
const END: Duration = Duration::from_secs(1);

/// The state of one connection, which its task and the accept loop share.
#[derive(Debug)]
pub(crate) struct Connection {
    usage: Mutex<Usage>,
    /// Cancelled to close the connection, for a new one or because the server stops: at once if it is idle, else with
    /// its response.
    pub(crate) leave: CancellationToken,
}

#[derive(Debug)]
struct Usage {
    had_request: bool,
    /// `None` while a request is under way.
    idle_since: Option<Instant>,
}

impl Connection {
    /// A connection that was accepted now, by a server that ends with `stop`.
    pub(crate) fn new(stop: &CancellationToken) -> Self {
        let usage = Usage { had_request: false, idle_since: Some(Instant::now()) };
        Self { usage: Mutex::new(usage), leave: stop.child_token() }
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn had_request(&self) -> bool {
        self.usage().had_request
    }

    /// Returns when the connection was accepted or its last request ended; `None` while a request is under way. A
    /// client that has sent part of a head is idle.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.usage().idle_since
    }

    /// Notes that a request is under way until the result is dropped. HTTP/1.1 serves one at a time.
    fn request(self: &Arc<Self>) -> Busy {
        *self.usage() = Usage { had_request: true, idle_since: None };
        Busy(Arc::clone(self))
    }
}

/// A request under way.
#[derive(Debug)]
struct Busy(Arc<Connection>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.usage().idle_since = Some(Instant::now());
    }
}

/// The part of a running server that its connections share.
pub(crate) struct Shared<H> {
    pub(crate) handler: Arc<H>,
    pub(crate) limits: Limits,
    pub(crate) crowded: Crowded,
    /// Each response closes its connection.
    pub(crate) ending: CancellationToken,
    /// Idle connections close, others do with their responses.
    pub(crate) stop: CancellationToken,
    /// Requests without a response get 503.
    pub(crate) cut: CancellationToken,
}

impl<H: Handler> Shared<H> {
    /// Serves a connection, with or without TLS, until the client, a timeout or the server ends it. Faults of a client
    /// end its own connection and nothing else. Returns the alert of a client that did not trust our certificate.
    pub(crate) async fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        tls: Option<Arc<ServerConfig>>,
        connection: Arc<Connection>,
    ) -> Option<AlertDescription> {
        // Responses are small writes: waiting to fill a segment would add the client's delayed ACK to every one.
        let prepared = stream.set_nodelay(true);
        #[cfg(target_os = "linux")]
        let prepared =
            prepared.and_then(|()| socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(self.limits.write)));
        if let Err(error) = prepared {
            debug!(%error, "client disconnected before its connection was set up");
            return None;
        }
        let Some(config) = tls else {
            self.http(stream, &connection).await;
            return None;
        };
        // rustls reads 4 KiB at a time, and most requests are longer.
        let stream = BufReader::with_capacity(READ_BUFFER, stream);
        tokio::select! {
            shaken = timeout(self.limits.handshake, TlsAcceptor::from(config).accept(stream)) => match shaken {
                Ok(Ok(stream)) => self.http(stream, &connection).await,
                Ok(Err(error)) => {
                    debug!(%error, "TLS handshake failed");
                    return distrust(&error);
                }
                Err(_) => debug!("TLS handshake took too long"),
            },
            () = connection.leave.cancelled() => debug!("closed a connection during its TLS handshake"),
        }
        None
    }

    async fn http<S>(&self, stream: S, connection: &Arc<Connection>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let service = service_fn(|request| {
            let busy = connection.request();
            async move { Ok::<_, Infallible>(self.respond(request, busy).await) }
        });
        let http = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.idle)
            .max_header_size(self.limits.head_bytes)
            .max_buf_size(self.limits.head_bytes.max(SMALLEST_BUFFER))
            .serve_connection(TokioIo::new(stream), service);
        let mut http = pin!(http);
        let ends = async {
            tokio::select! {
                biased;
                ended = http.as_mut() => return Some(ended),
                () = connection.leave.cancelled() => {}
            }
            let stopped = self.stop.is_cancelled();
            if stopped && !connection.had_request() {
                // hyper would close it at once, and lose a request that is arriving.
                if let Ok(ended) = timeout(END, http.as_mut()).await {
                    return Some(ended);
                }
            }
            http.as_mut().graceful_shutdown();
            poll_fn(|cx| match http.as_mut().poll(cx) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                // The client has sent part of a head, or does not read its response while others wait.
                Poll::Pending if connection.idle_since().is_some() && !(stopped && connection.had_request()) => {
                    Poll::Ready(None)
                }
                Poll::Pending => Poll::Pending,
            })
            .await
        };
        match ends.await {
            Some(Ok(())) => {}
            Some(Err(error)) => debug!(%error, "connection ended early"),
            None => debug!("closed a connection: another one needs its place, or the server ends"),
        }
    }

    async fn respond(
        &self,
        mut request: Request<Incoming>,
        busy: Busy,
    ) -> Response<impl Body<Data = Bytes, Error = BoxError> + use<H>> {
        request.extensions_mut().insert(self.crowded.clone());
        let mut response = tokio::select! {
            biased;
            response = self.handler.handle(request) => response.map(Either::Left),
            // Another replica, or the next process, can do better.
            () = self.cut.cancelled() => {
                retry_later(StatusCode::SERVICE_UNAVAILABLE, "this server is shutting down").map(Either::Right)
            }
        };
        if self.ending.is_cancelled() || self.stop.is_cancelled() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // The request is under way until its response is complete or dropped.
        response.map(|body| {
            body.map_err(move |error| {
                let _until_dropped = &busy;
                error
            })
        })
    }
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
