//! Connections over several threads.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::{Handler, Limits, RequestBody, Server, Workers};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_mins(1);

/// Asks for the name of the thread that serves the connection.
async fn thread_of(client: &mut TcpStream) -> String {
    let exchange = async {
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let (mut answer, mut piece) = (Vec::new(), [0; 512]);
        while !answer.ends_with(b"\n") || answer.ends_with(b"\r\n") {
            let read = client.read(&mut piece).await.unwrap();
            assert!(read > 0, "the connection ended");
            answer.extend_from_slice(&piece[..read]);
        }
        String::from_utf8(answer).unwrap().rsplit("\r\n").next().unwrap().trim().to_owned()
    };
    timeout(PATIENCE, exchange).await.unwrap()
}

async fn connect(address: SocketAddr) -> (TcpStream, String) {
    let mut client = TcpStream::connect(address).await.unwrap();
    let name = thread_of(&mut client).await;
    (client, name)
}

/// Answers with the name of its thread.
struct Named;

impl Handler for Named {
    type Body = Full<Bytes>;

    async fn handle(&self, _: Request<RequestBody>) -> Response<Full<Bytes>> {
        let name = thread::current().name().filter(|name| name.starts_with("worker-")).unwrap_or("first").to_owned();
        Response::new(Full::new(Bytes::from(format!("{name}\n"))))
    }

    async fn shed(&self, request: Request<RequestBody>) -> Response<Full<Bytes>> {
        self.handle(request).await
    }
}

#[tokio::test]
async fn few_connections_share_a_thread_many_are_spread_and_none_changes_its_thread() {
    let server = Server::bind((Ipv4Addr::LOCALHOST, 0), Limits::default()).await.unwrap();
    let (address, open, stop) = (server.local_addr().unwrap(), server.places(), CancellationToken::new());
    let serving = server.serve(Workers::start(3).unwrap(), Arc::new(Named), stop.clone());
    let serving = tokio::spawn(serving);
    let mut clients = Vec::new();
    for _ in 0..60 {
        clients.push(connect(address).await);
    }
    let count = |clients: &[(TcpStream, String)], name: &str| clients.iter().filter(|(_, on)| on == name).count();
    assert!(clients[..16].iter().all(|(_, on)| on == "first"), "{clients:?}");
    assert_eq!(["first", "worker-1", "worker-2"].map(|name| count(&clients, name)), [20, 20, 20]);
    for (client, on) in &mut clients {
        assert_eq!(thread_of(client).await, *on);
    }
    // A thread gets again what it loses.
    clients.retain(|(_, on)| on != "worker-1");
    timeout(PATIENCE, async {
        while open.usage().open > clients.len() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!(connect(address).await.1, "worker-1");
    stop.cancel();
    timeout(PATIENCE, serving).await.unwrap().unwrap();
}
