//! Why an operator did not start, or ended.

use std::net::SocketAddr;

use portcullis_certificates::CertificateError;
use portcullis_lease::LeaseError;
use portcullis_webhook::RegistrationError;

/// Whatever a user's own code fails with.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why an operator did not start, or ended before it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// [`Operator::setup`](super::Operator::setup) failed. Mend the arguments, or what it asks.
    #[error("cannot set the operator up")]
    Setup(#[source] BoxError),
    /// Webhooks or controllers cannot be registered together. Mend the registration.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The configuration of the cluster makes no client. Mend it.
    #[error("cannot make a client for the cluster")]
    Client(#[source] BoxError),
    /// A Lease cannot be named or timed as was asked. Choose another identity or release.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// Somebody else listens there, or may. Choose another address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// There is nothing to serve the webhooks with. The source says whether trying again may help
    /// ([`CertificateError::is_permanent`]).
    #[error("no certificates to serve webhooks with")]
    Certificates(#[source] CertificateError),
    /// A controller, or another part of the operator, failed. All others have ended.
    #[error("{part} failed")]
    Failed {
        /// Its name.
        part: String,
        /// What it failed with.
        #[source]
        source: BoxError,
    },
    /// A controller, or another part of the operator, returned though nobody had asked it to.
    #[error("{part} ended on its own")]
    EndedEarly {
        /// Its name.
        part: String,
    },
    /// A controller, or another part of the operator, panicked; the panic hook has the message.
    #[error("{part} panicked")]
    Panicked {
        /// Its name.
        part: String,
    },
}
