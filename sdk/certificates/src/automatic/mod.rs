//! Certificates that the operator issues and maintains itself.
//!
//! A `round` reads both Secrets (`store`), repairs them and takes the steps of a rotation; `keeper` makes rounds for as
//! long as the process lives, and decides when the listener goes over to a new pair.

mod keeper;
mod round;
mod store;
#[cfg(test)]
mod tests;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};
use portcullis_pki::rotation::{Observed, Phase, RotationTiming, Step, Stored, renewal};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::bundle::{Addition, Bundle, FIRST_PAUSE, Origin, manager};
use super::metrics::CertificateMetrics;
use super::pauses::pauses;
use super::provided::CERTIFICATE_NAME;
use super::{CertificateError, Configurations, ServingCertificate, TimeOfDay};
use keeper::Keeper;
use portcullis_metrics::Metrics;
use round::Outcome;
pub use store::ca_data;
use store::pair_data;

/// The deadline of one round of reads and writes.
const ROUND: Duration = Duration::from_mins(1);
/// First and longest pause after a write that another writer overtook or undoes, within a round.
const OVERTAKEN: Duration = Duration::from_millis(50);
const LONGEST_OVERTAKEN: Duration = Duration::from_secs(5);

/// Certificates that the operator issues, stores and rotates itself.
#[derive(Clone)]
pub struct Automatic {
    /// Client that may read and write the two Secrets.
    pub client: Client,
    /// The operator's own namespace.
    pub namespace: String,
    /// Name of the Secret with the leaf; the CA's is `<name>-ca`.
    pub secret: String,
    /// The DNS names by which the server is called.
    pub dns_names: Vec<String>,
    /// The crypto provider of the TLS configurations.
    pub provider: Arc<CryptoProvider>,
    /// The objects in which the CA is published.
    pub configurations: Configurations,
    /// When certificates are replaced, and how long a rotation takes.
    pub timing: RotationTiming,
    /// The wall clock.
    pub time_of_day: TimeOfDay,
    /// The pause after the first round that failed or repaired something; the next ones are longer.
    pub(super) first_pause: Duration,
    pub(crate) metrics: CertificateMetrics,
}

impl std::fmt::Debug for Automatic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secret = format!("{}/{}", self.namespace, self.secret);
        f.debug_struct("Automatic").field("secret", &secret).field("dns_names", &self.dns_names).finish_non_exhaustive()
    }
}

impl Automatic {
    /// Certificates for these names in the Secret `secret` of `namespace`, with the default timing. The CA is published
    /// nowhere.
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
            time_of_day: TimeOfDay::system(),
            first_pause: FIRST_PAUSE,
            metrics: CertificateMetrics::default(),
        }
    }

    /// Publishes the CA in these objects.
    #[must_use]
    pub fn publish_to(mut self, configurations: Configurations) -> Self {
        self.configurations = configurations;
        self
    }

    /// Begins with this pause where a round failed or repaired something, and where a write of the CA did. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn pausing(mut self, first: Duration) -> Self {
        self.first_pause = first;
        self
    }

    /// Counts in these metrics, which `/metrics` shows.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = CertificateMetrics::clone(&metrics.families());
        self
    }

    /// Returns the publisher of the CA of `certificate`: as field manager `<operator>-ca-bundle`, in the entries that
    /// call a Service by one of these names.
    pub fn bundle(&self, operator: &str, certificate: &ServingCertificate) -> Bundle {
        Bundle::new(operator, &certificate.ca_pem)
            .with_services(self.dns_names.iter().cloned())
            .with_origin(Origin { secrets: self.secrets(), name: self.secret.clone() })
            .pausing(self.first_pause)
            .with_metrics(self.metrics.clone())
    }

    /// Reads the stored certificates, and creates or repairs what is missing or unusable. All replicas that call this
    /// end up with the same pair. If that can be served, a repair that is refused is left to [`Automatic::maintain`].
    ///
    /// # Errors
    /// When there is nothing to serve and the API server refuses, or the Secrets keep changing for a minute; and when
    /// [`timing`](Self::timing) is [refused](RotationTiming::check). It is safe to retry, unless the error
    /// [is permanent](CertificateError::is_permanent).
    pub async fn ensure(&self) -> Result<ServingCertificate, CertificateError> {
        let issue = |outcome: &Outcome| match outcome.step(self, Observed::default()) {
            Step::Issue => Step::Issue,
            _ => Step::Wait(None),
        };
        self.ensured(issue).await
    }

    /// Does as [`ensure`](Self::ensure), for certificates that are not checked again for a long time: those that a
    /// command makes at each upgrade, and [`ProvidedCertificates`](super::ProvidedCertificates) serve. One with less
    /// than [`RotationTiming::leaf_left`] is replaced by one that is valid for all of
    /// [`RotationTiming::leaf_validity`], under a new CA if the stored one would end before that; what is trusted stays
    /// trusted.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure), and when cert-manager fills the Secret: it would replace what is made here.
    pub async fn ensure_unattended(&self) -> Result<ServingCertificate, CertificateError> {
        self.is_not_filled_by_cert_manager().await?;
        let renew = |outcome: &Outcome| match &outcome.valid {
            Some(valid) => renewal(&valid.authorities, &valid.leaf, &self.timing, self.time_of_day.now()),
            None => Step::Wait(None),
        };
        self.ensured(renew).await
    }

    async fn is_not_filled_by_cert_manager(&self) -> Result<(), CertificateError> {
        let pair = self.read(&self.secret).await?;
        let Some(certificate) = pair.as_ref().and_then(|pair| pair.annotations().get(CERTIFICATE_NAME)) else {
            return Ok(());
        };
        // The annotation stays when the Certificate goes; a pair of our own says that it has gone.
        let Stored { authorities: Ok(_), leaf: Ok(_), .. } = self.stored().await? else {
            let (namespace, name) = (self.namespace.clone(), self.secret.clone());
            return Err(CertificateError::FilledByCertManager { namespace, name, certificate: certificate.clone() });
        };
        Ok(())
    }

    /// Has callers trust `certificate` beside what they trust now, in every entry that has a bundle: before an upgrade,
    /// so that the pair before it and this one are accepted until the bundle of this one is published alone. Returns
    /// the objects that were written.
    ///
    /// What is written is the field manager's own (`<operator>-ca-bundle`), also where another one has applied the
    /// bundle: that one no longer removes it when it applies a manifest without one.
    ///
    /// # Errors
    /// When the API server refuses. It is safe to retry.
    pub async fn add_to_bundles(&self, operator: &str, certificate: &ServingCertificate) -> kube::Result<Vec<String>> {
        let (client, services, ca_pem) = (&self.client, &self.dns_names, &certificate.ca_pem);
        Addition { client, manager: manager(operator), services, ca_pem }.publish(&self.configurations).await
    }

    /// Takes the steps that `next` returns, and returns what is stored then.
    async fn ensured(&self, next: impl Fn(&Outcome) -> Step) -> Result<ServingCertificate, CertificateError> {
        let work = async {
            let mut pauses = pauses(OVERTAKEN, LONGEST_OVERTAKEN);
            loop {
                let outcome = self.round(None).await?;
                let step = next(&outcome);
                if let Some(refused) = &outcome.refused {
                    warn!(
                        error = %refused,
                        namespace = self.namespace,
                        secret = self.secret,
                        "cannot write the certificate Secrets, which need a repair or a renewal; \
                         serving the certificate as it is"
                    );
                } else if let (Some(valid), false) = (&outcome.valid, matches!(step, Step::Wait(_))) {
                    match self.advance(step, valid, &outcome).await {
                        // The write succeeded, or another writer was faster: read again.
                        Ok(_) => {
                            sleep(pauses.next().unwrap_or(LONGEST_OVERTAKEN)).await;
                            continue;
                        }
                        Err(error) => warn!(
                            %error,
                            namespace = self.namespace,
                            secret = self.secret,
                            "cannot go on with a renewal or rotation; serving the certificate as it is"
                        ),
                    }
                }
                return Ok(outcome.certificate);
            }
        };
        timeout(ROUND, Box::pin(work)).await.unwrap_or_else(|_| Err(self.unsettled()))
    }

    /// Starts a rotation of the CA, which the replicas then carry out; does nothing if one is under way. Returns the
    /// phase of the rotation.
    ///
    /// # Errors
    /// When the API server refuses, or what is stored is damaged.
    pub async fn rotate(&self) -> Result<Phase, CertificateError> {
        let work = async {
            let mut pauses = pauses(OVERTAKEN, LONGEST_OVERTAKEN);
            loop {
                let outcome = self.round(None).await?;
                let Some(valid) = &outcome.valid else {
                    return Err(outcome.refused.unwrap_or_else(|| self.unsettled()));
                };
                match valid.authorities.phase() {
                    Phase::Steady => {
                        self.advance(Step::MakeNext, valid, &outcome).await?;
                        sleep(pauses.next().unwrap_or(LONGEST_OVERTAKEN)).await;
                    }
                    under_way => return Ok(under_way),
                }
            }
        };
        timeout(ROUND, Box::pin(work)).await.unwrap_or_else(|_| Err(self.unsettled()))
    }

    /// Reads what is stored, and what is wrong with it. Writes nothing.
    ///
    /// # Errors
    /// When the API server does not let the Secrets be read.
    pub async fn stored(&self) -> Result<Stored, CertificateError> {
        let (ca, pair) = (self.read(&self.ca_secret()).await?, self.read(&self.secret).await?);
        Ok(Stored::read(&ca_data(ca.as_ref()), &pair_data(pair.as_ref()), &self.dns_names, self.time_of_day.now()))
    }

    /// The names of the Secrets of the CA and of the pair, of each that does not exist.
    pub async fn missing_secrets(&self) -> Result<(Option<String>, Option<String>), CertificateError> {
        let (ca, pair) = (self.read(&self.ca_secret()).await?, self.read(&self.secret).await?);
        Ok((ca.is_none().then(|| self.ca_secret()), pair.is_none().then(|| self.secret.clone())))
    }

    /// The stored certificate chain, valid or not.
    pub async fn stored_chain(&self) -> Result<Option<String>, CertificateError> {
        let pair = self.read(&self.secret).await?;
        let chain = pair_data(pair.as_ref()).tls_crt.map(|chain| String::from_utf8_lossy(chain).into_owned());
        Ok(chain)
    }

    /// Watches the Secrets until `stop` is cancelled: puts a changed pair into `tls`, repairs a damaged one, replaces
    /// one that is about to expire, rotates the CA, and sets in `bundle` what callers must trust. If a new pair cannot
    /// be served, the previous one stays.
    pub async fn maintain(
        &self,
        current: ServingCertificate,
        tls: &ArcSwap<ServerConfig>,
        bundle: &Bundle,
        stop: &CancellationToken,
    ) {
        let keeper = Keeper::new(self, current, tls, bundle);
        tokio::select! {
            () = stop.cancelled() => {}
            () = keeper.keep() => stop.cancelled().await,
        }
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn ca_secret(&self) -> String {
        format!("{}-ca", self.secret)
    }

    fn unsettled(&self) -> CertificateError {
        CertificateError::Unsettled { namespace: self.namespace.clone(), name: self.secret.clone() }
    }
}
