//! Certificates that look after themselves, and those that others make.
//!
//! There are two sources. [`ProvidedCertificates`] reads a pair that cert-manager or a person puts into a Secret,
//! checks every part of it, and never writes. [`Automatic`] makes a CA and a leaf, keeps them in two Secrets of the
//! operator's own namespace, and publishes the CA in the webhook configurations and the CRDs:
//!
//! | Secret | keys | who reads it |
//! |---|---|---|
//! | `<name>-ca` | `ca.crt`, `ca.key`; while a CA is rotated also `next.crt`, `next.key` or `previous.crt` | whoever issues a leaf |
//! | `<name>` | `tls.crt`, `tls.key`; `ca.crt`, which is the bundle to publish | every replica: all serve the same pair |
//!
//! Neither belongs to another object, so both outlive the operator: installed again, it serves under the CA that
//! callers trust already. Any number of replicas look after them, and none is special. Every write is one conditional
//! request (create if absent, or change what was read), and whoever loses reads what the others wrote. A process killed
//! between any two requests leaves what the next one completes.
//!
//! A leaf is replaced when it has less than 30 days left, does not name every name that is needed, or does not read; a
//! CA is rotated before it could not issue a leaf of a whole year any more. The running listener takes a new pair
//! without closing its port. No leaf is issued under a CA, or served, before all callers have been told to trust it
//! ([`Phase`]): next CA made → both published, and read back everywhere → [`RotationTiming::settle`] → leaf under the
//! new CA → [`RotationTiming::drain`] → old CA forgotten. The same holds for repairs: where the stored CA is lost, what
//! callers trust stays trusted until every replica has gone over to the new one.
//!
//! | file | what is in it |
//! |---|---|
//! | `mod` | what the sources have in common: [`ServingCertificate`] and `CertificateSource` |
//! | `error` | [`CertificateError`] |
//! | `automatic/` | [`Automatic`]: `round` reads, repairs and rotates, `store` has the two Secrets, `keeper` the process |
//! | `supplied/` | [`ProvidedCertificates`]: `check` says what is wrong with a Secret, `cure` what to do about it |
//! | `bundle/` | [`Bundle`]: the CA in the webhook configurations and CRDs, for both sources |
//! | `caller` | [`probe`], and what a caller makes of a chain |
//! | `follow` | one object, whenever it changes |
//! | `time_of_day`, `metrics` | what time it is; what is counted |
//!
//! What is decided from bytes and times alone is in [`portcullis_pki`].

mod automatic;
mod bundle;
mod caller;
mod error;
mod follow;
mod metrics;
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
pub use bundle::{Changes, OwnEntry, PublishedEntry, PublishedObject, published};
pub use caller::verify;
pub use caller::{ProbeError, probe};
pub use error::CertificateError;
/// Where callers find the CA.
pub use portcullis_manifest::Configurations;
pub use portcullis_pki::rotation::{Phase, RotationTiming};
pub use provided::{ProvidedBy, ProvidedCertificates};
use read::read;
pub use time_of_day::TimeOfDay;

use portcullis_listener::{ClientCa, TlsError, tls_config, tls_config_asking};

/// What is served, and what callers must trust.
#[derive(Clone, PartialEq, Eq)]
pub struct ServingCertificate {
    /// The chain, leaf first, in PEM.
    pub cert_pem: String,
    /// The leaf's key in PEM.
    pub key_pem: String,
    /// What callers trust, in PEM.
    pub ca_pem: String,
}

impl ServingCertificate {
    /// The listener's configuration for it.
    ///
    /// # Errors
    /// When it does not read, or key and certificate do not belong together.
    pub fn tls_config(&self, provider: &Arc<CryptoProvider>) -> Result<ServerConfig, TlsError> {
        tls_config(Arc::clone(provider), self.cert_pem.as_bytes(), self.key_pem.as_bytes())
    }

    /// The same; where there are authorities of callers, those are asked for a certificate.
    fn asking(
        &self,
        provider: &Arc<CryptoProvider>,
        client_ca: Option<&Arc<ClientCa>>,
    ) -> Result<ServerConfig, TlsError> {
        let Some(client_ca) = client_ca else { return self.tls_config(provider) };
        let (cert, key) = (self.cert_pem.as_bytes(), self.key_pem.as_bytes());
        tls_config_asking(Arc::clone(provider), cert, key, Arc::clone(client_ca))
    }
}

impl std::fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingCertificate").field("ca_pem", &self.ca_pem).finish_non_exhaustive()
    }
}

/// Where the pair that is served comes from. All replicas read it from one Secret, through the API.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// Made and kept by the operator itself.
    Automatic(Automatic),
    /// Filled in by cert-manager or a person.
    ProvidedCertificates(ProvidedCertificates),
}

impl CertificateSource {
    /// The pair to serve, made where this is the operator's own business. All replicas end with the same.
    ///
    /// # Errors
    /// When there is none that can be served, or the API server refuses. Nothing is lost by trying again.
    pub async fn ensure(&self) -> Result<ServingCertificate, CertificateError> {
        match self {
            Self::Automatic(automatic) => automatic.ensure().await,
            Self::ProvidedCertificates(supplied) => supplied.ensure().await,
        }
    }

    /// Looks after the pair until `stop`: puts a changed one into `tls`, and tells `bundle` what callers must trust. A
    /// pair that cannot be served leaves the one before it in place.
    pub async fn maintain(
        &self,
        current: ServingCertificate,
        tls: &ArcSwap<ServerConfig>,
        bundle: &Bundle,
        stop: &CancellationToken,
    ) {
        match self {
            Self::Automatic(automatic) => Box::pin(automatic.maintain(current, tls, bundle, stop)).await,
            Self::ProvidedCertificates(supplied) => supplied.maintain(current, tls, bundle, stop).await,
        }
    }

    /// Tells `bundle` what callers must trust by what is stored now; nothing where that says nothing.
    ///
    /// # Errors
    /// When the API server refuses, or what somebody else has stored cannot be served.
    pub async fn tell(&self, bundle: &Bundle) -> Result<(), CertificateError> {
        match self {
            Self::Automatic(automatic) => {
                if let Ok(authorities) = automatic.stored().await?.authorities {
                    bundle.publish(&authorities.bundle());
                }
            }
            Self::ProvidedCertificates(supplied) => bundle.expect(&supplied.stored().await?.0),
        }
        Ok(())
    }

    /// The publisher of the CA that goes with `material`.
    pub fn bundle(&self, operator: &str, material: &ServingCertificate) -> Bundle {
        match self {
            Self::Automatic(automatic) => automatic.bundle(operator, material),
            Self::ProvidedCertificates(supplied) => supplied.bundle(material),
        }
    }

    /// The client that it reads and writes with.
    pub fn client(&self) -> &Client {
        match self {
            Self::Automatic(automatic) => &automatic.client,
            Self::ProvidedCertificates(supplied) => &supplied.client,
        }
    }

    /// The listener's configuration for `material`.
    pub fn tls_config(&self, material: &ServingCertificate) -> Result<ServerConfig, TlsError> {
        match self {
            Self::Automatic(automatic) => material.asking(&automatic.provider, automatic.client_ca.as_ref()),
            Self::ProvidedCertificates(supplied) => material.asking(&supplied.provider, supplied.client_ca.as_ref()),
        }
    }

    /// Asks callers for a certificate of these authorities.
    pub fn asking(self, client_ca: Option<Arc<ClientCa>>) -> Self {
        match self {
            Self::Automatic(automatic) => Self::Automatic(Automatic { client_ca, ..automatic }),
            Self::ProvidedCertificates(supplied) => {
                Self::ProvidedCertificates(ProvidedCertificates { client_ca, ..supplied })
            }
        }
    }

    /// The cryptography that is served with.
    pub fn provider(&self) -> &Arc<CryptoProvider> {
        match self {
            Self::Automatic(automatic) => &automatic.provider,
            Self::ProvidedCertificates(supplied) => &supplied.provider,
        }
    }

    /// The objects that callers find the CA in.
    pub fn configurations(&self) -> &Configurations {
        match self {
            Self::Automatic(automatic) => &automatic.configurations,
            Self::ProvidedCertificates(supplied) => &supplied.configurations,
        }
    }
}
