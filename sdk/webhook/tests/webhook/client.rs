//! A client that sends arbitrary bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::fixture::{Serving, provider, serve, webhooks};

/// Nothing in these tests takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The `response` of an admission review, which only comes with 200.
    pub(crate) fn response(&self) -> Value {
        assert_eq!(self.status, 200, "{}\n{}", self.head, String::from_utf8_lossy(&self.body));
        assert!(self.head.to_lowercase().contains("content-type: application/json"), "{}", self.head);
        serde_json::from_slice::<Value>(&self.body).unwrap()["response"].take()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A TLS configuration that trusts one authority and offers these protocols.
pub(crate) fn trusting(ca_pem: &str, alpn: &[&[u8]]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

pub(crate) async fn connect_with(address: SocketAddr, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("webhook.test.svc").unwrap();
    timeout(PATIENCE, TlsConnector::from(Arc::new(config)).connect(name, stream)).await.unwrap()
}

pub(crate) async fn connect(serving: &Serving) -> TlsStream<TcpStream> {
    connect_with(serving.address, trusting(serving.ca.cert_pem(), &[b"http/1.1"])).await.unwrap()
}

/// The webhooks of the fixture behind the server, with ordinary limits.
pub(crate) async fn serve_webhooks() -> Serving {
    serve(webhooks().routes().unwrap(), portcullis::server::Limits::default(), &["webhook.test.svc"]).await
}

/// Reads one reply; None when the peer closes before one began.
pub(crate) async fn read_reply(stream: &mut (impl AsyncRead + Unpin)) -> Option<Reply> {
    let read = async {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            // A peer that cuts the connection without TLS's goodbye is a peer that closed.
            if stream.read_buf(&mut bytes).await.unwrap_or_default() == 0 {
                assert!(bytes.is_empty(), "a reply was cut off: {}", String::from_utf8_lossy(&bytes));
                return None;
            }
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head
            .lines()
            .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(|n| n.parse::<usize>().unwrap()))
            .unwrap_or_default();
        let mut body = bytes[end..].to_vec();
        while body.len() < length {
            assert_ne!(stream.read_buf(&mut body).await.unwrap(), 0, "a body was cut off");
        }
        Some(Reply { status, head, body })
    };
    timeout(PATIENCE, read).await.expect("a reply or an end in time")
}

/// Whether the peer closes the connection without another word.
pub(crate) async fn is_closed(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    read_reply(stream).await.is_none()
}

pub(crate) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: webhook\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends bytes and reads the reply, on a connection that is there.
pub(crate) async fn send(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &str) -> Reply {
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    read_reply(stream).await.expect("a reply")
}

/// Sends one review on a fresh connection.
pub(crate) async fn ask(serving: &Serving, path: &str, review: &Value) -> Reply {
    send(&mut connect(serving).await, &post(path, &review.to_string())).await
}
