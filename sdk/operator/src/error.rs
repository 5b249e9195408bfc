//! Errors of an operator's start and run.

use std::net::SocketAddr;

use portcullis_certificates::CertificateError;
use portcullis_controller::BoxError;
use portcullis_lease::LeaseError;
use portcullis_metrics::MetricNameError;
use portcullis_webhook::RegistrationError;

/// The reason why an operator did not start, or ended without being stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// [`Operator::setup`](super::Operator::setup) failed. Fix the arguments, or what it depends on.
    #[error("cannot set the operator up")]
    Setup(#[source] BoxError),
    /// The operator was embedded before, and its controllers or caches were not made by `setup`: two runs would share
    /// their stores. Make them in [`Operator::setup`](super::Operator::setup), or make another operator.
    #[error(
        "operator {0} was embedded before: make its controllers and caches in Operator::setup, or another operator"
    )]
    EmbeddedTwice(&'static str),
    /// The registration of webhooks or controllers is invalid. Fix the registration.
    #[error(transparent)]
    Registration(#[from] ComponentsError),
    /// The name or timing of a Lease is invalid. Choose another identity or release.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The address is in use, or may not be bound. Choose another address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// There is no certificate to serve the webhooks with. [`CertificateError::is_permanent`] of the source says
    /// whether a retry may help.
    #[error("no certificates to serve webhooks with")]
    Certificates(#[source] CertificateError),
    /// A controller or another component failed. All the rest has ended.
    #[error("{component} failed")]
    Failed {
        /// Its name.
        component: String,
        /// Its error.
        #[source]
        source: BoxError,
    },
    /// A controller or another component returned before it was stopped.
    #[error("{component} ended on its own")]
    EndedEarly {
        /// Its name.
        component: String,
    },
    /// A controller or another component panicked. The message is in the log.
    #[error("{component} panicked")]
    Panicked {
        /// Its name.
        component: String,
    },
}

/// Components that cannot run together. Fix the code that registers them.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ComponentsError {
    /// The registration of webhooks is invalid.
    #[error(transparent)]
    Webhooks(#[from] RegistrationError),
    /// Two controllers or two tasks have the same name.
    #[error("two controllers are named {0}: give one of them another name")]
    DuplicateController(String),
    /// A metric that cannot be served at `/metrics`.
    #[error(transparent)]
    InvalidMetric(#[from] MetricNameError),
    /// Versions with different schemas that nothing converts: what a version lacks would be lost when an object is
    /// written.
    #[error(
        "{crd} has versions with different schemas and no conversion, so that what a version lacks is lost when an \
         object is written: register one with Webhooks::convert, or set the CRD's spec.conversion.strategy to None if \
         that is meant"
    )]
    NoConversion {
        /// Name of the CRD.
        crd: String,
    },
    /// A conversion without a CRD: the API server would never call it.
    #[error("{kind} of group {group} has a conversion, but no CRD: add the CRD to Operator::crds")]
    NoCrd {
        /// API group.
        group: String,
        /// The kind.
        kind: String,
    },
}
