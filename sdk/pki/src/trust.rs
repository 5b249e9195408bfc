//! Checks whether callers that trust a bundle accept a chain.
//!
//! The callers are API servers, so the rules are those of Go's `crypto/x509` (1.25), each cited where it is applied:
//! `Certificate.Verify` tries every way from the leaf over the intermediates to a root,
//! `Certificate.CheckSignatureFrom` checks that each signer has signed and may sign, and `Certificate.isValid` its
//! usage, validity and path length. Name constraints, unknown extensions and weak signatures are not checked: a TLS
//! handshake finds those.

use std::collections::VecDeque;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;

use crate::PkiError;
use crate::certificate::{Certificate, parse, parse_pem, timestamp};

/// The largest number of intermediate certificates that are tried. Go tries 100 signatures.
const MAX_INTERMEDIATES: usize = 8;

/// The reason why callers that trust a bundle refuse a certificate, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrustProblem {
    /// There is no bundle.
    #[error("the CA bundle is empty")]
    Empty,
    /// The bundle's PEM cannot be read.
    #[error("the CA bundle cannot be read: {0}")]
    Bundle(String),
    /// The certificate's PEM cannot be read.
    #[error("the certificate cannot be read: {0}")]
    Certificate(String),
    /// Nothing in the bundle bears the issuer's name.
    #[error("the CA bundle does not hold the issuer of the certificate, '{issuer}' (it holds: {})", held.join(", "))]
    Foreign {
        /// The issuer that the last certificate of the chain names.
        issuer: String,
        /// The subjects of what the bundle holds.
        held: Vec<String>,
    },
    /// The bundle holds an authority of the issuer's name, which has another key.
    #[error("the CA bundle holds a '{issuer}' with another key than the one that signed the certificate")]
    OtherKey {
        /// The issuer's name.
        issuer: String,
    },
    /// The bundle holds a certificate under the issuer's name that is not a CA.
    #[error("'{issuer}' in the CA bundle is not a CA (basic constraints say CA:FALSE, or nothing)")]
    NotACa {
        /// The issuer's name.
        issuer: String,
    },
    /// The bundle holds a CA under the issuer's name that may not sign certificates.
    #[error("the CA '{issuer}' may not sign certificates (no 'certificate sign' in its key usage)")]
    MayNotSign {
        /// The issuer's name.
        issuer: String,
    },
    /// The authority may not sign for servers.
    #[error("the CA '{issuer}' may not sign for servers (no 'TLS server' in its extended key usage)")]
    NotForServers {
        /// The issuer's name.
        issuer: String,
    },
    /// There are more intermediate certificates between the authority and the leaf than it allows.
    #[error(
        "the CA '{issuer}' does not allow {intermediates} intermediate certificates below it (path length constraint)"
    )]
    TooManyIntermediates {
        /// The issuer's name.
        issuer: String,
        /// The number of intermediate certificates.
        intermediates: usize,
    },
    /// The authority's validity lies in the past.
    #[error("the CA '{issuer}' expired at {not_after}")]
    Expired {
        /// The issuer's name.
        issuer: String,
        /// End of validity.
        not_after: Timestamp,
    },
    /// The authority's validity lies in the future.
    #[error("the CA '{issuer}' is not valid before {not_before}")]
    NotYetValid {
        /// The issuer's name.
        issuer: String,
        /// Start of validity.
        not_before: Timestamp,
    },
}

impl TrustProblem {
    /// Ranks problems: the one closest to trust is the most useful.
    fn closeness(&self) -> u8 {
        match self {
            Self::Foreign { .. } => 0,
            Self::OtherKey { .. } => 1,
            _ => 2,
        }
    }
}

/// Checks that callers which trust `ca_pem`, and nothing else, accept the chain (leaf first) at `now`: an authority of
/// the bundle has signed it, directly or via the chain's intermediates, or the bundle holds the leaf itself. Nothing
/// else of the leaf is checked; see [`check_server_pair`](crate::check_server_pair). Returns the certificate that they
/// trust it by.
///
/// # Errors
/// The problem of the authority that comes closest.
pub fn check_trust(chain_pem: &[u8], ca_pem: &[u8], now: Timestamp) -> Result<Certificate, TrustProblem> {
    if ca_pem.iter().all(u8::is_ascii_whitespace) {
        return Err(TrustProblem::Empty);
    }
    let chain = parse_pem(chain_pem).map_err(unreadable_chain)?;
    let roots = parse_pem(ca_pem).map_err(unreadable_bundle)?;
    verify(&chain, &roots, now)
}

/// Finds the shortest path from the leaf to a root (Go's `Certificate.Verify` and `buildChains`).
pub(crate) fn verify(
    chain: &[CertificateDer<'_>],
    roots: &[CertificateDer<'_>],
    now: Timestamp,
) -> Result<Certificate, TrustProblem> {
    let leaf = parse(&chain[0]).map_err(unreadable_chain)?;
    // A bundle is read completely or not at all: a truncated one must not count as its remainder.
    let authorities: Vec<_> =
        roots.iter().map(|der| parse(der)).collect::<Result<_, _>>().map_err(unreadable_bundle)?;
    if roots.contains(&chain[0]) {
        return Certificate::from_der(&chain[0]).map_err(unreadable_bundle);
    }
    // Intermediates that cannot be read are skipped.
    let intermediates = chain[1..].iter().take(MAX_INTERMEDIATES);
    let mut untried: Vec<_> = intermediates.filter_map(|der| parse(der).ok()).collect();
    let held = || authorities.iter().map(|ca| format!("'{}'", ca.subject())).collect();
    let mut closest: Option<TrustProblem> = None;
    // Each certificate is reached once, with as few others below it as can be.
    let mut reached = VecDeque::from([(leaf, 0)]);
    while let Some((certificate, below)) = reached.pop_front() {
        let issuer = certificate.issuer();
        let mut problems = vec![TrustProblem::Foreign { issuer: issuer.to_string(), held: held() }];
        for (der, ca) in roots.iter().zip(&authorities).filter(|(_, ca)| ca.subject().as_raw() == issuer.as_raw()) {
            match accepts(ca, &certificate, below, now) {
                Ok(()) => return Certificate::from_der(der).map_err(unreadable_bundle),
                Err(problem) => problems.push(problem),
            }
        }
        closest = closest.into_iter().chain(problems).max_by_key(TrustProblem::closeness);
        let (signers, others) =
            untried.into_iter().partition::<Vec<_>, _>(|next| accepts(next, &certificate, below, now).is_ok());
        untried = others;
        reached.extend(signers.into_iter().map(|signer| (signer, below + 1)));
    }
    Err(closest.unwrap_or(TrustProblem::Empty))
}

/// Whether this authority verifies the certificate at `now`, which has so many intermediates below it.
fn accepts(
    ca: &X509Certificate<'_>,
    certificate: &X509Certificate<'_>,
    below: usize,
    now: Timestamp,
) -> Result<(), TrustProblem> {
    signed_by(certificate, ca)?;
    let issuer = ca.subject().to_string();
    // isValid: an extended key usage, also of a root, names what all below it may be used for.
    if let Ok(Some(usage)) = ca.extended_key_usage()
        && !usage.value.any
        && !usage.value.server_auth
    {
        return Err(TrustProblem::NotForServers { issuer });
    }
    // isValid: MaxPathLen.
    if let Ok(Some(constraints)) = ca.basic_constraints()
        && constraints.value.path_len_constraint.is_some_and(|most| u64::from(most) < below as u64)
    {
        return Err(TrustProblem::TooManyIntermediates { issuer, intermediates: below });
    }
    // isValid: both ends belong to the validity.
    let not_before = timestamp(ca.validity().not_before).map_err(unreadable_bundle)?;
    let not_after = timestamp(ca.validity().not_after).map_err(unreadable_bundle)?;
    if now < not_before {
        return Err(TrustProblem::NotYetValid { issuer, not_before });
    }
    if now > not_after {
        return Err(TrustProblem::Expired { issuer, not_after });
    }
    Ok(())
}

/// Whether this authority has signed the certificate, and may sign (Go's `Certificate.CheckSignatureFrom`).
pub(crate) fn signed_by(certificate: &X509Certificate<'_>, ca: &X509Certificate<'_>) -> Result<(), TrustProblem> {
    let issuer = ca.subject().to_string();
    // isValid: names are compared byte for byte.
    if ca.subject().as_raw() != certificate.issuer().as_raw() {
        let held = vec![format!("'{issuer}'")];
        return Err(TrustProblem::Foreign { issuer: certificate.issuer().to_string(), held });
    }
    if certificate.verify_signature(Some(ca.public_key())).is_err() {
        return Err(TrustProblem::OtherKey { issuer });
    }
    // Go lets a root of version 1 sign, which has no basic constraints. They are not issued any more.
    if !ca.is_ca() {
        return Err(TrustProblem::NotACa { issuer });
    }
    // A CA without key usages may do anything.
    if let Ok(Some(usage)) = ca.key_usage()
        && !usage.value.key_cert_sign()
    {
        return Err(TrustProblem::MayNotSign { issuer });
    }
    Ok(())
}

fn unreadable_chain(error: PkiError) -> TrustProblem {
    TrustProblem::Certificate(error.to_string())
}

fn unreadable_bundle(error: PkiError) -> TrustProblem {
    TrustProblem::Bundle(error.to_string())
}

#[cfg(test)]
mod tests;
