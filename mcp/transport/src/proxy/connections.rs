//! Connections to one server, kept between requests.
//!
//! No task of its own drives a connection: whoever uses it does, as part of waiting for the answer and of reading its body. So an answer
//! wakes one task and not two, and what has arrived of it is passed on at once.
//!
//! The server's name may lead to several addresses. An exchange that belongs to one of them uses a connection to that one only.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use mcp_http::{Body, BoxError, empty};
use tokio::net::TcpStream;
use tower::Service as _;

/// Unused connections older than this are closed.
const IDLE: Duration = Duration::from_mins(1);
/// Unused connections that are kept.
const MAX_IDLE: usize = 256;
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection: nothing was sent.
    Unreachable(BoxError),
    /// The connection ended before the head of an answer; the request may have been acted on.
    Broken(BoxError),
}

/// The server's URL and the connections to it that nobody uses at the moment. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connector: HttpConnector,
    server: Uri,
    /// The one unused for longest first.
    idle: Mutex<VecDeque<(Instant, Connection)>>,
}

#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: http1::Connection<TokioIo<TcpStream>, Full<Bytes>>,
    peer: SocketAddr,
}

impl Connection {
    /// Reads and writes what can be; whether the connection has ended.
    fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        Pin::new(&mut self.driver).poll(cx).is_ready()
    }
}

impl Connections {
    pub(super) fn new(server: Uri, connect_timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect_timeout));
        // Streams may be silent for hours; this is how a dead server is noticed.
        connector.set_keepalive(Some(TCP_KEEPALIVE));
        Self(Arc::new(Inner { connector, server, idle: Mutex::default() }))
    }

    /// Sends a request, to `address` if there is one, and returns the head of its answer with the body to come, and who gave it. Dropping
    /// the future, or the body before its end, ends the connection: that is how a client's leaving reaches the server.
    pub(super) async fn exchange(
        &self,
        mut request: Request<Full<Bytes>>,
        address: Option<SocketAddr>,
    ) -> Result<(Response<Body>, SocketAddr), Failure> {
        loop {
            let (mut connection, reused) = match self.take(address).await {
                Some(connection) => (connection, true),
                None => (self.connect(address).await?, false),
            };
            let peer = connection.peer;
            let mut answer = std::pin::pin!(connection.sender.try_send_request(request));
            let driver = &mut connection.driver;
            let mut ended = false;
            let answer = poll_fn(|cx| {
                ended = ended || Pin::new(&mut *driver).poll(cx).is_ready();
                answer.as_mut().poll(cx)
            });
            match answer.await {
                Ok(response) => return Ok((self.driven(response, connection, ended).await, peer)),
                Err(mut error) => match error.take_message() {
                    // The server closed the connection while nobody used it: nothing was sent.
                    Some(unsent) if reused => request = unsent,
                    _ => return Err(Failure::Broken(error.into_error().into())),
                },
            }
        }
    }

    async fn driven(&self, response: Response<Incoming>, mut connection: Connection, ended: bool) -> Response<Body> {
        let (parts, incoming) = response.into_parts();
        let body = if incoming.is_end_stream() {
            if !ended && !poll_fn(|cx| Poll::Ready(connection.drive(cx))).await {
                self.keep(connection);
            }
            empty()
        } else {
            let connection = (!ended).then_some(connection);
            Body::new(Driven { connections: self.clone(), incoming, connection, ahead: None, over: false })
        };
        Response::from_parts(parts, body)
    }

    /// A connection that was used before and is still open.
    async fn take(&self, address: Option<SocketAddr>) -> Option<Connection> {
        loop {
            let (_, mut connection) = self.idle(|idle| match address {
                None => idle.pop_back(),
                Some(address) => {
                    let last = idle.iter().rposition(|(_, connection)| connection.peer == address)?;
                    idle.remove(last)
                }
            })?;
            let ended = poll_fn(|cx| Poll::Ready(connection.drive(cx))).await;
            if !ended && connection.sender.is_ready() {
                return Some(connection);
            }
        }
    }

    fn keep(&self, connection: Connection) {
        if connection.sender.is_ready() {
            self.idle(|idle| idle.push_back((Instant::now(), connection)));
        }
    }

    fn idle<T>(&self, change: impl FnOnce(&mut VecDeque<(Instant, Connection)>) -> T) -> T {
        let mut old = Vec::new();
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while idle.front().is_some_and(|(since, _)| since.elapsed() >= IDLE) || idle.len() > MAX_IDLE {
            old.extend(idle.pop_front());
        }
        let result = change(&mut idle);
        drop(idle);
        // Sockets are closed after the lock is free.
        drop(old);
        result
    }

    /// Without `address`, whatever address of the server answers first.
    async fn connect(&self, address: Option<SocketAddr>) -> Result<Connection, Failure> {
        let unreachable = Failure::Unreachable;
        let to = match address {
            None => self.0.server.clone(),
            Some(address) => format!("http://{address}/").parse().map_err(|error| unreachable(Box::new(error)))?,
        };
        let socket = self.0.connector.clone().call(to).await;
        let socket = socket.map_err(|error| unreachable(error.into()))?;
        let peer = socket.inner().peer_addr().map_err(|error| unreachable(error.into()))?;
        let handshake = http1::Builder::new().handshake(socket).await;
        let (sender, driver) = handshake.map_err(|error| unreachable(error.into()))?;
        Ok(Connection { sender, driver, peer })
    }
}

/// The body of an answer, which drives its connection and gives it back at its end.
///
/// It looks one frame ahead, as far as that has arrived: with the last frame it is known to be the last, and is sent together with the
/// end of the body.
struct Driven {
    connections: Connections,
    incoming: Incoming,
    /// `None` when it has ended or was given back.
    connection: Option<Connection>,
    ahead: Option<Result<Frame<Bytes>, BoxError>>,
    over: bool,
}

impl Driven {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let mut frame = Pin::new(&mut self.incoming).poll_frame(cx);
        if frame.is_pending()
            && let Some(connection) = &mut self.connection
        {
            if connection.drive(cx) {
                self.connection = None;
            }
            frame = Pin::new(&mut self.incoming).poll_frame(cx);
        }
        let last = matches!(&frame, Poll::Ready(Some(Ok(_)))) && self.incoming.is_end_stream();
        match &frame {
            Poll::Ready(None) => self.end(cx),
            Poll::Ready(Some(Ok(_))) if last => self.end(cx),
            Poll::Ready(Some(Err(_))) => {
                self.over = true;
                self.connection = None;
            }
            _ => {}
        }
        frame.map_err(Into::into)
    }

    fn end(&mut self, cx: &mut Context<'_>) {
        self.over = true;
        if let Some(mut connection) = self.connection.take()
            && !connection.drive(cx)
        {
            self.connections.keep(connection);
        }
    }
}

impl HttpBody for Driven {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let frame = match this.ahead.take() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => this.poll_next(cx),
        };
        if matches!(&frame, Poll::Ready(Some(Ok(_))))
            && let Poll::Ready(Some(next)) = this.poll_next(cx)
        {
            this.ahead = Some(next);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.over && self.ahead.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.incoming.size_hint();
        if let Some(Ok(frame)) = &self.ahead {
            let ahead = frame.data_ref().map_or(0, |data| data.len() as u64);
            let (lower, upper) = (hint.lower() + ahead, hint.upper().map(|upper| upper + ahead));
            hint = SizeHint::new();
            hint.set_lower(lower);
            if let Some(upper) = upper {
                hint.set_upper(upper);
            }
        }
        hint
    }
}
