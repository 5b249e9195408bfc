//! A real control plane, and what tests do with it.

mod audit;
mod binaries;
mod cert_manager;
mod cluster;
mod credentials;
mod error;
mod object;
mod operator;
mod panic_log;
mod servers;
mod users;
mod watcher;

pub use self::audit::{AuditEvent, AuditLog, Mark};
pub use self::binaries::KUBERNETES_VERSION;
pub use self::cert_manager::{CERT_MANAGER_VERSION, CertManager};
pub use self::cluster::apply_manifests;
pub use self::error::ControlPlaneError;
pub use self::object::wait_for_object;
pub use self::operator::{OperatorBinary, RunningOperator};
pub use self::servers::{Builder, ControlPlane};
pub use self::users::{Grant, User};
