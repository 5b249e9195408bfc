//! Certificate authorities and leaves for webhook servers, and the checks on them.
//!
//! The crate does no IO and reads no clock: every time is a parameter, so a caller (or a test) decides what "now" is.
//! Keys are ECDSA P-256, made by aws-lc-rs.
//!
//! - [`Ca`] generates an authority, or loads one from stored PEM, and issues [`Pair`]s (certificate and key).
//! - [`check_server_pair`] checks whether a stored pair can still be served, and returns the first problem if not.
//! - [`rotation`] replaces an authority without a moment in which callers trust the wrong one: what is stored, and the
//!   next step.
//! - [`Certificate`] has the parsed fields of a certificate; [`bundle_fingerprints`] compares CA bundles.
//!
//! ```
//! use jiff::{SignedDuration, Timestamp};
//! use portcullis_pki::{Ca, CertificateParams, PairProblem, Usage, check_server_pair};
//!
//! let now: Timestamp = "2026-01-01T00:00:00Z".parse()?;
//! let year = SignedDuration::from_hours(365 * 24);
//! let names = ["webhook.team-a.svc".to_owned()];
//!
//! let ca = Ca::generate("webhook ca", now, now + year)?;
//! let pair = ca.issue(&CertificateParams {
//!     common_name: "webhook",
//!     organizations: &[],
//!     dns_names: &names,
//!     ip_addresses: &[],
//!     not_before: now,
//!     not_after: now + year,
//!     usage: Usage::Server,
//! })?;
//!
//! let check = |at| {
//!     let (cert, key) = (pair.cert_pem.as_bytes(), pair.key_pem.as_bytes());
//!     check_server_pair(cert, key, ca.cert_pem().as_bytes(), &names, at, SignedDuration::from_hours(30 * 24))
//! };
//! assert!(check(now).is_ok());
//! assert!(matches!(check(now + year * 2), Err(PairProblem::Expired { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ca;
mod certificate;
mod check;
pub mod rotation;
mod trust;

pub use ca::{Ca, CertificateParams, Pair, Usage};
pub use certificate::{Certificate, bundle_fingerprints};
pub use check::{PairProblem, check_server_pair};
pub use trust::{TrustProblem, check_trust};

/// Errors of issuing and reading certificates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// The certificate could not be issued because of its parameters, for example a DNS name that is not ASCII.
    #[error("cannot make the certificate: {0}")]
    Issue(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The certificate PEM cannot be read. Make a new pair, or correct the file.
    #[error("the certificate is not readable: {0}")]
    Certificate(String),
    /// The key PEM cannot be read. Make a new pair, or correct the file.
    #[error("the private key is not readable: {0}")]
    Key(String),
    /// The authority's certificate and key do not belong together.
    #[error("the private key does not belong to the CA certificate")]
    KeyMismatch,
    /// The certificate given as an authority may not sign others.
    #[error("'{0}' is not a CA certificate (basic constraints say CA:FALSE, or nothing)")]
    NotACa(String),
    /// A time lies outside what a certificate can hold, or the validity ends before it begins.
    #[error("not_before ({not_before}) must lie before not_after ({not_after}), both in the years 1950 to 9999")]
    Validity {
        /// The start that was asked for.
        not_before: jiff::Timestamp,
        /// The end that was asked for.
        not_after: jiff::Timestamp,
    },
    /// The rotation timing makes every new certificate due for replacement at once.
    #[error(
        "{validity} ({is:#}) must be longer than {left} ({limit:#}): what is made would be replaced at once, for ever"
    )]
    Timing {
        /// The field with the validity.
        validity: &'static str,
        /// Its value.
        is: jiff::SignedDuration,
        /// The field with what is left when it is replaced.
        left: &'static str,
        /// Its value.
        limit: jiff::SignedDuration,
    },
}
