//! Certificates that callers trust.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use pem::{EncodeConfig, LineEnding, Pem};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::{Ca, Certificate, check_trust};

/// The most certificates that are taken from one stored text.
const MAX_ANCHORS: usize = 16;

/// An authority's certificate, without its key: what callers trust.
#[derive(Clone, PartialEq, Eq)]
pub struct Anchor {
    certificate: Certificate,
    der: CertificateDer<'static>,
}

impl fmt::Debug for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Anchor").field(&self.certificate).finish()
    }
}

impl From<&Ca> for Anchor {
    fn from(ca: &Ca) -> Self {
        Self { certificate: ca.certificate().clone(), der: CertificateDer::from(ca.der().to_vec()) }
    }
}

impl Anchor {
    /// Reads the authorities in a PEM text that are valid at `now`. Other certificates are skipped; reading stops at
    /// the first one that cannot be read.
    pub fn read(pem: &[u8], now: Timestamp) -> Vec<Self> {
        let ders = CertificateDer::pem_slice_iter(pem).take(MAX_ANCHORS).map_while(Result::ok);
        let anchors = ders.filter_map(|der| Some(Self { certificate: Certificate::from_der(&der).ok()?, der }));
        anchors.filter(|anchor| anchor.certificate.is_ca && anchor.is_valid(now)).collect()
    }

    /// The parsed certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Whether callers that trust only this authority accept the chain `cert_pem` (leaf first) at `now`.
    pub fn verifies(&self, cert_pem: &[u8], now: Timestamp) -> bool {
        check_trust(cert_pem, self.pem().as_bytes(), now).is_ok()
    }

    /// The certificate in PEM.
    pub fn pem(&self) -> String {
        let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
        pem::encode_config(&Pem::new("CERTIFICATE", self.der.to_vec()), lines)
    }

    fn is_valid(&self, now: Timestamp) -> bool {
        self.certificate.not_before <= now && now <= self.certificate.not_after
    }
}

/// One PEM text with these authorities, each once. The same authorities make the same bytes, whatever their order was.
pub fn bundle<'a>(anchors: impl IntoIterator<Item = &'a Anchor>) -> String {
    let sorted: BTreeMap<_, _> = anchors.into_iter().map(|anchor| (&anchor.certificate.fingerprint, anchor)).collect();
    sorted.values().map(|anchor| anchor.pem()).collect()
}
