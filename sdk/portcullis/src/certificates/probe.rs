//! A call to our own listener, the way that the API server makes it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long the handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Why a caller that trusts the bundle could not call us.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The bundle does not read.
    #[error("the CA bundle does not read: {0}")]
    Bundle(#[from] rustls_pki_types::pem::Error),
    /// The name is not one that a certificate can carry.
    #[error("'{0}' is not a DNS name")]
    Name(String),
    /// No connection, or a handshake that failed.
    #[error("a handshake with our own listener fails: {0}")]
    Handshake(#[from] std::io::Error),
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// It took too long.
    #[error("our own listener did not answer within {} s", HANDSHAKE.as_secs())]
    Slow,
}

/// Makes a TLS handshake with `address` as `server_name`, trusting `ca_pem` alone.
///
/// # Errors
/// When the API server's own call would fail.
pub async fn probe(
    provider: Arc<CryptoProvider>,
    address: SocketAddr,
    server_name: &str,
    ca_pem: &str,
) -> Result<(), ProbeError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from(server_name.to_owned()).map_err(|_| ProbeError::Name(server_name.to_owned()))?;
    let handshake = async {
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    tokio::time::timeout(HANDSHAKE, handshake).await.map_err(|_| ProbeError::Slow)??;
    Ok(())
}
