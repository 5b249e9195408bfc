//! Serving certificates of webhooks: issued and rotated by the operator, or provided by cert-manager or a user.
//!
//! There are two sources. [`ProvidedCertificates`] reads a pair that cert-manager or a user puts into a Secret,
//! checks every part of it, and never writes. [`Automatic`] issues a CA and a leaf, keeps them in two Secrets of the
//! operator's own namespace, and publishes the CA in the webhook configurations and the CRDs:
//!
//! | Secret | keys | who reads it |
//! |---|---|---|
//! | `<name>-ca` | `ca.crt`, `ca.key`; while a CA is rotated also `next.crt`, `next.key` or `previous.crt` | the replica that issues a leaf |
//! | `<name>` | `tls.crt`, `tls.key`; `ca.crt`, which is the bundle to publish | every replica: all serve the same pair |
//!
//! Neither Secret has an owner reference, so both outlive the operator: installed again, it serves under the CA that
//! callers already trust. All replicas maintain them, without a leader. Every write is one conditional request (create
//! if absent, or change what was read), and a replica that loses the race reads what another wrote. If a process is
//! killed between any two requests, the next one completes the work.
//!
//! A leaf is replaced when it has less than 30 days left, lacks a name that is needed, or cannot be read; a CA is
//! rotated while it can still issue a leaf of a whole year. The running listener switches to a new pair without closing
//! its port. No leaf is issued under a CA, or served, before the CA is published to all callers ([`Phase`]): next CA
//! created → both published, and read back everywhere → [`RotationTiming::settle`] → leaf under the new CA →
//! [`RotationTiming::drain`] → old CA removed. The same holds for repairs: if the stored CA is lost, what callers trust
//! stays trusted until every replica serves under the new one.
//!
//! | file | content |
//! |---|---|
//! | `lib` | what the sources have in common: [`ServingCertificate`] and [`CertificateSource`] |
//! | `error` | [`CertificateError`] |
//! | `automatic/` | [`Automatic`]: `round` reads, repairs and rotates, `store` has the two Secrets, `keeper` the process |
//! | `provided/` | [`ProvidedCertificates`]: `check` says what is wrong with a Secret, `cure` what to do about it |
//! | `bundle/` | [`Bundle`]: the CA in the webhook configurations and CRDs, for both sources |
//! | `caller` | [`probe`]: whether a caller accepts a chain |
//! | `follow`, `read` | watching one object; reading a Secret |
//! | `time_of_day`, `metrics` | the wall clock; metrics |
//!
//! Decisions from bytes and times alone are in [`portcullis_pki`].

mod automatic;
mod bundle;
mod caller;
mod error;
mod follow;
mod metrics;
mod pauses;
mod provided;
mod read;
mod time_of_day;

use std::sync::Arc;

use arc_swap::ArcSwap;
use kube::Client;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use tokio_util::sync::CancellationToken;

pub use automatic::Automatic;
pub use automatic::ca_data;
pub use bundle::Bundle;
pub use bundle::{Changes, OwnEntry, PublishedEntry, PublishedObject, read_published};
pub use caller::{ProbeError, probe};
pub use error::CertificateError;
/// The objects in which callers find the CA.
pub use portcullis_manifest::Configurations;
pub use portcullis_pki::rotation::{Phase, RotationTiming};
pub use provided::{ProvidedBy, ProvidedCertificates};
use read::read;
pub use time_of_day::TimeOfDay;

use portcullis_listener::{TlsError, tls_config};

/// A certificate chain with its key, and the CA bundle that callers must trust.
#[derive(Clone, PartialEq, Eq)]
pub struct ServingCertificate {
    /// The chain, leaf first, in PEM.
    pub cert_pem: String,
    /// The leaf's key in PEM.
    pub key_pem: String,
    /// The CA bundle, in PEM.
    pub ca_pem: String,
}

impl ServingCertificate {
    /// The TLS configuration of a listener that serves it.
    ///
    /// # Errors
    /// When it cannot be read, or key and certificate do not belong together.
    pub fn tls_config(&self, provider: &Arc<CryptoProvider>) -> Result<ServerConfig, TlsError> {
        tls_config(Arc::clone(provider), self.cert_pem.as_bytes(), self.key_pem.as_bytes())
    }
}

impl std::fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingCertificate").field("ca_pem", &self.ca_pem).finish_non_exhaustive()
    }
}

/// The source of the serving certificate. All replicas read it from one Secret, through the API.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// Issued and rotated by the operator itself.
    Automatic(Automatic),
    /// Provided by cert-manager or a user.
    ProvidedCertificates(ProvidedCertificates),
}

impl CertificateSource {
    /// Returns the certificate to serve; [`Automatic`] issues it if needed. All replicas end up with the same.
    ///
    /// # Errors
    /// When there is none that can be served, or the API server refuses. It is safe to retry.
    pub async fn ensure(&self) -> Result<ServingCertificate, CertificateError> {
        match self {
            Self::Automatic(automatic) => automatic.ensure().await,
            Self::ProvidedCertificates(provided) => provided.ensure().await,
        }
    }

    /// Maintains the certificate until `stop` is cancelled: puts a changed one into `tls`, and sets in `bundle` what
    /// callers must trust. If a new one cannot be served, the previous one stays.
    pub async fn maintain(
        &self,
        current: ServingCertificate,
        tls: &ArcSwap<ServerConfig>,
        bundle: &Bundle,
        stop: &CancellationToken,
    ) {
        match self {
            Self::Automatic(automatic) => Box::pin(automatic.maintain(current, tls, bundle, stop)).await,
            Self::ProvidedCertificates(provided) => provided.maintain(current, tls, bundle, stop).await,
        }
    }

    /// Sets in `bundle` what callers must trust by the stored certificates, if there are any.
    ///
    /// # Errors
    /// When the API server refuses, or the stored certificates cannot be served.
    pub async fn publish_stored(&self, bundle: &Bundle) -> Result<(), CertificateError> {
        match self {
            Self::Automatic(automatic) => {
                if let Ok(authorities) = automatic.stored().await?.authorities {
                    bundle.publish(&authorities.bundle());
                }
            }
            Self::ProvidedCertificates(provided) => provided.publish_stored(bundle).await?,
        }
        Ok(())
    }

    /// Returns the publisher, or the observer, of the CA of `certificate`.
    pub fn bundle(&self, operator: &str, certificate: &ServingCertificate) -> Bundle {
        match self {
            Self::Automatic(automatic) => automatic.bundle(operator, certificate),
            Self::ProvidedCertificates(provided) => provided.bundle_of(operator, certificate),
        }
    }

    /// The client with which it reads and writes.
    pub fn client(&self) -> &Client {
        match self {
            Self::Automatic(automatic) => &automatic.client,
            Self::ProvidedCertificates(provided) => &provided.client,
        }
    }

    /// The TLS configuration of a listener that serves `certificate`.
    pub fn tls_config(&self, certificate: &ServingCertificate) -> Result<ServerConfig, TlsError> {
        certificate.tls_config(self.provider())
    }

    /// The crypto provider of the TLS configurations.
    pub fn provider(&self) -> &Arc<CryptoProvider> {
        match self {
            Self::Automatic(automatic) => &automatic.provider,
            Self::ProvidedCertificates(provided) => &provided.provider,
        }
    }

    /// The objects in which callers find the CA.
    pub fn configurations(&self) -> &Configurations {
        match self {
            Self::Automatic(automatic) => &automatic.configurations,
            Self::ProvidedCertificates(provided) => &provided.configurations,
        }
    }
}
