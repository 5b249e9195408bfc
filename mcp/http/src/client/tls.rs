//! TLS of the calls to one server: whom the client trusts and who it is.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, ExtendedKeyPurpose, OtherError, RootCertStore,
    SignatureScheme,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::TlsFile;

/// The content of a client's files.
pub(super) struct Material {
    /// The only roots that are trusted; `None` means the system's.
    pub(super) ca: Option<Vec<u8>>,
    /// The client certificate and its key.
    pub(super) pair: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether the server's certificate is not checked.
    pub(super) insecure: bool,
}

/// A file and what is wrong with it.
pub(super) type Problem = (TlsFile, String);

/// The client's side of TLS, version 1.2 or newer.
pub(super) fn config(material: &Material, provider: &Arc<CryptoProvider>) -> Result<ClientConfig, Problem> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| (TlsFile::Ca, error.to_string()))?;
    let trust = if material.insecure {
        Trust::Any
    } else {
        chains(material.ca.as_deref(), provider).map_err(|problem| (TlsFile::Ca, problem))?
    };
    let verifier = Arc::new(Verifier { algorithms: provider.signature_verification_algorithms, trust });
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let Some((certificate, key)) = &material.pair else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(certificate).map_err(|problem| (TlsFile::Certificate, problem))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| (TlsFile::Key, error.to_string()))?;
    // Refuses a key that does not belong to the certificate.
    builder.with_client_auth_cert(chain, key).map_err(|error| (TlsFile::Key, error.to_string()))
}

/// Trusts what the certificates of `ca` have signed, and them; without `ca`, what the system's roots have signed.
fn chains(ca: Option<&[u8]>, provider: &Arc<CryptoProvider>) -> Result<Trust, String> {
    let mut roots = RootCertStore::empty();
    let given = ca.map(|pem| authorities(pem, &mut roots)).transpose()?.unwrap_or_default();
    if ca.is_none() {
        // The platform's roots and not a compiled-in list: an image or a cluster adds its own authority to them, and
        // they are renewed without a new proxy.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("is not set, and the system has no root certificates".to_owned());
        }
    }
    let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| error.to_string())?;
    Ok(Trust::Chains { authorities, given })
}

/// Adds the certificates in `pem` to `roots` and returns them. An entry that cannot be used is left out with a warning,
/// as Go does.
fn authorities(pem: &[u8], roots: &mut RootCertStore) -> Result<Vec<CertificateDer<'static>>, String> {
    let (mut given, mut entries) = (Vec::new(), 0);
    for (index, entry) in CertificateDer::pem_slice_iter(pem).enumerate() {
        entries = index + 1;
        // The reader may quote what it cannot read.
        let entry = entry.map_err(|_| "it is not PEM".to_owned());
        let added = entry.and_then(|certificate: CertificateDer<'static>| {
            roots.add(certificate.clone()).map_err(|error| error.to_string())?;
            Ok(certificate)
        });
        match added {
            Ok(certificate) => given.push(certificate),
            Err(problem) => tracing::warn!(entry = entries, problem, "left a certificate of the CA bundle out"),
        }
    }
    match (given.is_empty(), entries) {
        (false, _) => Ok(given),
        (true, 0) => Err("holds no PEM certificate".to_owned()),
        (true, _) => Err("holds no certificate that can be used".to_owned()),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    if certificates.is_empty() { Err("holds no PEM certificate".to_owned()) } else { Ok(certificates) }
}

/// Checks the server's certificate as far as `trust` says, and always that the server has the key of the certificate it
/// shows.
#[derive(Debug)]
struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    trust: Trust,
}

/// Which certificates are trusted.
#[derive(Debug)]
enum Trust {
    /// Any.
    Any,
    /// Trusts certificates that the authorities have signed and, as Go does, the `given` certificates themselves: none
    /// where the authorities are the system's.
    ///
    /// webpki takes no authority for a server. `openssl req -x509` makes certificates that are both, and so do
    /// self-signed issuers.
    Chains { authorities: Arc<WebPkiServerVerifier>, given: Vec<CertificateDer<'static>> },
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.trust {
            Trust::Any => Ok(ServerCertVerified::assertion()),
            Trust::Chains { given, .. } if given.contains(end_entity) => verify_given(end_entity, server_name, now),
            Trust::Chains { authorities, .. } => {
                let verified =
                    authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
                verified.map_err(in_words)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The error about a server that shows an authority's certificate, in a sentence: that of webpki is a name in its code.
fn in_words(error: rustls::Error) -> rustls::Error {
    match &error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(cause)))
            if cause.to_string() == "CaUsedAsEndEntity" =>
        {
            let sentence: Box<dyn std::error::Error + Send + Sync> =
                "the server shows a CA certificate; issue one with CA:FALSE, or put it into the CA bundle".into();
            rustls::Error::Other(OtherError(sentence.into()))
        }
        _ => error,
    }
}

/// Checks a certificate that is trusted by itself: for which server, when and for what it is valid (Go's
/// `Certificate.Verify` with the certificate among its roots).
fn verify_given(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, rustls::Error> {
    // Refuses critical extensions that it does not know.
    verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
    let (_, x509) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let time = |time: x509_parser::time::ASN1Time| UnixTime::since_unix_epoch(seconds(time.timestamp()));
    let (not_before, not_after) = (time(x509.validity().not_before), time(x509.validity().not_after));
    if now < not_before {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    // A certificate without extended key usages may do anything.
    let usage = x509.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_some_and(|usage| !usage.value.any && !usage.value.server_auth) {
        let purpose =
            CertificateError::InvalidPurposeContext { required: ExtendedKeyPurpose::ServerAuth, presented: Vec::new() };
        return Err(purpose.into());
    }
    Ok(ServerCertVerified::assertion())
}

fn seconds(timestamp: i64) -> std::time::Duration {
    std::time::Duration::from_secs(timestamp.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
-----BEGIN CERTIFICATE-----
MIIBejCCAR+gAwIBAgIUU3vVVpI2m7bQe6r9ZC7G7o/615swCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHdGVzdCBjYTAeFw0yNjExMjcwNDMxNDVaFw0yNjEyMjcwNDMx
NDVaMBIxEDAOBgNVBAMMB3Rlc3QgY2EwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AASu3fhw8mzfdZlRv/WsvgsMXr7q5R4Spe07IprLPMz52ualj8Hwc4E4AdfZ6zN3
c99lJRLF7OpLWUPqNQgTb2rSo1MwUTAdBgNVHQ4EFgQU6eejKxVS/PR3tQPOVb8o
vOw2LHAwHwYDVR0jBBgwFoAU6eejKxVS/PR3tQPOVb8ovOw2LHAwDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEA0IqYUcGqwxTfjk9nh52QoJ1NfhJu
4JNKDFMcB4Z8qcACIQCscYbcpBPfTxMRYakPna5WAH/lz9zUQSqEhmARCPqZrQ==
-----END CERTIFICATE-----
";
    const NO_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\ndGhpcyBpcyBub25l\n-----END CERTIFICATE-----\n";
    const NO_BASE64: &str = "-----BEGIN CERTIFICATE-----\n%%%%\n-----END CERTIFICATE-----\n";

    #[test]
    fn an_authority_that_is_shown_by_a_server_is_named() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let Ok(Trust::Chains { authorities, .. }) = chains(Some(GOOD.as_bytes()), &provider) else {
            panic!("no trust")
        };
        // As with the system's roots.
        let trust = Trust::Chains { authorities, given: Vec::new() };
        let verifier = Verifier { algorithms: provider.signature_verification_algorithms, trust };
        let shown = CertificateDer::from_pem_slice(GOOD.as_bytes()).unwrap();
        let (name, now) =
            (ServerName::try_from("webhook").unwrap(), UnixTime::since_unix_epoch(seconds(1_795_900_000)));
        let error = verifier.verify_server_cert(&shown, &[], &name, &[], now).unwrap_err().to_string();
        assert!(
            error.ends_with("shows a CA certificate; issue one with CA:FALSE, or put it into the CA bundle"),
            "{error}"
        );
    }

    #[test]
    fn one_bad_entry_of_a_ca_bundle_does_not_spoil_the_rest() {
        for (bundle, used) in [
            (format!("{NO_CERTIFICATE}{GOOD}"), Some(1)),
            (format!("{GOOD}{NO_BASE64}{GOOD}"), Some(2)),
            (format!("a comment\n{GOOD}"), Some(1)),
            (format!("{NO_BASE64}{NO_CERTIFICATE}"), None),
            (String::new(), None),
        ] {
            let given = authorities(bundle.as_bytes(), &mut RootCertStore::empty());
            assert_eq!(given.ok().map(|given| given.len()), used, "{bundle}");
        }
    }
}
