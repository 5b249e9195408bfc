//! Checks whether a caller that trusts only a given bundle accepts a chain: by rustls's verifier, and by a call to our
//! own listener as the API server makes it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The timeout of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The reason why a caller that trusts the bundle cannot call this server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The bundle cannot be read.
    #[error("the CA bundle cannot be read: {0}")]
    Bundle(#[from] rustls_pki_types::pem::Error),
    /// The bundle holds nothing that could be trusted.
    #[error("the CA bundle cannot be used: {0}")]
    Verifier(#[from] VerifierBuilderError),
    /// The name is not one that a certificate can carry.
    #[error("'{0}' is not a DNS name")]
    Name(String),
    /// No connection, or a handshake that failed.
    #[error("a handshake with our own listener fails: {0}")]
    Handshake(#[from] std::io::Error),
    /// TLS could not be set up, or the certificate is refused.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The handshake took too long.
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
    let verifier = verifier(&provider, ca_pem.as_bytes())?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_webpki_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = name(server_name)?;
    let handshake = async {
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    tokio::time::timeout(HANDSHAKE, handshake).await.map_err(|_| ProbeError::Slow)??;
    Ok(())
}

/// Verifies a chain (leaf first) as [`probe`] would, without a call. It covers what the checks of `portcullis-pki` do
/// not: weak keys and signatures, constraints on names.
pub(crate) fn verify(
    provider: &Arc<CryptoProvider>,
    chain: &[CertificateDer<'_>],
    server_name: &str,
    ca_pem: &[u8],
    now: Timestamp,
) -> Result<(), ProbeError> {
    let (leaf, intermediates) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().try_into().unwrap_or_default()));
    verifier(provider, ca_pem)?.verify_server_cert(leaf, intermediates, &name(server_name)?, &[], now)?;
    Ok(())
}

fn verifier(provider: &Arc<CryptoProvider>, ca_pem: &[u8]) -> Result<Arc<WebPkiServerVerifier>, ProbeError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem) {
        roots.add(certificate?)?;
    }
    Ok(WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build()?)
}

fn name(server_name: &str) -> Result<ServerName<'static>, ProbeError> {
    ServerName::try_from(server_name.to_owned()).map_err(|_| ProbeError::Name(server_name.to_owned()))
}
