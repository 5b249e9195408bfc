//! Certificates that look after themselves.
//!
//! [`Automatic`] makes a CA and a leaf, keeps them in two Secrets of the operator's own namespace, and publishes the CA in the webhook configurations:
//!
//! | Secret | keys | who reads it |
//! |---|---|---|
//! | `<name>-ca` | `ca.crt`, `ca.key` | whoever issues a leaf |
//! | `<name>` | `tls.crt`, `tls.key`, `ca.crt` | every replica: all serve the same pair |
//!
//! Both are created only when absent: whoever wins the create writes, the others read what was written. The CA comes first, so that a process killed
//! between the two leaves a state that the next start completes. A stored leaf is used again while it has more than 30 days left, names every name that is
//! needed, and chains to the stored CA; otherwise a new one is issued under the same CA. The running listener takes a new pair without closing its port.

mod bundle;
mod probe;
mod store;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::TryStreamExt as _;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use bundle::{Bundle, Configurations};
pub use probe::{ProbeError, probe};

use crate::server::{TlsError, tls_config};

/// A leaf is replaced when less than this is left.
pub const MIN_LEFT: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How long a leaf is valid.
pub const LEAF_VALIDITY: SignedDuration = SignedDuration::from_hours(365 * 24);
/// How long an authority is valid.
pub const CA_VALIDITY: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// How often the stored pair is looked at when nothing happens to it.
const LOOK_AGAIN: Duration = Duration::from_secs(60 * 60);
/// How long one round of reading and writing may take.
const ROUND: Duration = Duration::from_secs(60);

/// What goes wrong with stored certificates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The API server refused, or did not answer. Try again; on 403 compare the roles with `generate rbac`.
    #[error("cannot {action} Secret {namespace}/{name}: {source}")]
    Api {
        /// `read`, `create` or `update`.
        action: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// A certificate could not be made.
    #[error(transparent)]
    Pki(#[from] portcullis_pki::PkiError),
    /// The pair cannot be served.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Others kept writing between our read and our write, or the API server was slow. Try again.
    #[error("the certificate Secrets did not come to rest; is another program writing {namespace}/{name}?")]
    Unsettled {
        /// Namespace of the Secret.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// What is served, and what callers must trust.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    /// The chain, leaf first, in PEM.
    pub cert_pem: String,
    /// The leaf's key in PEM.
    pub key_pem: String,
    /// What callers trust, in PEM.
    pub ca_pem: String,
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").field("ca_pem", &self.ca_pem).finish_non_exhaustive()
    }
}

/// Certificates made and kept by the operator itself.
#[derive(Clone)]
pub struct Automatic {
    /// Client that may read and write the two Secrets.
    pub client: Client,
    /// The operator's own namespace.
    pub namespace: String,
    /// Name of the Secret with the leaf; the CA's is `<name>-ca`.
    pub secret: String,
    /// The names by which the server is called.
    pub dns_names: Vec<String>,
    /// Makes TLS configurations.
    pub provider: Arc<CryptoProvider>,
}

impl std::fmt::Debug for Automatic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secret = format!("{}/{}", self.namespace, self.secret);
        f.debug_struct("Automatic").field("secret", &secret).field("dns_names", &self.dns_names).finish_non_exhaustive()
    }
}

impl Automatic {
    /// Reads the stored material, making and repairing what is missing or cannot go on. All replicas that call this end with the same material.
    ///
    /// # Errors
    /// When the API server refuses, or does not come to rest within a minute. Nothing is lost by trying again.
    pub async fn ensure(&self) -> Result<Material, CertificateError> {
        match tokio::time::timeout(ROUND, store::ensure(self)).await {
            Ok(result) => result,
            Err(_) => Err(self.unsettled()),
        }
    }

    /// The listener's configuration for `material`.
    pub fn tls_config(&self, material: &Material) -> Result<ServerConfig, TlsError> {
        tls_config(Arc::clone(&self.provider), material.cert_pem.as_bytes(), material.key_pem.as_bytes())
    }

    /// Watches the Secret until `stop`: puts a changed pair into `tls`, repairs a damaged one, replaces one that is about to end, and tells `bundle`
    /// what callers must trust. A pair that cannot be served leaves the one before it in place.
    pub async fn maintain(
        &self,
        mut current: Material,
        tls: &ArcSwap<ServerConfig>,
        bundle: &Bundle,
        stop: &CancellationToken,
    ) {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.secret));
        let mut changes = std::pin::pin!(watcher(api, config).default_backoff().touched_objects());
        let mut tick = tokio::time::interval(LOOK_AGAIN);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = tick.tick() => {}
                change = changes.try_next() => match change {
                    Ok(Some(_)) => {}
                    Ok(None) => return,
                    Err(error) => { warn!(%error, secret = self.secret, "cannot watch the certificate Secret"); continue }
                },
            }
            match self.ensure().await {
                Ok(material) if material == current => {}
                Ok(material) => match self.tls_config(&material) {
                    Ok(config) => {
                        tls.store(Arc::new(config));
                        bundle.publish(&material.ca_pem);
                        current = material;
                        info!(secret = self.secret, "serving the certificate that is now in the Secret");
                    }
                    Err(error) => warn!(%error, secret = self.secret, "the pair before it goes on serving"),
                },
                Err(error) => warn!(%error, "certificates stay as they are"),
            }
        }
    }

    fn ca_secret(&self) -> String {
        format!("{}-ca", self.secret)
    }

    fn unsettled(&self) -> CertificateError {
        CertificateError::Unsettled { namespace: self.namespace.clone(), name: self.secret.clone() }
    }
}
