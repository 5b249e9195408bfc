//! Errors of an operator's start and run.

use std::net::SocketAddr;

use portcullis_certificates::CertificateError;
use portcullis_lease::LeaseError;
use portcullis_webhook::RegistrationError;

/// Whatever a user's own code fails with.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why an operator did not start, or ended without being stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// [`Operator::setup`](super::Operator::setup) failed. Fix the arguments, or what it depends on.
    #[error("cannot set the operator up")]
    Setup(#[source] BoxError),
    /// The registration of webhooks or controllers is invalid. Fix the registration.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// No client can be made from the cluster configuration. Fix the configuration.
    #[error("cannot make a client for the cluster")]
    Client(#[source] BoxError),
    /// The name or timing of a Lease is invalid. Choose another identity or release.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The address is in use, or may not be bound. Choose another address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// There is no certificate to serve the webhooks with. [`CertificateError::is_permanent`] of the source tells
    /// whether a retry may help.
    #[error("no certificates to serve webhooks with")]
    Certificates(#[source] CertificateError),
    /// A controller or another component failed. All the rest has ended.
    #[error("{part} failed")]
    Failed {
        /// Its name.
        part: String,
        /// What it failed with.
        #[source]
        source: BoxError,
    },
    /// A controller or another component returned before it was stopped.
    #[error("{part} ended on its own")]
    EndedEarly {
        /// Its name.
        part: String,
    },
    /// A controller or another component panicked. The message is in the log.
    #[error("{part} panicked")]
    Panicked {
        /// Its name.
        part: String,
    },
}
