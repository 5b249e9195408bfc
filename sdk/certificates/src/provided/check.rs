//! Checks of each part of a Secret that another program or a user fills.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use portcullis_pki::{Certificate, PairProblem, TrustProblem, check_server_pair, check_trust};
use rustls::crypto::CryptoProvider;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::ServingCertificate;
use crate::caller::verify;

/// A fault of the Secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("there is none")]
    NoSecret,
    #[error("key {0} is missing")]
    MissingKey(&'static str),
    #[error("key {0} is empty")]
    EmptyKey(&'static str),
    #[error("{}: {problem}", place(.problem))]
    Pair { problem: PairProblem },
    #[error("ca.crt does not fit tls.crt: {0}")]
    Trust(TrustProblem),
    /// The TLS library refuses the pair, though all of the more specific checks passed.
    #[error("callers that trust ca.crt refuse tls.crt: {0}")]
    Refused(String),
}

/// A pair that can be served, with its parsed certificates.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sound {
    pub(crate) material: ServingCertificate,
    pub(crate) leaf: Certificate,
    /// The authority by which callers trust it.
    pub(crate) ca: Certificate,
}

/// The key of the Secret that is at fault.
fn place(problem: &PairProblem) -> &'static str {
    match problem {
        PairProblem::Key(_) | PairProblem::KeyMismatch => "tls.key",
        PairProblem::Bundle(_) => "ca.crt",
        _ => "tls.crt",
    }
}

/// Checks whether the pair in the Secret can be served under this name, to callers that trust its `ca.crt`.
pub(crate) fn check(
    secret: Option<&Secret>,
    server_name: &str,
    provider: &Arc<CryptoProvider>,
    now: Timestamp,
) -> Result<Sound, Problem> {
    let secret = secret.ok_or(Problem::NoSecret)?;
    let text = |key: &'static str| {
        let value = secret.data.as_ref().and_then(|data| data.get(key)).ok_or(Problem::MissingKey(key))?;
        if value.0.iter().all(u8::is_ascii_whitespace) {
            return Err(Problem::EmptyKey(key));
        }
        // Bytes that are not UTF-8 are not PEM either: the next check says so.
        Ok(String::from_utf8_lossy(&value.0).into_owned())
    };
    let material =
        ServingCertificate { cert_pem: text("tls.crt")?, key_pem: text("tls.key")?, ca_pem: text("ca.crt")? };
    let (cert, key, ca) = (material.cert_pem.as_bytes(), material.key_pem.as_bytes(), material.ca_pem.as_bytes());
    let names = [server_name.to_owned()];
    let leaf =
        check_server_pair(cert, key, ca, &names, now, SignedDuration::ZERO).map_err(|problem| match problem {
            PairProblem::Untrusted(problem) => Problem::Trust(problem),
            problem => Problem::Pair { problem },
        })?;
    let ca = check_trust(cert, ca, now).map_err(Problem::Trust)?;
    // The TLS library makes the last check, as a server and as a caller.
    let chain: Vec<_> = CertificateDer::pem_slice_iter(cert).filter_map(Result::ok).collect();
    let bundle = material.ca_pem.as_bytes();
    verify(provider, &chain, server_name, bundle, now).map_err(|error| Problem::Refused(error.to_string()))?;
    material.tls_config(provider).map_err(|error| Problem::Refused(error.to_string()))?;
    Ok(Sound { material, leaf, ca })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use rcgen::{BasicConstraints, CertificateParams, GeneralSubtree, IsCa, Issuer, KeyPair, NameConstraints};
    use rustls::crypto::aws_lc_rs;

    use super::*;

    /// A Secret with a server's pair for `hooks.team.svc`, under a CA that may sign for these names alone.
    fn under_a_ca_for(names: &str) -> Secret {
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let permitted_subtrees = vec![GeneralSubtree::DnsName(names.to_owned())];
        ca.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let leaf = CertificateParams::new(["hooks.team.svc".to_owned()]).unwrap();
        let cert_pem = leaf.signed_by(&key, &Issuer::from_params(&ca, &ca_key)).unwrap().pem();
        let data = [("tls.crt", cert_pem), ("tls.key", key.serialize_pem()), ("ca.crt", ca_pem)];
        let data = data.map(|(name, pem)| (name.to_owned(), ByteString(pem.into_bytes())));
        Secret { data: Some(data.into()), ..Secret::default() }
    }

    // D5
    #[test]
    fn a_pair_that_only_a_handshake_would_refuse_is_not_served() {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let check = |secret: Secret| check(Some(&secret), "hooks.team.svc", &provider, Timestamp::now());
        check(under_a_ca_for("team.svc")).unwrap();
        let problem = check(under_a_ca_for("other.svc")).unwrap_err();
        assert!(matches!(problem, Problem::Refused(_)), "{problem}");
    }
}
