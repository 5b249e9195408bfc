//! Every part of a Secret that somebody else fills.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use portcullis_pki::{Certificate, PairProblem, TrustProblem, check_server_pair, check_trust};
use rustls::crypto::CryptoProvider;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::certificates::Material;
use crate::certificates::caller::verify;

/// What is wrong with the Secret.
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
    /// What the more telling checks before did not find.
    #[error("callers that trust ca.crt refuse tls.crt: {0}")]
    Refused(String),
}

/// A pair that can be served, and what it says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sound {
    pub(crate) material: Material,
    pub(crate) leaf: Certificate,
    /// By what callers trust it.
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

/// Whether what the Secret holds can be served under this name, to callers that trust its `ca.crt`.
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
        // What is not text is not PEM either, and is told so.
        Ok(String::from_utf8_lossy(&value.0).into_owned())
    };
    let material = Material { cert_pem: text("tls.crt")?, key_pem: text("tls.key")?, ca_pem: text("ca.crt")? };
    let (cert, key, ca) = (material.cert_pem.as_bytes(), material.key_pem.as_bytes(), material.ca_pem.as_bytes());
    let names = [server_name.to_owned()];
    let leaf =
        check_server_pair(cert, key, ca, &names, now, SignedDuration::ZERO).map_err(|problem| match problem {
            PairProblem::Untrusted(problem) => Problem::Trust(problem),
            problem => Problem::Pair { problem },
        })?;
    let ca = check_trust(cert, ca, now).map_err(Problem::Trust)?;
    // What is left is found by those who would serve it and call it.
    let chain: Vec<_> = CertificateDer::pem_slice_iter(cert).filter_map(Result::ok).collect();
    let bundle = material.ca_pem.as_bytes();
    verify(provider, &chain, server_name, bundle, now).map_err(|error| Problem::Refused(error.to_string()))?;
    material.tls_config(provider).map_err(|error| Problem::Refused(error.to_string()))?;
    Ok(Sound { material, leaf, ca })
}
