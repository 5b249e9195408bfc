//! Certificates that look after themselves.
//!
//! [`Automatic`] makes a CA and a leaf, keeps them in two Secrets of the operator's own namespace, and publishes the CA
//! in the webhook configurations and the CRDs:
//!
//! | Secret | keys | who reads it |
//! |---|---|---|
//! | `<name>-ca` | `ca.crt`, `ca.key` | whoever issues a leaf |
//! | `<name>` | `tls.crt`, `tls.key`, `ca.crt` | every replica: all serve the same pair |
//!
//! Both are created only when absent: whoever wins the create writes, the others read what was written. The CA comes
//! first, so that a process killed between the two leaves a state that the next start completes. A stored leaf is used
//! again while it has more than 30 days left, names every name that is needed, and chains to the stored CA; otherwise a
//! new one is issued under the same CA. The running listener takes a new pair without closing its port, and before one
//! under another CA is served, callers are told to trust both.

mod bundle;
mod carrier;
mod probe;
mod store;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::{StreamExt as _, stream};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use bundle::{Bundle, Configurations};
pub use probe::{ProbeError, probe};

use bundle::watch_one;

use crate::pauses::Pauses;
use crate::server::{TlsError, tls_config};

/// A leaf is replaced when less than this is left.
pub const MIN_LEFT: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How long a leaf is valid.
pub const LEAF_VALIDITY: SignedDuration = SignedDuration::from_hours(365 * 24);
/// How long an authority is valid.
pub const CA_VALIDITY: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// How often the stored pair is looked at when nothing happens to it.
const LOOK_AGAIN: Duration = Duration::from_hours(1);
/// How long one round of reading and writing may take.
const ROUND: Duration = Duration::from_mins(1);
/// First and longest pause between rounds that failed or changed something.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// How long callers are given to learn of a new CA before it is served.
const TRUST: Duration = Duration::from_secs(10);

/// Who makes the pair that is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CertificateMode {
    /// The operator itself
    #[default]
    Automatic,
    /// cert-manager, which also publishes the CA
    CertManager,
    /// You: a Secret that you fill, and a CA that you put into the manifests
    External,
}

impl std::fmt::Display for CertificateMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Automatic => "automatic",
            Self::CertManager => "cert-manager",
            Self::External => "external",
        })
    }
}

/// What goes wrong with stored certificates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The API server refused, or did not answer. Try again, unless the message names what has to be mended first.
    #[error("cannot {action} Secret {namespace}/{name}: {source}{}", fix(source))]
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
    /// What was just issued would not pass as stored: the stored CA cannot issue for these names. Delete the Secret
    /// `<name>-ca`, or correct the names.
    #[error("a certificate under the CA in Secret {namespace}/{ca} cannot be served: {problem}")]
    Unusable {
        /// Namespace of the Secrets.
        namespace: String,
        /// Name of the CA's Secret.
        ca: String,
        /// What is wrong with what it issues.
        problem: String,
    },
    /// Others kept writing between our read and our write, or the API server was slow. Try again.
    #[error("the certificate Secrets did not come to rest; is another program writing {namespace}/{name}?")]
    Unsettled {
        /// Namespace of the Secret.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// What a person has to do about a refusal; nothing where trying again may help.
fn fix(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 403 => "; compare the roles with 'generate rbac'",
        kube::Error::Api(status) if status.code == 422 => "; delete this Secret, and it is made anew",
        _ => "",
    }
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
    /// Reads the stored material, making and repairing what is missing or cannot go on. All replicas that call this end
    /// with the same material.
    ///
    /// # Errors
    /// When the API server refuses, or does not come to rest within a minute. Nothing is lost by trying again.
    pub async fn ensure(&self) -> Result<Material, CertificateError> {
        timeout(ROUND, store::ensure(self)).await.unwrap_or_else(|_| Err(self.unsettled()))
    }

    /// The listener's configuration for `material`.
    pub fn tls_config(&self, material: &Material) -> Result<ServerConfig, TlsError> {
        tls_config(Arc::clone(&self.provider), material.cert_pem.as_bytes(), material.key_pem.as_bytes())
    }

    /// Watches the Secrets until `stop`: puts a changed pair into `tls`, repairs a damaged one, replaces one that is
    /// about to end, and tells `bundle` what callers must trust. A pair that cannot be served leaves the one before it
    /// in place.
    pub async fn maintain(
        &self,
        current: Material,
        tls: &ArcSwap<ServerConfig>,
        bundle: &Bundle,
        configurations: &Configurations,
        stop: &CancellationToken,
    ) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow(current, tls, bundle, configurations) => stop.cancelled().await,
        }
    }

    async fn follow(
        &self,
        mut current: Material,
        tls: &ArcSwap<ServerConfig>,
        bundle: &Bundle,
        configurations: &Configurations,
    ) {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let (pair, ca) = (watch_one(api.clone(), &self.secret), watch_one(api, &self.ca_secret()));
        let mut events = std::pin::pin!(stream::select(pair, ca));
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        let (mut due, mut not_before) = (Instant::now(), Instant::now());
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_))) => {
                        due = due.min(Instant::now().max(not_before));
                        continue;
                    }
                    Some(Ok(Event::Init | Event::InitApply(_))) => continue,
                    Some(Err(error)) => {
                        warn!(%error, secret = self.secret, "cannot watch the certificate Secrets");
                        continue;
                    }
                    None => return,
                },
                () = sleep_until(due) => {}
            }
            due = Instant::now() + LOOK_AGAIN;
            let changed = match self.ensure().await {
                Ok(material) if material == current => false,
                Ok(material) => {
                    self.serve(&current, &material, tls, bundle, configurations).await;
                    current = material;
                    true
                }
                Err(error) => {
                    warn!(%error, "certificates stay as they are");
                    due = Instant::now();
                    true
                }
            };
            // A round that failed, or that someone undoes again and again, is repeated ever more slowly.
            if changed {
                not_before = Instant::now() + pauses.next(Instant::now());
                due = due.max(not_before);
            }
        }
    }

    /// Puts a new pair into the listener. When it comes from another CA, callers first learn to trust both, so that
    /// none of their calls is lost.
    async fn serve(
        &self,
        current: &Material,
        new: &Material,
        tls: &ArcSwap<ServerConfig>,
        bundle: &Bundle,
        configurations: &Configurations,
    ) {
        let config = match self.tls_config(new) {
            Ok(config) => config,
            Err(error) => return warn!(%error, secret = self.secret, "the pair before it goes on serving"),
        };
        if current.ca_pem != new.ca_pem {
            bundle.publish(&format!("{}\n{}", new.ca_pem, current.ca_pem));
            // Callers that cannot be told are no reason to serve a pair for ever that the Secret does not hold.
            let _ = timeout(TRUST, bundle.published(configurations, |_| {})).await;
        }
        tls.store(Arc::new(config));
        bundle.publish(&new.ca_pem);
        info!(secret = self.secret, "serving the certificate that is now in the Secret");
    }

    fn ca_secret(&self) -> String {
        format!("{}-ca", self.secret)
    }

    fn unsettled(&self) -> CertificateError {
        CertificateError::Unsettled { namespace: self.namespace.clone(), name: self.secret.clone() }
    }
}
