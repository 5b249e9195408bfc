//! Certificates that the operator makes and keeps by itself.

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

use super::bundle::{Bundle, Configurations, watch_one};
use super::clock::Clock;
use super::metrics::CertificateMetrics;
use super::{CA_VALIDITY, CertificateError, LEAF_VALIDITY, MIN_LEFT, Material, store};
use crate::metrics::Metrics;
use crate::pauses::Pauses;
use crate::server::{TlsError, tls_config};

/// How often the stored pair is looked at when nothing happens to it.
const LOOK_AGAIN: Duration = Duration::from_hours(1);
/// How long one round of reading and writing may take.
const ROUND: Duration = Duration::from_mins(1);
/// First and longest pause between rounds that failed or changed something.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// How long callers are given to learn of a new CA before it is served.
const TRUST: Duration = Duration::from_secs(10);

/// The times of certificates and of their rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotationTiming {
    /// How long a new CA must have been seen everywhere before anything is issued under it: API servers take up a
    /// changed configuration a little after we have read it back.
    pub settle: Duration,
    /// How long a CA stays trusted after the last certificate under it was replaced.
    pub drain: Duration,
    /// A CA with less than this left is rotated.
    pub ca_left: SignedDuration,
    /// A leaf with less than this left is replaced.
    pub leaf_left: SignedDuration,
    /// How long a new CA is valid.
    pub ca_validity: SignedDuration,
    /// How long a new leaf is valid.
    pub leaf_validity: SignedDuration,
}

impl Default for RotationTiming {
    fn default() -> Self {
        Self {
            settle: Duration::from_mins(2),
            drain: Duration::from_hours(1),
            ca_left: LEAF_VALIDITY + MIN_LEFT,
            leaf_left: MIN_LEFT,
            ca_validity: CA_VALIDITY,
            leaf_validity: LEAF_VALIDITY,
        }
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
    /// Where callers find the CA.
    pub configurations: Configurations,
    /// When certificates are replaced, and how long a rotation takes.
    pub timing: RotationTiming,
    /// What time it is.
    pub clock: Clock,
    pub(crate) metrics: CertificateMetrics,
}

impl std::fmt::Debug for Automatic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secret = format!("{}/{}", self.namespace, self.secret);
        f.debug_struct("Automatic").field("secret", &secret).field("dns_names", &self.dns_names).finish_non_exhaustive()
    }
}

impl Automatic {
    /// Certificates for these names in the Secret `secret` of `namespace`, published nowhere, at the usual times.
    pub fn new(
        client: Client,
        namespace: impl Into<String>,
        secret: impl Into<String>,
        dns_names: Vec<String>,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        Self {
            client,
            namespace: namespace.into(),
            secret: secret.into(),
            dns_names,
            provider,
            configurations: Configurations::default(),
            timing: RotationTiming::default(),
            clock: Clock::system(),
            metrics: CertificateMetrics::default(),
        }
    }

    /// Publishes the CA in these objects.
    #[must_use]
    pub fn published_in(mut self, configurations: Configurations) -> Self {
        self.configurations = configurations;
        self
    }

    /// Counts in these metrics, which `/metrics` shows.
    #[must_use]
    pub fn counted_in(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.certificates();
        self
    }

    /// The publisher of the CA that goes with `material`: as field manager `<operator>-ca-bundle`, in the entries that
    /// call a Service of this namespace.
    pub fn bundle(&self, operator: &str, material: &Material) -> Bundle {
        Bundle::new(operator, &material.ca_pem).of_services_in(&self.namespace)
    }

    /// Reads the stored material, making and repairing what is missing or cannot go on. All replicas that call this end
    /// with the same material.
    ///
    /// # Errors
    /// When the API server refuses, or does not come to rest within a minute. Nothing is lost by trying again.
    pub async fn ensure(&self) -> Result<Material, CertificateError> {
        timeout(ROUND, store::ensure(self)).await.unwrap_or_else(|_| Err(self.unsettled()))
    }

    /// The listener's configuration for `material`.
    ///
    /// # Errors
    /// When it does not read, or key and certificate do not belong together.
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
        stop: &CancellationToken,
    ) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow(current, tls, bundle) => stop.cancelled().await,
        }
    }

    async fn follow(&self, mut current: Material, tls: &ArcSwap<ServerConfig>, bundle: &Bundle) {
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
                    self.serve(&current, &material, tls, bundle).await;
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
    async fn serve(&self, current: &Material, new: &Material, tls: &ArcSwap<ServerConfig>, bundle: &Bundle) {
        let config = match self.tls_config(new) {
            Ok(config) => config,
            Err(error) => return warn!(%error, secret = self.secret, "the pair before it goes on serving"),
        };
        if current.ca_pem != new.ca_pem {
            bundle.publish(&format!("{}\n{}", new.ca_pem, current.ca_pem));
            // Callers that cannot be told are no reason to serve a pair for ever that the Secret does not hold.
            let _ = timeout(TRUST, bundle.published(&self.configurations, |_| {})).await;
        }
        tls.store(Arc::new(config));
        bundle.publish(&new.ca_pem);
        info!(secret = self.secret, "serving the certificate that is now in the Secret");
    }

    pub(super) fn ca_secret(&self) -> String {
        format!("{}-ca", self.secret)
    }

    fn unsettled(&self) -> CertificateError {
        CertificateError::Unsettled { namespace: self.namespace.clone(), name: self.secret.clone() }
    }
}
