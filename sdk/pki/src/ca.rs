//! Certificate authorities, and the certificates that they issue.

use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use rcgen::{BasicConstraints, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls_pki_types::CertificateDer;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Name;

use crate::PkiError;
use crate::certificate::{Certificate, parse, parse_key, parse_pem};
use crate::trust::{TrustProblem, signed_by};

/// id-at-organizationName (RFC 5280 appendix A.1).
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// The use of a certificate (extended key usage, RFC 5280 §4.2.1.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Usage {
    /// A TLS server.
    Server,
    /// A TLS client.
    Client,
    /// Either side: peers that call each other.
    Both,
}

/// The content of a leaf certificate to issue.
#[derive(Debug, Clone, Copy)]
pub struct CertificateParams<'a> {
    /// Subject CN, at most 64 characters; left out when empty. Kubernetes reads it as the user's name of a client
    /// certificate; servers are known by `dns_names`.
    pub common_name: &'a str,
    /// Subject O, two at most. Kubernetes reads them as the groups of a client certificate.
    pub organizations: &'a [&'a str],
    /// DNS subject alternative names; `*.` may lead.
    pub dns_names: &'a [String],
    /// IP subject alternative names.
    pub ip_addresses: &'a [IpAddr],
    /// Start of validity, to the second.
    pub not_before: Timestamp,
    /// End of validity, to the second.
    pub not_after: Timestamp,
    /// The use of the certificate.
    pub usage: Usage,
}

/// A certificate and its private key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub cert_pem: String,
    /// The private key (PKCS #8).
    pub key_pem: String,
}

/// A certificate authority: a self-signed certificate and its key.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
    der: CertificateDer<'static>,
    cert_pem: String,
    key_pem: String,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("cert_pem", &self.cert_pem).finish_non_exhaustive()
    }
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Ca {
    /// Generates an authority with a new key. It may sign leaves only, no further authorities.
    pub fn generate(common_name: &str, not_before: Timestamp, not_after: Timestamp) -> Result<Self, PkiError> {
        let key = KeyPair::generate().map_err(issue)?;
        let mut params = validity(not_before, not_after)?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let cert_pem = params.self_signed(&key).map_err(issue)?.pem();
        let key_pem = key.serialize_pem();
        Self::from_pem(&cert_pem, &key_pem)
    }

    /// Loads a stored authority. The certificate must be a CA's and the key must belong to it; whether it is still
    /// valid is for the caller to check ([`Ca::certificate`] has the times).
    pub fn from_pem(cert_pem: &str, key_pem: &str) -> Result<Self, PkiError> {
        let key = parse_key(key_pem.as_bytes()).map_err(PkiError::Key)?;
        let der = parse_pem(cert_pem.as_bytes())?.swap_remove(0);
        let certificate = Certificate::from_der(&der)?;
        if !certificate.is_ca {
            return Err(PkiError::NotACa(certificate.common_name));
        }
        if !can_be_written_again(parse(&der)?.subject()) {
            return Err(strange_subject());
        }
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|e| PkiError::Certificate(e.to_string()))?;
        issues_what_verifies(&issuer, &der)?;
        Ok(Self { issuer, certificate, der, cert_pem: cert_pem.to_owned(), key_pem: key_pem.to_owned() })
    }

    /// The authority's certificate, PEM: what clients trust.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// The authority's private key, PEM (PKCS #8). Store it as a secret; never log it.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// The authority's certificate, parsed: validity, name and fingerprint.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Issues a certificate with a new key.
    pub fn issue(&self, wanted: &CertificateParams<'_>) -> Result<Pair, PkiError> {
        let key = KeyPair::generate().map_err(issue)?;
        let mut params = validity(wanted.not_before, wanted.not_after)?;
        // rcgen keeps one value of each type. The second organization has the same type, given by its number.
        let types = [DnType::OrganizationName, DnType::CustomDnType(ORGANIZATION.to_vec())];
        if wanted.organizations.len() > types.len() {
            return Err(PkiError::Issue("a subject has two organizations at most".into()));
        }
        for (kind, organization) in types.into_iter().zip(wanted.organizations) {
            params.distinguished_name.push(kind, *organization);
        }
        if !wanted.common_name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, wanted.common_name);
        }
        for name in wanted.dns_names {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into().map_err(issue)?));
        }
        params.subject_alt_names.extend(wanted.ip_addresses.iter().copied().map(SanType::IpAddress));
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match wanted.usage {
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Both => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        let cert_pem = params.signed_by(&key, &self.issuer).map_err(issue)?.pem();
        Ok(Pair { cert_pem, key_pem: key.serialize_pem() })
    }
}

/// Whether rcgen can write the attribute types of a name: for others (2.40 and above) its reader returns invalid
/// identifiers, and its writer panics. No real CA uses them.
fn can_be_written_again(name: &X509Name<'_>) -> bool {
    name.iter_attributes().all(|part| part.attr_type().as_bytes().first().is_some_and(|first| *first < 120))
}

fn strange_subject() -> PkiError {
    PkiError::Certificate("its subject has a form that issued certificates cannot repeat".to_owned())
}

/// Issues a certificate for the authority's own key, and checks that it verifies under the authority's certificate: a
/// damaged one may have a name that is not written back unchanged, or a key of another algorithm.
fn issues_what_verifies(issuer: &Issuer<'static, KeyPair>, authority: &[u8]) -> Result<(), PkiError> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let trial = params.signed_by(issuer.key(), issuer).map_err(issue)?;
    signed_by(&parse(trial.der())?, &parse(authority)?).map_err(|problem| match problem {
        TrustProblem::Foreign { .. } => strange_subject(),
        TrustProblem::OtherKey { .. } => PkiError::KeyMismatch,
        problem => PkiError::Certificate(problem.to_string()),
    })
}

fn issue(error: rcgen::Error) -> PkiError {
    PkiError::Issue(Box::new(error))
}

/// Empty parameters with this validity.
fn validity(not_before: Timestamp, not_after: Timestamp) -> Result<rcgen::CertificateParams, PkiError> {
    let outside = || PkiError::Validity { not_before, not_after };
    let at = |time: Timestamp| {
        let time = ASN1Time::from_timestamp(time.as_second()).map_err(|_| outside())?.to_datetime();
        if (1950..=9999).contains(&time.year()) { Ok(time) } else { Err(outside()) }
    };
    if not_before >= not_after {
        return Err(outside());
    }
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = at(not_before)?;
    params.not_after = at(not_after)?;
    Ok(params)
}
