//! TLS of servers in tests, each under an authority of its own; and in front of a server that has none.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use portcullis_pki::{Ca, CertificateParams, Usage};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Takes TLS off each connection and leads it to the server behind; ends when it is dropped.
pub(crate) struct TlsFront {
    pub(crate) address: SocketAddr,
    directory: TempDir,
    /// The names that clients asked for in their handshakes.
    names: Arc<Mutex<Vec<Option<String>>>>,
    accepting: JoinHandle<()>,
}

impl TlsFront {
    /// For 127.0.0.1 and `localhost`.
    pub(crate) async fn before(server: SocketAddr) -> Self {
        let (config, ca) = server_config("remote");
        Self::with(config, &ca, server).await
    }

    /// The same, for clients that want HTTP/2.
    pub(crate) async fn before_http2(server: SocketAddr) -> Self {
        let (mut config, ca) = server_config("remote");
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self::with(config, &ca, server).await
    }

    async fn with(config: ServerConfig, ca: &str, server: SocketAddr) -> Self {
        let wanted = config.alpn_protocols.first().cloned();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("ca.crt"), ca).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let names = Arc::new(Mutex::new(Vec::new()));
        let accepting = tokio::spawn(accept(listener, acceptor, wanted, server, Arc::clone(&names)));
        Self { address, directory, names, accepting }
    }

    /// The file with the authority's certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    pub(crate) fn names(&self) -> Vec<Option<String>> {
        self.names.lock().unwrap().clone()
    }
}

/// TLS of a server at 127.0.0.1 and `localhost`, and the certificate of the authority that is made for it, as PEM.
pub(crate) fn server_tls(name: &str) -> (TlsAcceptor, String) {
    let (config, ca) = server_config(name);
    (TlsAcceptor::from(Arc::new(config)), ca)
}

fn server_config(name: &str) -> (ServerConfig, String) {
    let now = Timestamp::now();
    let (not_before, not_after) = (now - SignedDuration::from_hours(1), now + SignedDuration::from_hours(24));
    let ca = Ca::generate(name, not_before, not_after).unwrap();
    let pair = ca.issue(&CertificateParams {
        common_name: name,
        organizations: &[],
        dns_names: &["localhost".to_owned()],
        ip_addresses: &[IpAddr::from([127, 0, 0, 1])],
        not_before,
        not_after,
        usage: Usage::Server,
    });
    let pair = pair.unwrap();
    let certificate = CertificateDer::from_pem_slice(pair.cert_pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    (config, ca.cert_pem().to_owned())
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    wanted: Option<Vec<u8>>,
    server: SocketAddr,
    names: Arc<Mutex<Vec<Option<String>>>>,
) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, names, wanted) = (acceptor.clone(), Arc::clone(&names), wanted.clone());
        tokio::spawn(async move {
            // A client that does not trust the certificate ends it here.
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            // A client that names no protocol is taken by rustls.
            if stream.get_ref().1.alpn_protocol() != wanted.as_deref() {
                return;
            }
            names.lock().unwrap().push(stream.get_ref().1.server_name().map(str::to_owned));
            let Ok(mut behind) = TcpStream::connect(server).await else { return };
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut behind).await;
        });
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
