//! Certificates of callers.

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

/// The authorities whose certificates callers may show. They can be [replaced](Self::replace) while the listener runs, for
/// the connections that come then.
///
/// A certificate is asked for and not demanded: a caller without one is served, and the handler sees by the extension
/// [`ClientCertificate`] who has one. One that another authority has issued, or that has expired, ends the handshake.
pub struct ClientCa {
    provider: Arc<CryptoProvider>,
    verifier: ArcSwap<Arc<dyn ClientCertVerifier>>,
}

/// Authorities that cannot be used. Keep those before them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientCaError {
    /// It does not read.
    #[error("it holds no certificates in PEM: {0}")]
    Pem(#[source] rustls_pki_types::pem::Error),
    /// One of the certificates cannot be an authority.
    #[error("a certificate in it cannot be trusted: {0}")]
    Authority(#[source] rustls::Error),
    /// There is none.
    #[error("it holds nothing that could be trusted: {0}")]
    Verifier(#[from] VerifierBuilderError),
}

/// The certificate of a caller, which an authority of [`ClientCa`] has issued: an extension of each request of its
/// connection.
#[derive(Clone, Debug)]
pub struct ClientCertificate(Arc<CertificateDer<'static>>);

impl ClientCertificate {
    pub(crate) fn of(chain: Option<&[CertificateDer<'static>]>) -> Option<Self> {
        Some(Self(Arc::new(chain?.first()?.clone())))
    }

    /// The certificate, in DER.
    pub fn der(&self) -> &[u8] {
        &self.0
    }
}

impl ClientCa {
    /// The authorities in this PEM.
    ///
    /// # Errors
    /// When it does not read, or holds no authority.
    pub fn new(provider: Arc<CryptoProvider>, ca_pem: &[u8]) -> Result<Self, ClientCaError> {
        let verifier = ArcSwap::from_pointee(verifier(&provider, ca_pem)?);
        Ok(Self { provider, verifier })
    }

    /// Has callers of new connections checked by these authorities instead.
    ///
    /// # Errors
    /// When the PEM does not read, or holds no authority: those before it stay.
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
