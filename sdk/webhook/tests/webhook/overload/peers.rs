//! Peers that do not behave, many at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::process::Process;
use crate::client::{PATIENCE, Reply, connect_with, post, read_reply, trusting};

/// Time for a connection to come about: the kernel's queue is part of the defence, and may be full.
const CONNECT: Duration = Duration::from_secs(5);

/// Clients that can reach the server.
#[derive(Clone)]
pub(crate) struct Peers {
    address: SocketAddr,
    tls: ClientConfig,
}

/// The behaviour of a peer once it is connected. It then sends nothing more.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    Silent,
    Garbage,
    Shaken,
    HalfHead,
    HalfBody,
    /// All of so large a body but its last byte.
    LargeBody(usize),
}

/// A connection that is kept open.
pub(crate) enum Open {
    Plain(#[allow(dead_code, reason = "held, not used")] TcpStream),
    Tls(#[allow(dead_code, reason = "held, not used")] Box<TlsStream<TcpStream>>),
}

/// A review of a ConfigMap.
pub(crate) fn review(data: &Value) -> String {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "e911857d-c318-11e8-bbad-025000000001", "operation": "CREATE", "name": "one", "namespace": "ns",
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "userInfo": {"username": "jane"}, "dryRun": true,
            "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data},
        }
    });
    review.to_string()
}

impl Peers {
    pub(crate) fn of(process: &Process, server_name: &str) -> Self {
        assert_eq!(server_name, "webhook.test.svc", "what the client checks");
        Self { address: process.address, tls: trusting(process.ca.cert_pem(), &[b"http/1.1"]) }
    }

    pub(crate) async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        connect_with(self.address, self.tls.clone()).await
    }

    /// Asks one webhook about one ConfigMap, on a connection that may end afterwards.
    pub(crate) async fn ask(&self, path: &str, data: &Value) -> std::io::Result<Option<Reply>> {
        let mut connection = self.connect().await?;
        connection.write_all(post(path, &review(data)).as_bytes()).await?;
        connection.flush().await?;
        Ok(read_reply(&mut connection).await)
    }

    /// Opens one connection and misbehaves on it; none when the server would not have it.
    pub(crate) async fn misbehave(&self, manner: Manner) -> Option<Open> {
        let plain = || async { timeout(CONNECT, TcpStream::connect(self.address)).await.ok()?.ok() };
        let bytes = match manner {
            Manner::Silent => return plain().await.map(Open::Plain),
            Manner::Garbage => {
                let mut stream = plain().await?;
                stream.write_all(b"\x16\x03\x01\xff\xffgarbage").await.ok()?;
                return Some(Open::Plain(stream));
            }
            Manner::Shaken => String::new(),
            Manner::HalfHead => "POST /validate/inventory HTTP/1.1\r\nhost: w\r\ncont".to_owned(),
            Manner::HalfBody => {
                let whole = post("/validate/inventory?timeout=30s", &review(&json!({})));
                whole[..whole.len() - 9].to_owned()
            }
            Manner::LargeBody(size) => {
                let whole = post("/validate/inventory?timeout=30s", &" ".repeat(size));
                whole[..whole.len() - 1].to_owned()
            }
        };
        let connected = timeout(CONNECT, self.connect()).await.ok()?;
        let mut stream = connected.ok()?;
        let written = async {
            stream.write_all(bytes.as_bytes()).await?;
            stream.flush().await
        };
        timeout(PATIENCE, written).await.ok()?.ok()?;
        Some(Open::Tls(Box::new(stream)))
    }

    /// The same for many at once; returns those that are open.
    pub(crate) async fn all_misbehave(&self, manners: impl IntoIterator<Item = Manner>) -> Vec<Open> {
        let peers = Arc::new(self.clone());
        let tasks: Vec<_> = manners
            .into_iter()
            .map(|manner| {
                let peers = Arc::clone(&peers);
                tokio::spawn(async move { peers.misbehave(manner).await })
            })
            .collect();
        let mut open = Vec::new();
        for task in tasks {
            open.extend(task.await.unwrap());
        }
        open
    }
}
