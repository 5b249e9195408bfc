//! Client certificates.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};

/// The CAs that client certificates are verified with. They can be [replaced](Self::replace) while the listener runs,
/// for new connections.
///
/// A client certificate is requested, but optional: clients without one are served, and requests of clients with one
/// have the extension [`ClientCertificate`]. A certificate of another CA, or an expired one, fails the handshake.
pub struct ClientCa {
    provider: Arc<CryptoProvider>,
    verifier: ArcSwap<Arc<dyn ClientCertVerifier>>,
}

/// A CA bundle that cannot be used. Keep the previous one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientCaError {
    /// The bundle is not valid PEM.
    #[error("it holds no certificates in PEM: {0}")]
    Pem(#[source] rustls_pki_types::pem::Error),
    /// One of the certificates cannot be a CA.
    #[error("a certificate in it cannot be trusted: {0}")]
    Authority(#[source] rustls::Error),
    /// The bundle has no certificate.
    #[error("it holds nothing that could be trusted: {0}")]
    Verifier(#[from] VerifierBuilderError),
}

/// The verified certificate of a client, issued by a CA of [`ClientCa`]: an extension of every request of the
/// connection.
#[derive(Clone, Debug)]
pub struct ClientCertificate(Arc<CertificateDer<'static>>);

impl ClientCertificate {
    pub(crate) fn of(chain: Option<&[CertificateDer<'static>]>) -> Option<Self> {
        Some(Self(Arc::new(chain?.first()?.clone())))
    }

    /// Returns the certificate in DER.
    pub fn der(&self) -> &[u8] {
        &self.0
    }
}

impl ClientCa {
    /// Reads the CAs from PEM.
    ///
    /// # Errors
    /// When the PEM is not valid, or has no CA certificate.
    pub fn new(provider: Arc<CryptoProvider>, ca_pem: &[u8]) -> Result<Self, ClientCaError> {
        let verifier = ArcSwap::from_pointee(verifier(&provider, ca_pem)?);
        Ok(Self { provider, verifier })
    }

    /// Replaces the CAs for new connections.
    ///
    /// # Errors
    /// When the PEM is not valid, or has no CA certificate. The previous CAs stay in use.
    pub fn replace(&self, ca_pem: &[u8]) -> Result<(), ClientCaError> {
        self.verifier.store(Arc::new(verifier(&self.provider, ca_pem)?));
        Ok(())
    }
}

fn verifier(provider: &Arc<CryptoProvider>, ca_pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, ClientCaError> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(ca_pem) {
        roots.add(authority.map_err(ClientCaError::Pem)?).map_err(ClientCaError::Authority)?;
    }
    Ok(WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(provider)).build()?)
}

impl fmt::Debug for ClientCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCa").finish_non_exhaustive()
    }
}

impl ClientCertVerifier for ClientCa {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// None are named: the authorities may be replaced, and client-go shows its certificate whatever is named.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verifier.load().verify_client_cert(leaf, rest, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
