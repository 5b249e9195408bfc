//! Checks whether a stored pair can be served.

use jiff::{SignedDuration, Timestamp};
use rcgen::PublicKeyData as _;

use crate::certificate::{Certificate, parse, parse_key, parse_pem, spki};
use crate::trust::{TrustProblem, verify};

/// The reason why a stored pair cannot be used, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PairProblem {
    /// The certificate PEM cannot be read.
    #[error("the certificate cannot be read: {0}")]
    Certificate(String),
    /// The key PEM cannot be read.
    #[error("the private key cannot be read: {0}")]
    Key(String),
    /// The CA bundle PEM cannot be read.
    #[error("the CA bundle cannot be read: {0}")]
    Bundle(String),
    /// Certificate and key do not belong together.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// Validity lies in the future.
    #[error("the certificate is not valid before {not_before}")]
    NotYetValid {
        /// Start of validity.
        not_before: Timestamp,
    },
    /// Validity lies in the past.
    #[error("the certificate expired at {not_after}")]
    Expired {
        /// End of validity.
        not_after: Timestamp,
    },
    /// Still valid, but for less time than asked.
    #[error("the certificate ends at {not_after}, in less than {} hours", min_left.as_hours())]
    EndsSoon {
        /// End of validity.
        not_after: Timestamp,
        /// The time that should have been left.
        min_left: SignedDuration,
    },
    /// A DNS name that clients use is not in the certificate.
    #[error("the certificate does not name '{name}' (it names: {})", has.join(", "))]
    MissingName {
        /// The name that clients use.
        name: String,
        /// The names that the certificate has.
        has: Vec<String>,
    },
    /// The certificate is an authority's, or made for clients only.
    #[error("the certificate is not one for servers (no 'TLS server' in its extended key usage, or a CA's)")]
    NotForServers,
    /// Callers that trust the bundle refuse the certificate.
    #[error("{0}")]
    Untrusted(TrustProblem),
}

/// Checks a server's certificate (or chain, leaf first), its key and the CA bundle that clients trust: the key
/// belongs to the leaf, the leaf is for servers and names every one of `dns_names`, it is valid at `now` and stays so
/// for longer than `min_left`, and callers that trust the bundle accept it ([`check_trust`](crate::check_trust)).
///
/// Returns what the leaf says, or the first problem found. The order goes from "unusable" to "usable for a while":
/// [`PairProblem::EndsSoon`] is returned only when nothing else is wrong, so a caller may go on serving on it.
pub fn check_server_pair(
    cert_pem: &[u8],
    key_pem: &[u8],
    ca_pem: &[u8],
    dns_names: &[String],
    now: Timestamp,
    min_left: SignedDuration,
) -> Result<Certificate, PairProblem> {
    let unreadable = |e: crate::PkiError| PairProblem::Certificate(e.to_string());
    let chain = parse_pem(cert_pem).map_err(unreadable)?;
    let leaf = Certificate::from_der(&chain[0]).map_err(unreadable)?;
    let key = parse_key(key_pem).map_err(PairProblem::Key)?;
    if spki(&chain[0]).map_err(unreadable)? != key.der_bytes() {
        return Err(PairProblem::KeyMismatch);
    }
    if leaf.is_ca || !serves(&chain[0]) {
        return Err(PairProblem::NotForServers);
    }
    if now < leaf.not_before {
        return Err(PairProblem::NotYetValid { not_before: leaf.not_before });
    }
    if now > leaf.not_after {
        return Err(PairProblem::Expired { not_after: leaf.not_after });
    }
    if let Some(name) = dns_names.iter().find(|name| !leaf.dns_names.iter().any(|has| covers(has, name))) {
        return Err(PairProblem::MissingName { name: name.clone(), has: leaf.dns_names });
    }
    let roots = parse_pem(ca_pem).map_err(|e| PairProblem::Bundle(e.to_string()))?;
    verify(&chain, &roots, now).map_err(|problem| match problem {
        TrustProblem::Bundle(problem) => PairProblem::Bundle(problem),
        problem => PairProblem::Untrusted(problem),
    })?;
    if leaf.not_after.duration_since(now) <= min_left {
        return Err(PairProblem::EndsSoon { not_after: leaf.not_after, min_left });
    }
    Ok(leaf)
}

/// Whether the extended key usage lets the certificate serve; a certificate without one may do anything.
fn serves(der: &[u8]) -> bool {
    let Ok(x509) = parse(der) else { return false };
    match x509.extended_key_usage() {
        Ok(None) => true,
        Ok(Some(usage)) => usage.value.any || usage.value.server_auth,
        Err(_) => false,
    }
}

/// RFC 6125 §6.4: equal without regard to case, or a wildcard that stands for exactly one leftmost label.
fn covers(has: &str, name: &str) -> bool {
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    if same(has, name) {
        return true;
    }
    match (has.strip_prefix("*."), name.split_once('.')) {
        (Some(parent), Some((label, rest))) => !label.is_empty() && same(parent, rest),
        _ => false,
    }
}
