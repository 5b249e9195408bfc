//! Whether callers that trust a bundle accept a chain, and why not.

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;

use crate::certificate::{parse, parse_pem, timestamp};

/// The most intermediate certificates followed from a leaf to an authority.
const MAX_INTERMEDIATES: usize = 8;

/// Why callers that trust a bundle refuse a certificate; each says in one sentence what is wrong.
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
    /// What the bundle holds under the issuer's name may not sign.
    #[error("'{issuer}' in the CA bundle is not a CA (basic constraints say CA:FALSE, or nothing)")]
    NotACa {
        /// The issuer's name.
        issuer: String,
    },
    /// What the bundle holds under the issuer's name may not sign.
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

/// Checks that callers which trust `ca_pem`, and nothing else, accept the chain (leaf first) at `now`: an authority of the
/// bundle has signed it, directly or over the chain's intermediates, or the bundle holds the leaf itself. Of the leaf
/// itself nothing else is checked; see [`check_server_pair`](crate::check_server_pair).
///
/// # Errors
/// The problem of the authority that comes closest.
pub fn check_trust(chain_pem: &[u8], ca_pem: &[u8], now: Timestamp) -> Result<(), TrustProblem> {
    if ca_pem.iter().all(u8::is_ascii_whitespace) {
        return Err(TrustProblem::Empty);
    }
    let chain = parse_pem(chain_pem).map_err(|error| TrustProblem::Certificate(error.to_string()))?;
    let roots = parse_pem(ca_pem).map_err(|error| TrustProblem::Bundle(error.to_string()))?;
    // A bundle is read whole or not at all: one that is cut off must not pass for what is left of it.
    let parsed = roots.iter().map(|der| parse(der)).collect::<Result<Vec<_>, _>>();
    let parsed = parsed.map_err(|error| TrustProblem::Bundle(error.to_string()))?;
    if roots.contains(&chain[0]) {
        return Ok(());
    }
    let mut current = &chain[0];
    let mut closest = None;
    for _ in 0..=MAX_INTERMEDIATES {
        let read = |der| parse(der).map_err(|error| TrustProblem::Certificate(error.to_string()));
        let certificate = read(current)?;
        match signer(&certificate, &parsed, now) {
            Ok(()) => return Ok(()),
            Err(problem) => {
                closest = closest.filter(|_| matches!(problem, TrustProblem::Foreign { .. })).or(Some(problem))
            }
        }
        let next = chain[1..].iter().find(|next| {
            let usable = |next: &CertificateDer<'_>| signed_by(&certificate, &parse(next).ok()?, now).ok();
            *next != current && usable(next).is_some()
        });
        match next {
            Some(next) => current = next,
            None => break,
        }
    }
    Err(closest.unwrap_or(TrustProblem::Empty))
}

/// Whether one of the authorities has signed the certificate; the problem of the one that comes closest if not.
fn signer(
    certificate: &X509Certificate<'_>,
    authorities: &[X509Certificate<'_>],
    now: Timestamp,
) -> Result<(), TrustProblem> {
    let issuer = certificate.issuer();
    let named = authorities.iter().filter(|ca| ca.subject().as_raw() == issuer.as_raw());
    let mut closest = TrustProblem::Foreign {
        issuer: issuer.to_string(),
        held: authorities.iter().map(|ca| format!("'{}'", ca.subject())).collect(),
    };
    for ca in named {
        match signed_by(certificate, ca, now) {
            Ok(()) => return Ok(()),
            Err(problem) => {
                // Of several with the issuer's name, the one with the right key says most.
                if !matches!(problem, TrustProblem::OtherKey { .. }) || matches!(closest, TrustProblem::Foreign { .. })
                {
                    closest = problem;
                }
            }
        }
    }
    Err(closest)
}

/// Whether this authority has signed the certificate and may, now.
fn signed_by(certificate: &X509Certificate<'_>, ca: &X509Certificate<'_>, now: Timestamp) -> Result<(), TrustProblem> {
    let issuer = ca.subject().to_string();
    if ca.subject().as_raw() != certificate.issuer().as_raw() {
        return Err(TrustProblem::Foreign {
            issuer: certificate.issuer().to_string(),
            held: vec![format!("'{issuer}'")],
        });
    }
    if certificate.verify_signature(Some(ca.public_key())).is_err() {
        return Err(TrustProblem::OtherKey { issuer });
    }
    if !ca.is_ca() {
        return Err(TrustProblem::NotACa { issuer });
    }
    if let Ok(Some(usage)) = ca.key_usage()
        && !usage.value.key_cert_sign()
    {
        return Err(TrustProblem::MayNotSign { issuer });
    }
    if let Ok(Some(usage)) = ca.extended_key_usage()
        && !usage.value.any
        && !usage.value.server_auth
    {
        return Err(TrustProblem::NotForServers { issuer });
    }
    let unreadable = |error: crate::PkiError| TrustProblem::Bundle(error.to_string());
    let not_before = timestamp(ca.validity().not_before).map_err(unreadable)?;
    let not_after = timestamp(ca.validity().not_after).map_err(unreadable)?;
    if now < not_before {
        return Err(TrustProblem::NotYetValid { issuer, not_before });
    }
    if now > not_after {
        return Err(TrustProblem::Expired { issuer, not_after });
    }
    Ok(())
}
