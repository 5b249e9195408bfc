//! Why a control plane did not start.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The server that `setup-envtest` does not install.
pub(crate) const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// Why a control plane did not start or stop. Its `Debug` is the same sentence: tests and small programs unwrap it, or
/// return it from `main`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ControlPlaneError {
    /// Binaries of the servers are missing. Install them as the message says.
    #[error(
        "the test control plane is not installed: {} not found in {}; {}",
        missing.join(", "),
        looked_in.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" or "),
        install(missing)
    )]
    NotInstalled {
        /// The servers that the last place looked at lacks.
        missing: Vec<&'static str>,
        /// The directories that were searched, in order.
        looked_in: Vec<PathBuf>,
    },
    /// cert-manager's binary is missing. Run `make cert-manager`.
    #[error(
        "cert-manager is not installed: not found in {}; run `make cert-manager` (once per machine, about three minutes)",
        looked_in.display()
    )]
    CertManagerNotInstalled {
        /// The path that was tried.
        looked_in: PathBuf,
    },
    /// A file, port or process could not be created.
    #[error("cannot {action}: {source}")]
    Io {
        /// The attempted action.
        action: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Certificates could not be issued.
    #[error("cannot make the control plane's certificates: {0}")]
    Pki(#[from] portcullis_pki::PkiError),
    /// A server ended while it was starting.
    #[error("{server} ended while starting ({status}); the end of its log:\n{log}")]
    Ended {
        /// The server.
        server: &'static str,
        /// Its exit status.
        status: String,
        /// The last lines that it wrote.
        log: String,
    },
    /// The control plane did not become ready in time.
    #[error("{what} did not become ready within {waited:?} (last answer: {last}); the end of its log:\n{log}")]
    NotReady {
        /// The server or object waited for.
        what: &'static str,
        /// The time that was waited.
        waited: Duration,
        /// The last answer or error.
        last: String,
        /// The last lines that the server wrote.
        log: String,
    },
    /// A client could not be made.
    #[error("cannot make a client: {0}")]
    Client(#[source] Box<kube::Error>),
}

impl fmt::Debug for ControlPlaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Names what was being done when an IO error came.
pub(crate) trait Doing<T> {
    fn doing(self, action: impl Into<String>) -> Result<T, ControlPlaneError>;
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, action: impl Into<String>) -> Result<T, ControlPlaneError> {
        self.map_err(|source| ControlPlaneError::Io { action: action.into(), source })
    }
}

/// Says how to install the servers. The way that always works comes first; `setup-envtest` has no controller
/// manager.
fn install(missing: &[&str]) -> String {
    let make = "run `make control-plane` in the repository of Portcullis (once per machine, about five minutes)";
    let assets = "point KUBEBUILDER_ASSETS at a directory that holds them";
    if missing.contains(&CONTROLLER_MANAGER) {
        return format!("{make}, or {assets}; `setup-envtest` installs no {CONTROLLER_MANAGER}");
    }
    format!("run `setup-envtest use`, or {make}, or {assets}")
}
