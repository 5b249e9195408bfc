//! Reading certificates.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use aws_lc_rs::digest;
use jiff::Timestamp;
use rcgen::KeyPair;
use rustls_pki_types::pem::{Error as PemError, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry;
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::time::ASN1Time;

use crate::PkiError;

/// The parsed fields of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Certificate {
    /// Subject CN; empty when there is none.
    pub common_name: String,
    /// Subject O, in order.
    pub organizations: Vec<String>,
    /// DNS subject alternative names.
    pub dns_names: Vec<String>,
    /// IP subject alternative names.
    pub ip_addresses: Vec<IpAddr>,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
    /// Whether it may sign others (basic constraints).
    pub is_ca: bool,
    /// SHA-256 over the DER, lowercase hex.
    pub fingerprint: String,
    /// Properties that make it easier to forge than it should be, or keep clients from accepting it: a short key, a
    /// weak signature, an authority without the usage to sign. One sentence each.
    pub weaknesses: Vec<String>,
}

/// The fingerprints (SHA-256, lowercase hex) of every certificate in a PEM bundle: two bundles that trust the same
/// authorities have equal sets, whatever their order, comments and line ends.
pub fn bundle_fingerprints(pem: &[u8]) -> Result<BTreeSet<String>, PkiError> {
    Ok(parse_pem(pem)?.iter().map(|der| fingerprint(der)).collect())
}

impl Certificate {
    /// Reads the first certificate of a PEM text: the leaf of a chain.
    pub fn from_pem(pem: &[u8]) -> Result<Self, PkiError> {
        Self::from_der(&parse_pem(pem)?[0])
    }

    /// Reads every certificate of a PEM text, at least one.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, PkiError> {
        parse_pem(pem)?.iter().map(|der| Self::from_der(der)).collect()
    }

    /// Reads a DER certificate.
    pub fn from_der(der: &[u8]) -> Result<Self, PkiError> {
        let x509 = parse(der)?;
        let mut names = (Vec::new(), Vec::new());
        if let Ok(Some(extension)) = x509.subject_alternative_name() {
            for name in &extension.value.general_names {
                match name {
                    GeneralName::DNSName(dns) => names.0.push((*dns).to_owned()),
                    GeneralName::IPAddress(bytes) => names.1.extend(ip(bytes)),
                    _ => {}
                }
            }
        }
        let text =
            |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
        Ok(Self {
            common_name: x509.subject().iter_common_name().find_map(text).unwrap_or_default(),
            organizations: x509.subject().iter_organization().filter_map(text).collect(),
            dns_names: names.0,
            ip_addresses: names.1,
            not_before: timestamp(x509.validity().not_before)?,
            not_after: timestamp(x509.validity().not_after)?,
            is_ca: x509.is_ca(),
            fingerprint: fingerprint(der),
            weaknesses: weaknesses(&x509),
        })
    }
}

/// The bits that an RSA key has at least.
const RSA_BITS: usize = 2048;

fn weaknesses(x509: &X509Certificate<'_>) -> Vec<String> {
    let mut weaknesses = Vec::new();
    if let Ok(PublicKey::RSA(key)) = x509.public_key().parsed()
        && (1..RSA_BITS).contains(&key.key_size())
    {
        weaknesses.push(format!("its RSA key has {} bits, clients want {RSA_BITS} at least", key.key_size()));
    }
    let signature = &x509.signature_algorithm.algorithm;
    // An authority's signature on itself proves nothing, so it is not checked.
    let checked = x509.subject().as_raw() != x509.issuer().as_raw();
    for (weak, name) in [(oid_registry::OID_PKCS1_SHA1WITHRSA, "SHA-1"), (oid_registry::OID_PKCS1_MD5WITHRSAENC, "MD5")]
    {
        if checked && *signature == weak {
            weaknesses.push(format!("it is signed with {name}, which clients do not accept"));
        }
    }
    let usage = x509.key_usage().ok().flatten();
    if x509.is_ca() && usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        weaknesses.push("it is a CA whose key usage does not let it sign (keyCertSign)".to_owned());
    }
    weaknesses
}

/// Every certificate of a PEM text, at least one.
pub(crate) fn parse_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let found = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| PkiError::Certificate(e.to_string()))?;
    if found.is_empty() {
        return Err(PkiError::Certificate("no CERTIFICATE block in the PEM text".to_owned()));
    }
    Ok(found)
}

/// The first private key of a PEM text. Other blocks before it are skipped, as Go does: `openssl ecparam -genkey`
/// writes the curve there, others the certificate.
pub(crate) fn parse_key(pem: &[u8]) -> Result<KeyPair, String> {
    let der = PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        PemError::NoItemsFound => "it holds no private key in PEM, or one with a passphrase".to_owned(),
        error => error.to_string(),
    })?;
    KeyPair::try_from(&der).map_err(|error| error.to_string())
}

pub(crate) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, PkiError> {
    match X509Certificate::from_der(der) {
        Ok(([], x509)) => Ok(x509),
        Ok(_) => Err(PkiError::Certificate("bytes follow the certificate".to_owned())),
        Err(e) => Err(PkiError::Certificate(e.to_string())),
    }
}

/// The bare public key: what rcgen shows of a key pair too, so that the two can be compared.
pub(crate) fn spki(der: &[u8]) -> Result<Vec<u8>, PkiError> {
    Ok(parse(der)?.public_key().subject_public_key.data.to_vec())
}

pub(crate) fn timestamp(time: ASN1Time) -> Result<Timestamp, PkiError> {
    Timestamp::from_second(time.timestamp()).map_err(|e| PkiError::Certificate(e.to_string()))
}

fn fingerprint(der: &[u8]) -> String {
    digest::digest(&digest::SHA256, der).as_ref().iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}
