//! Whether callers that trust a bundle accept a chain, and why not.

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;

use crate::certificate::{Certificate, parse, parse_pem, timestamp};

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
/// itself nothing else is checked; see [`check_server_pair`](crate::check_server_pair). Returns what they trust it by.
///
/// # Errors
/// The problem of the authority that comes closest.
pub fn check_trust(chain_pem: &[u8], ca_pem: &[u8], now: Timestamp) -> Result<Certificate, TrustProblem> {
    if ca_pem.iter().all(u8::is_ascii_whitespace) {
        return Err(TrustProblem::Empty);
    }
    let chain = parse_pem(chain_pem).map_err(|error| TrustProblem::Certificate(error.to_string()))?;
    let roots = parse_pem(ca_pem).map_err(|error| TrustProblem::Bundle(error.to_string()))?;
    // A bundle is read whole or not at all: one that is cut off must not pass for what is left of it.
    let parsed = roots.iter().map(|der| parse(der)).collect::<Result<Vec<_>, _>>();
    let parsed = parsed.map_err(|error| TrustProblem::Bundle(error.to_string()))?;
    let unreadable = |error: crate::PkiError| TrustProblem::Bundle(error.to_string());
    if roots.contains(&chain[0]) {
        return Certificate::from_der(&chain[0]).map_err(unreadable);
    }
    let mut current = &chain[0];
    let mut closest = None;
    for _ in 0..=MAX_INTERMEDIATES {
        let read = |der| parse(der).map_err(|error| TrustProblem::Certificate(error.to_string()));
        let certificate = read(current)?;
        match signer(&certificate, &parsed, now) {
            Ok(at) => return Certificate::from_der(&roots[at]).map_err(unreadable),
            Err(problem) => {
                closest = closest.filter(|_| matches!(problem, TrustProblem::Foreign { .. })).or(Some(problem));
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

/// Which of the authorities has signed the certificate; the problem of the one that comes closest if none.
fn signer(
    certificate: &X509Certificate<'_>,
    authorities: &[X509Certificate<'_>],
    now: Timestamp,
) -> Result<usize, TrustProblem> {
    let issuer = certificate.issuer();
    let named = authorities.iter().enumerate().filter(|(_, ca)| ca.subject().as_raw() == issuer.as_raw());
    let mut closest = TrustProblem::Foreign {
        issuer: issuer.to_string(),
        held: authorities.iter().map(|ca| format!("'{}'", ca.subject())).collect(),
    };
    for (at, ca) in named {
        match signed_by(certificate, ca, now) {
            Ok(()) => return Ok(at),
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

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rcgen::{BasicConstraints, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const DAY: SignedDuration = SignedDuration::from_hours(24);

    type Change = fn(&mut rcgen::CertificateParams);

    struct Authority {
        pem: String,
        issuer: Issuer<'static, KeyPair>,
    }

    fn params(name: &str, from: SignedDuration, to: SignedDuration) -> rcgen::CertificateParams {
        let mut params = rcgen::CertificateParams::new(["webhook.a.svc".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let at = |off: SignedDuration| {
            std::time::UNIX_EPOCH + std::time::Duration::from_secs((NOW + off.as_secs()).unsigned_abs())
        };
        params.not_before = at(from).into();
        params.not_after = at(to).into();
        params
    }

    fn authority(name: &str, change: impl FnOnce(&mut rcgen::CertificateParams)) -> Authority {
        let mut params = params(name, -DAY, DAY * 30);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    impl Authority {
        fn leaf(&self) -> String {
            let key = KeyPair::generate().unwrap();
            params("leaf", -DAY, DAY * 9).signed_by(&key, &self.issuer).unwrap().pem()
        }

        fn intermediate(&self, name: &str) -> Self {
            let mut params = params(name, -DAY, DAY * 20);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
            Self { pem, issuer: Issuer::new(params, key) }
        }
    }

    fn check(chain: &str, bundle: &str) -> Result<String, String> {
        let now = Timestamp::from_second(NOW).unwrap();
        check_trust(chain.as_bytes(), bundle.as_bytes(), now)
            .map(|ca| ca.common_name)
            .map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_chain_is_accepted_by_any_authority_of_the_bundle_over_its_intermediates_or_as_itself() {
        let (ca, other) = (authority("ca", |_| {}), authority("other", |_| {}));
        let (leaf, below) = (ca.leaf(), ca.intermediate("below"));
        let long = below.leaf() + &below.pem;
        let same_name = authority("ca", |_| {});
        for (chain, bundle, by) in [
            (&leaf, ca.pem.clone(), "ca"),
            (&leaf, other.pem.clone() + &ca.pem, "ca"),
            (&leaf, same_name.pem.clone() + &ca.pem, "ca"),
            (&long, ca.pem.clone(), "ca"),
            (&long, below.pem.clone(), "below"),
            (&leaf, leaf.clone(), "leaf"),
        ] {
            assert_eq!(check(chain, &bundle).as_deref(), Ok(by), "{bundle}");
        }
    }

    #[test]
    fn a_refusal_says_what_stands_in_the_way() {
        let ca = authority("ca", |_| {});
        let cases: Vec<(String, String, &str)> = vec![
            (ca.leaf(), " \n".to_owned(), "the CA bundle is empty"),
            (ca.leaf(), "not PEM".to_owned(), "the CA bundle cannot be read: "),
            (ca.leaf(), ca.pem[..ca.pem.len() - 20].to_owned(), "the CA bundle cannot be read: "),
            (
                ca.leaf(),
                authority("b", |_| {}).pem,
                "does not hold the issuer of the certificate, 'CN=ca' (it holds: 'CN=b')",
            ),
            (ca.leaf(), authority("ca", |_| {}).pem, "holds a 'CN=ca' with another key"),
            (
                ca.intermediate("between").leaf(),
                ca.pem.clone(),
                "does not hold the issuer of the certificate, 'CN=between'",
            ),
        ];
        let made: [(Change, &str); 5] = [
            (|ca| ca.is_ca = IsCa::ExplicitNoCa, "'CN=ca' in the CA bundle is not a CA"),
            (|ca| ca.key_usages = vec![KeyUsagePurpose::CrlSign], "may not sign certificates"),
            (|ca| ca.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth], "may not sign for servers"),
            (|ca| ca.not_after = params("", -DAY * 9, -DAY).not_after, "the CA 'CN=ca' expired at 2027-01-14"),
            (|ca| ca.not_before = params("", DAY, DAY * 9).not_before, "the CA 'CN=ca' is not valid before 2027-01-16"),
        ];
        let made = made.into_iter().map(|(change, wanted)| {
            let ca = authority("ca", change);
            (ca.leaf(), ca.pem, wanted)
        });
        for (chain, bundle, wanted) in cases.into_iter().chain(made) {
            let said = check(&chain, &bundle).unwrap_err();
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }
}
