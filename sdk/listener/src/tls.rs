//! TLS configurations for the listener.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate or key that cannot be served. Keep serving the previous pair.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The PEM has no valid certificate.
    #[error("tls.crt holds no certificate in PEM: {0}")]
    Certificate(#[source] rustls_pki_types::pem::Error),
    /// The PEM has no valid private key.
    #[error("tls.key holds no private key in PEM: {0}")]
    Key(#[source] rustls_pki_types::pem::Error),
    /// The key does not match the certificate, or the crypto provider does not support them.
    #[error("tls.crt and tls.key cannot be served together: {0}")]
    Pair(#[from] rustls::Error),
}

/// Builds a TLS configuration that serves one certificate chain, leaf first, over HTTP/1.1.
///
/// The API server calls webhooks only with HTTP/1.1 and offers nothing else in ALPN; a rustls server that required `h2`
/// would refuse it. This library installs no crypto provider for the process; pass one.
///
/// # Errors
/// When the PEM is not valid, or the key does not match the certificate.
pub fn tls_config(provider: Arc<CryptoProvider>, cert_pem: &[u8], key_pem: &[u8]) -> Result<ServerConfig, TlsError> {
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(cert_pem).collect::<Result<_, _>>().map_err(TlsError::Certificate)?;
    if chain.is_empty() {
        return Err(TlsError::Certificate(rustls_pki_types::pem::Error::NoItemsFound));
    }
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(TlsError::Key)?;
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
