//! Servers of the legacy HTTP+SSE transport that fall silent, and sessions that end meanwhile. The proxy is in the test's process, so that its
//! limits and its time are the test's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use mcp_http::{Body, BoxService, Silence, full};
use mcp_store::{Limits, MemorySessions};
use mcp_transport::{ClientUrl, Proxy, ProxyConfig, Transport as _};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::sse::serve;
use crate::support::{INITIALIZE, Recorded, Recorder, Timers, within};

struct InProcess(BoxService);

impl InProcess {
    fn of(server: SocketAddr, silence: Silence) -> Self {
        let mut config = ProxyConfig::new(&format!("http://{server}")).unwrap();
        config.sse = Some(ClientUrl::default());
        config.silence = silence;
        Self(Proxy::new(config, Arc::new(MemorySessions::new(Limits::new(Duration::from_hours(1))))).service())
    }

    async fn send(&self, method: Method, path: &str, body: &'static str) -> Response<Body> {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        self.0.call(request.body(full(body)).unwrap()).await
    }

    async fn get(&self) -> Response<Body> {
        self.send(Method::GET, "/sse", "").await
    }

    async fn post(&self) -> Response<Body> {
        within("an answer", self.send(Method::POST, "/message?sessionId=x", INITIALIZE)).await
    }

    /// An open stream, and the server's end of it.
    async fn open(&self, server: &mut Recorder) -> (Response<Body>, Recorded) {
        let (stream, at_server) = tokio::join!(self.get(), serve(server));
        assert_eq!(stream.status(), 200);
        (stream, at_server)
    }
}

#[tokio::test]
async fn a_message_that_was_not_sent_when_its_session_ended_gets_404() {
    // Room for one connection that is not accepted yet.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let server = socket.listen(0).unwrap();
    let address = server.local_addr().unwrap();
    let proxy = InProcess::of(address, Silence::default());
    let (stream, _at_server) = tokio::join!(proxy.get(), async {
        let (mut connection, _) = server.accept().await.unwrap();
        let stream =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\ndata: /message?sessionId=x\n\n";
        connection.write_all(stream.as_bytes()).await.unwrap();
        connection
    });
    assert_eq!(stream.status(), 200);
    let _one = TcpStream::connect(address).await.unwrap();
    let mut call = Box::pin(proxy.post());
    assert!(futures::poll!(&mut call).is_pending(), "it waits for a connection");
    drop(stream);
    let answer = call.await;
    assert_eq!(answer.status(), 404);
    let body = within("the end of the answer", answer.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["id"], "init");
}

#[tokio::test]
async fn no_answer_is_read_longer_than_its_session_is_open() {
    let mut server = Recorder::start().await;
    let proxy = InProcess::of(server.address, Silence::default());
    let (stream, _at_server) = proxy.open(&mut server).await;
    let (answer, _half) = tokio::join!(proxy.post(), async {
        let mut request = server.next().await;
        request.part("HTTP/1.1 202 Accepted\r\ncontent-length: 8\r\n\r\nAcce").await;
        request
    });
    assert_eq!(answer.status(), 202);
    drop(stream);
    let rest = within("the end of the answer", answer.into_body().collect()).await;
    assert!(rest.is_err(), "{rest:?}");
}

#[tokio::test]
async fn no_caller_waits_for_a_server_that_vanished_without_closing_its_connections() {
    let mut server = Recorder::start().await;
    let second = Duration::from_secs(1);
    let silence = Silence { asked_after: second, asked_every: second, questions: 1, untaken: 2 * second };
    let proxy = InProcess::of(server.address, silence);
    let (stream, at_server) = proxy.open(&mut server).await;
    let (accepted, kept) = tokio::join!(proxy.post(), async {
        let mut request = server.next().await;
        request.part("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await;
        request
    });
    assert_eq!(accepted.status(), 202, "its answer is to come on the stream");
    kept.vanishes();
    // One goes out on the connection that was kept, and the other on one of its own.
    let at_other = async {
        let request = server.next().await;
        request.vanishes();
        request
    };
    let (one, other, _open) = tokio::join!(proxy.post(), proxy.post(), at_other);
    assert_eq!((one.status().as_u16(), other.status().as_u16()), (502, 502));
    at_server.vanishes();
    let ended = within("the end of the stream", stream.into_body().collect()).await;
    assert!(ended.is_err(), "{ended:?}");
}

#[tokio::test]
async fn a_server_has_thirty_seconds_for_the_endpoint_however_late_the_head_of_its_stream_is() {
    let mut server = Recorder::start().await;
    let proxy = InProcess::of(server.address, Silence::default());
    let (timers, asked) = (Timers::stop(), Instant::now());
    let (answer, _open) = tokio::join!(proxy.get(), async {
        let mut request = server.next().await;
        timers.advance(Duration::from_secs(25)).await;
        request.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
        timers.advance(Duration::from_secs(4)).await;
        timers.go_on();
        request
    });
    assert_eq!((answer.status().as_u16(), asked.elapsed().as_secs()), (502, 30));
}
