//! Callers as the API server is one: TLS 1.3, HTTP/1.1, kept-alive connections, one call after the other on each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::answers::Shape;
use super::bodies::uid;
use super::workload::Workload;

/// No call takes longer, or the run ends.
const PATIENCE: Duration = Duration::from_mins(1);

static CALLS: AtomicU64 = AtomicU64::new(1);

/// The TLS of the callers.
pub fn tls(ca_pem: &str) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// One kept-alive connection.
#[derive(Debug)]
pub struct Caller {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Caller {
    /// Connects and shakes hands.
    pub async fn connect(address: SocketAddr, tls: &Arc<ClientConfig>) -> Result<Self> {
        let open = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let stream =
                TlsConnector::from(Arc::clone(tls)).connect(ServerName::try_from("localhost")?, stream).await?;
            let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            Ok(Self { sender, host: format!("localhost:{}", address.port()) })
        };
        timeout(PATIENCE, open).await.context("the server does not take a connection")?
    }

    /// One call: the uid that it went out with, and the body of the answer.
    async fn call(&mut self, workload: &Workload) -> Result<(String, Bytes)> {
        let uid = uid(CALLS.fetch_add(1, Ordering::Relaxed));
        let request = Request::post(workload.path)
            .header(header::HOST, &self.host)
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(workload.body.body(&uid)))?;
        let answered = async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            ensure!(status.is_success(), "{status} to {}: {}", workload.name, String::from_utf8_lossy(&body));
            Ok(body)
        };
        let body = timeout(PATIENCE, answered).await.with_context(|| format!("no answer to {}", workload.name))??;
        Ok((uid, body))
    }

    /// A call whose answer is read in full.
    pub async fn first(&mut self, workload: &Workload, floor: bool) -> Result<Shape> {
        let (uid, answer) = self.call(workload).await?;
        Shape::of(&answer, &uid, workload, floor)
    }

    async fn until(&mut self, end: Instant, workload: &Workload, shape: Shape) -> Result<u64> {
        let mut answers = 0;
        while answers == 0 || Instant::now() < end {
            let (uid, answer) = self.call(workload).await?;
            ensure!(shape.fits(&answer, &uid), "an answer to {} is unlike the first one", workload.name);
            answers += 1;
        }
        Ok(answers)
    }
}

/// Has all callers call for this long, each at least once, and counts the answers.
pub async fn all(callers: &mut [Caller], workload: &Workload, shape: Shape, window: Duration) -> Result<u64> {
    let end = Instant::now() + window;
    let counted = try_join_all(callers.iter_mut().map(|caller| caller.until(end, workload, shape))).await?;
    Ok(counted.into_iter().sum())
}
