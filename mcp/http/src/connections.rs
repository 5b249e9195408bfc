//! Connections to one server, kept between requests.
//!
//! No task of its own drives a connection: whoever uses it does, as part of waiting for the answer and of reading its
//! body. So an answer wakes one task and not two, and what has arrived of it is passed on at once. A connection is used
//! again on the thread that opened it only: where each thread has a runtime of its own, a request never wakes another
//! thread.
//!
//! The server's name may lead to several addresses. An exchange that belongs to one of them uses a connection to that
//! one only.

mod connector;
mod guard;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::client::legacy::connect::dns::GaiResolver;
use mcp_runconfig::endpoint::EndpointPolicy;
use mcp_store::Bound;
use rustls::ClientConfig;
use tokio::time::{Instant, sleep, timeout};

use self::connector::{Connector, Stream, peer};
pub use self::guard::ForbiddenAddress;
use self::guard::{Guard, leads_to};
use crate::body::{Body, BoxError, empty};

/// Connections that were not used for so long are closed.
const IDLE: Duration = Duration::from_mins(1);
/// The longest look-up of a name where opening a connection has no limit.
const RESOLVE: Duration = Duration::from_secs(5);
/// Unused connections that are kept.
const MAX_IDLE: usize = 256;

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// No connection: nothing was sent.
    Unreachable(BoxError),
    /// No connection, as nobody says now which addresses the server's name has: nothing was sent.
    Unnamed(BoxError),
    /// No connection, as the policy allows none of the server's addresses.
    Forbidden(ForbiddenAddress),
    /// The connection ended before the head of an answer; the request may have been acted on.
    Broken(BoxError),
}

/// The TCP keepalive, which finds a server that is gone without closing its connections: its kernel does not answer,
/// whatever the server does.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// The idle time of a connection before the first probe. Default: 15 s.
    pub asked_after: Duration,
    /// The timeout of each probe. Default: 10 s.
    pub asked_every: Duration,
    /// The number of probes. Default: 3, so that the server is given up after 45 s. Most MCP clients give a call up
    /// after a minute.
    pub questions: u32,
    /// The time for which a server may read nothing that was sent to it. There are no probes meanwhile, and Linux would
    /// try for 15 minutes. A server that is there, and reads nothing while its kernel has no room left, is given up as
    /// well. Default: 45 s; on Linux alone.
    pub untaken: Duration,
}

impl Default for Silence {
    fn default() -> Self {
        let (asked_after, asked_every) = (Duration::from_secs(15), Duration::from_secs(10));
        Self { asked_after, asked_every, questions: 3, untaken: Duration::from_secs(45) }
    }
}

/// The settings of new connections.
#[derive(Clone, Debug, Default)]
pub struct Connecting {
    /// TLS, for a server behind https; without it the server is behind http.
    pub tls: Option<ClientConfig>,
    /// The timeout of opening one, from resolving the server's name to the end of the TLS handshake. `None`: as long as
    /// the operating system waits.
    pub timeout: Option<Duration>,
    /// Spells headers as ToolHive does, for receivers that are not blind to case.
    pub title_case: bool,
    /// To which addresses there may be one, decided each time for the address itself. `None`: to any.
    pub policy: Option<Arc<EndpointPolicy>>,
    /// When a silent server is given up.
    pub silence: Silence,
}

/// The server's URL and the connections to it that nobody uses at the moment. Clones share them.
#[derive(Clone, Debug)]
pub struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connector: Connector,
    resolver: GaiResolver,
    guard: Guard,
    server: Uri,
    timeout: Option<Duration>,
    title_case: bool,
    idle: Mutex<Unused>,
}

#[derive(Debug, Default)]
struct Unused {
    /// The one unused for longest first.
    queue: VecDeque<Idle>,
    /// Whether a task closes those that get too old.
    swept: bool,
}

/// The stream. `None` once the connection has ended: dropping it gives back a request that was not sent.
type Driver = Option<http1::Connection<Stream, Full<Bytes>>>;

#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Driver,
    peer: SocketAddr,
    opened_on: ThreadId,
}

#[derive(Debug)]
struct Idle {
    since: Instant,
    /// In a box, as it is some kilobytes and moves several times a request.
    connection: Box<Connection>,
}

impl Connection {
    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Full<Bytes>>>> {
        let mut answer = std::pin::pin!(self.sender.try_send_request(request));
        let (driver, mut sent) = (&mut self.driver, false);
        poll_fn(|cx| {
            // The first time there is a request to write and nothing to read, so nobody would be woken.
            if !std::mem::replace(&mut sent, true) {
                drive(driver, cx);
                return answer.as_mut().poll(cx);
            }
            drive_until(driver, cx, |cx| answer.as_mut().poll(cx))
        })
        .await
    }

    fn drive(&mut self) {
        drive(&mut self.driver, &mut Context::from_waker(Waker::noop()));
    }
}

/// Reads and writes what can be.
fn drive(driver: &mut Driver, cx: &mut Context<'_>) {
    if let Some(connection) = driver
        && Pin::new(connection).poll(cx).is_ready()
    {
        *driver = None;
    }
}

/// Reads and writes until there is an outcome.
///
/// A connection that has read something wakes whoever waits for it, and that is the task which drives it: all of the task would
/// run again for nothing. So the task waits only once nothing is left to do.
fn drive_until<T>(
    driver: &mut Driver,
    cx: &mut Context<'_>,
    mut outcome: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    let at_work = &mut Context::from_waker(Waker::noop());
    let mut found = outcome(at_work);
    if found.is_pending() {
        drive(driver, at_work);
        found = outcome(at_work);
    }
    if found.is_pending() {
        drive(driver, cx);
        found = outcome(cx);
    }
    found
}

impl Connections {
    /// Connections to the host and port of `server`.
    pub fn new(server: Uri, how: Connecting) -> Self {
        let Connecting { tls, timeout, title_case, policy, silence } = how;
        let (connector, resolver, guard) = Connector::new(&server, tls, policy, timeout, silence);
        Self(Arc::new(Inner { connector, resolver, guard, server, timeout, title_case, idle: Mutex::default() }))
    }

    /// Sends a request, to `address` if there is one, and returns the head of its answer with the body to come, and who
    /// gave it. Its target is a path, and it has a `Host`. A new connection is opened to an address only while the
    /// server's name still leads there: it may have become another server's. Dropping the future, or the body before
    /// its end, ends the connection: that is how a client's leaving reaches the server. To an address there is no TLS:
    /// its certificate would have to name it.
    ///
    /// # Errors
    /// Why there is no head of an answer.
    pub async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        address: Option<SocketAddr>,
    ) -> Result<(Response<Body>, SocketAddr), Failure> {
        self.exchange_noting(request, address, &AtomicBool::new(false)).await
    }

    /// The same. `sent` says, when the future is dropped as well, whether the server may have got the request.
    ///
    /// # Errors
    /// Why there is no head of an answer.
    pub async fn exchange_noting(
        &self,
        mut request: Request<Full<Bytes>>,
        address: Option<SocketAddr>,
        sent: &AtomicBool,
    ) -> Result<(Response<Body>, SocketAddr), Failure> {
        loop {
            let (mut connection, reused) = match self.take(address) {
                Some(connection) => (connection, true),
                // In a box: it takes some kilobytes, which would be moved with every request, and few need it.
                None => (Box::pin(self.connect(address)).await?, false),
            };
            // A server may close a connection that nobody uses just when a request goes out on it. Whether it has acted
            // on the request, nobody knows, and for some methods it is all the same (RFC 9110 §9.2.2).
            let again = (reused && request.method().is_idempotent()).then(|| request.clone());
            let peer = connection.peer;
            sent.store(true, Ordering::Relaxed);
            let mut error = match connection.send(request).await {
                Ok(response) => return Ok((self.driven(response, connection), peer)),
                Err(error) => error,
            };
            let unsent = error.take_message();
            sent.store(unsent.is_none(), Ordering::Relaxed);
            match (unsent, again) {
                // The server closed the connection while nobody used it, or at once: nothing was sent.
                (Some(unsent), _) if reused => request = unsent,
                (Some(_), _) => return Err(Failure::Unreachable(error.into_error().into())),
                (None, Some(again)) => request = again,
                (None, None) => return Err(Failure::Broken(error.into_error().into())),
            }
        }
    }

    fn driven(&self, response: Response<Incoming>, connection: Box<Connection>) -> Response<Body> {
        let (parts, incoming) = response.into_parts();
        let body = if incoming.is_end_stream() {
            self.keep(connection);
            empty()
        } else {
            Body::new(Driven {
                connections: self.clone(),
                incoming,
                connection: Some(connection),
                ahead: None,
                over: false,
            })
        };
        Response::from_parts(parts, body)
    }

    /// The connections that are kept for the next request.
    pub fn bound(&self) -> Bound {
        Bound { name: "unused_connections", used: self.0.idle(|idle| idle.queue.len()), limit: MAX_IDLE }
    }

    /// A connection that was used before on this thread. If it has been closed since, it gives the request back.
    fn take(&self, address: Option<SocketAddr>) -> Option<Box<Connection>> {
        let here = thread::current().id();
        let fits = |connection: &Connection| {
            connection.opened_on == here && address.is_none_or(|address| connection.peer == address)
        };
        let idle = self.0.idle(|idle| {
            let last = idle.queue.iter().rposition(|idle| fits(&idle.connection))?;
            idle.queue.remove(last)
        });
        idle.map(|idle| idle.connection)
    }

    fn keep(&self, mut connection: Box<Connection>) {
        // Mostly it has seen the end of the answer with the last of it.
        if !connection.sender.is_ready() {
            connection.drive();
        }
        if connection.driver.is_none() || !connection.sender.is_ready() {
            return;
        }
        let swept = self.0.idle(|idle| {
            idle.queue.push_back(Idle { since: Instant::now(), connection });
            std::mem::replace(&mut idle.swept, true)
        });
        if !swept {
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
    }

    /// Opens a connection for another protocol than HTTP/1.1. It is the caller's, and closed when it is dropped.
    pub(crate) async fn open(&self) -> Result<Stream, Failure> {
        self.0.open(self.0.server.clone()).await
    }

    /// Without `address`, whatever address of the server answers first.
    async fn connect(&self, address: Option<SocketAddr>) -> Result<Box<Connection>, Failure> {
        let to = match address {
            None => self.0.server.clone(),
            Some(address) => {
                let host = self.0.server.host().unwrap_or_default();
                let named = timeout(self.0.timeout.unwrap_or(RESOLVE), leads_to(&self.0.resolver, host, address));
                if !named.await.map_err(BoxError::from).and_then(|named| named).map_err(Failure::Unnamed)? {
                    return Err(Failure::Unreachable(format!("{host} does not lead to {address} any more").into()));
                }
                format!("http://{address}/").parse().map_err(|error| Failure::Unreachable(Box::new(error)))?
            }
        };
        let stream = self.0.open(to).await?;
        let peer = peer(&stream).ok_or_else(|| Failure::Unreachable("it has ended already".into()))?;
        let handshake = http1::Builder::new().title_case_headers(self.0.title_case).handshake(stream).await;
        let (sender, driver) = handshake.map_err(|error| Failure::Unreachable(error.into()))?;
        Ok(Box::new(Connection { sender, driver: Some(driver), peer, opened_on: thread::current().id() }))
    }
}

impl Inner {
    async fn open(&self, to: Uri) -> Result<Stream, Failure> {
        self.guard.check_literal(&to).map_err(Failure::Forbidden)?;
        self.open_unchecked(to).await.map_err(|error| match ForbiddenAddress::in_causes(&*error) {
            Some(forbidden) => Failure::Forbidden(forbidden),
            None => Failure::Unreachable(error),
        })
    }

    async fn open_unchecked(&self, to: Uri) -> Result<Stream, BoxError> {
        let opening = async {
            if self.connector.is_tunnel() {
                self.guard.check_behind_proxy(&self.resolver, &to).await?;
            }
            self.connector.clone().connect(to).await
        };
        match self.timeout {
            Some(time) => timeout(time, opening).await.map_err(|_| format!("no connection within {time:?}"))?,
            None => opening.await,
        }
    }

    fn idle<T>(&self, change: impl FnOnce(&mut Unused) -> T) -> T {
        let mut old = Vec::new();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while idle.queue.front().is_some_and(|idle| idle.since.elapsed() >= IDLE) || idle.queue.len() > MAX_IDLE {
            old.extend(idle.queue.pop_front());
        }
        let result = change(&mut idle);
        drop(idle);
        // Sockets are closed after the lock is free.
        drop(old);
        result
    }
}

/// Closes connections that get too old while there are no requests, in passing of which that is done otherwise.
async fn sweep(connections: Weak<Inner>) {
    loop {
        sleep(IDLE).await;
        let Some(connections) = connections.upgrade() else { return };
        let goes_on = connections.idle(|idle| {
            idle.swept = !idle.queue.is_empty();
            idle.swept
        });
        if !goes_on {
            return;
        }
    }
}

/// The body of an answer, which drives its connection and gives it back at its end.
///
/// It looks one frame ahead, as far as that has arrived: with the last frame it is known to be the last, and is sent
/// together with the end of the body.
struct Driven {
    connections: Connections,
    incoming: Incoming,
    /// `None` when it has ended or was given back.
    connection: Option<Box<Connection>>,
    ahead: Option<Result<Frame<Bytes>, BoxError>>,
    over: bool,
}

impl Driven {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let (incoming, mut ended) = (&mut self.incoming, None);
        let driver = self.connection.as_mut().map_or(&mut ended, |connection| &mut connection.driver);
        let frame = drive_until(driver, cx, |cx| Pin::new(&mut *incoming).poll_frame(cx));
        let last = matches!(&frame, Poll::Ready(Some(Ok(_)))) && self.incoming.is_end_stream();
        match &frame {
            Poll::Ready(None) => self.end(),
            Poll::Ready(Some(Ok(_))) if last => self.end(),
            Poll::Ready(Some(Err(_))) => {
                self.over = true;
                self.connection = None;
            }
            _ => {}
        }
        frame.map_err(Into::into)
    }

    fn end(&mut self) {
        self.over = true;
        if let Some(connection) = self.connection.take() {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use rustls::RootCertStore;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::body::collect;

    async fn listener() -> (TcpListener, Uri) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        (listener, uri)
    }

    /// Answers one request.
    async fn answer(stream: &mut TcpStream) {
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\n") {
            stream.read_buf(&mut read).await.unwrap();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
    }

    async fn call(connections: &Connections) -> Bytes {
        let mut request = Request::default();
        *request.method_mut() = Method::POST;
        let (answer, _) = connections.exchange(request, None).await.unwrap();
        collect(answer.into_body(), 2).await.unwrap()
    }

    #[tokio::test]
    async fn a_task_that_waits_for_an_answer_does_not_run_for_what_it_did_itself() {
        let (listener, server) = listener().await;
        let connections = Connections::new(server, Connecting::default());
        tokio::spawn(async move {
            let mut stream = listener.accept().await.unwrap().0;
            loop {
                answer(&mut stream).await;
            }
        });
        call(&connections).await;
        let (mut runs, mut call) = (0, std::pin::pin!(call(&connections)));
        let answer = poll_fn(|cx| {
            runs += 1;
            call.as_mut().poll(cx)
        });
        assert_eq!(answer.await, "hi");
        assert_eq!(runs, 2, "once to send the request and once for its answer");
    }

    #[tokio::test]
    async fn a_request_goes_over_another_connection_when_the_server_has_closed_the_kept_one() {
        let (listener, server) = listener().await;
        let connections = Connections::new(server, Connecting::default());
        let accept = async || {
            let mut stream = listener.accept().await.unwrap().0;
            answer(&mut stream).await;
            stream
        };
        let (_, stream) = tokio::join!(call(&connections), accept());
        drop(stream);
        // The runtime hears of it.
        tokio::task::yield_now().await;
        let both = timeout(Duration::from_secs(30), async { tokio::join!(call(&connections), accept()) });
        let (answer, _) = both.await.expect("the request must not wait for an answer on the closed connection");
        assert_eq!(answer, "hi");
    }

    #[test]
    fn a_server_that_vanished_is_given_up_after_45_seconds() {
        let Silence { asked_after, asked_every, questions, untaken } = Silence::default();
        let limit = Duration::from_secs(45);
        assert_eq!((asked_after + asked_every * questions, untaken), (limit, limit));
    }

    #[tokio::test]
    async fn a_connection_that_nobody_uses_any_more_does_not_stay_open() {
        let (listener, server) = listener().await;
        let connections = Connections::new(server, Connecting::default());
        let serving = async {
            let mut stream = listener.accept().await.unwrap().0;
            answer(&mut stream).await;
            stream
        };
        let (_, mut stream) = tokio::join!(call(&connections), serving);
        tokio::time::pause();
        let read = timeout(3 * IDLE, stream.read(&mut [0])).await;
        assert!(matches!(read, Ok(Ok(0))), "{read:?}");
    }

    #[tokio::test]
    async fn a_server_that_never_finishes_its_handshake_does_not_hold_a_request() {
        let (_listener, server) = listener().await;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let how = Connecting { tls: Some(tls), timeout: Some(Duration::from_millis(100)), ..Connecting::default() };
        let connections = Connections::new(server, how);
        let answer = timeout(Duration::from_secs(30), connections.exchange(Request::default(), None)).await;
        assert!(matches!(answer, Ok(Err(Failure::Unreachable(_)))), "{answer:?}");
    }
}
