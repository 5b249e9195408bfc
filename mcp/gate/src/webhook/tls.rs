//! TLS of the calls to one webhook: whom it trusts and who it is.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// What the files of a webhook's `tls_config` hold.
#[derive(Default)]
pub(crate) struct Material {
    /// The only roots that are trusted; `None` means the system's.
    pub(crate) ca: Option<Vec<u8>>,
    /// The client certificate and its key.
    pub(crate) pair: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether the server's certificate is not checked.
    pub(crate) insecure: bool,
}

/// A member of `tls_config` and what is wrong with its file.
pub(crate) type Problem = (&'static str, String);

/// The client's side of TLS, version 1.2 or newer.
pub(crate) fn config(material: &Material, provider: &Arc<CryptoProvider>) -> Result<ClientConfig, Problem> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| ("", error.to_string()))?;
    let builder = if material.insecure {
        let verifier = Unchecked(provider.signature_verification_algorithms);
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
    } else {
        builder.with_root_certificates(roots(material.ca.as_deref())?)
    };
    let Some((certificate, key)) = &material.pair else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(certificate).map_err(|problem| ("client_cert_path", problem))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| ("client_key_path", error.to_string()))?;
    // Refuses a key that does not belong to the certificate.
    builder.with_client_auth_cert(chain, key).map_err(|error| ("client_key_path", error.to_string()))
}

fn roots(ca: Option<&[u8]>) -> Result<RootCertStore, Problem> {
    let mut store = RootCertStore::empty();
    if let Some(ca) = ca {
        for certificate in certificates(ca).map_err(|problem| ("ca_bundle_path", problem))? {
            store.add(certificate).map_err(|error| ("ca_bundle_path", error.to_string()))?;
        }
        return Ok(store);
    }
    // The platform's roots and not a compiled-in list: an image or a cluster adds its own authority to them, and they
    // are renewed without a new proxy.
    let native = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(native.certs);
    if store.is_empty() {
        return Err(("ca_bundle_path", "is not set, and the system has no root certificates".to_owned()));
    }
    Ok(store)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    if certificates.is_empty() { Err("holds no PEM certificate".to_owned()) } else { Ok(certificates) }
}

/// `insecure_skip_verify`: takes any certificate, but the peer must have the key of the one it shows.
#[derive(Debug)]
struct Unchecked(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
