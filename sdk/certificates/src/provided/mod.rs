//! Certificates that cert-manager or a user provides.

mod check;
mod cure;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt as _;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};
use portcullis_pki::Certificate;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use cure::ProvidedBy;

use super::bundle::Bundle;
use super::follow::follow;
use super::metrics::CertificateMetrics;
use super::{CertificateError, Configurations, ServingCertificate, TimeOfDay, read};
use check::{Problem, Sound};
use cure::Place;
use portcullis_client::error_message;
use portcullis_metrics::Metrics;

/// The pause between two checks of the pair while no event comes: it may have expired.
const LOOK_AGAIN: Duration = Duration::from_mins(10);
/// The time that API servers get to pick up a bundle that was seen as published.
const SETTLE: Duration = Duration::from_secs(10);
/// The time before expiry from which a warning is logged, at every [`REMIND`].
const SOON: SignedDuration = SignedDuration::from_hours(30 * 24);
/// The pause between two such warnings.
const REMIND: Duration = Duration::from_hours(24);
/// The annotation by which cert-manager says which Certificate a Secret belongs to.
pub(super) const CERTIFICATE_NAME: &str = "cert-manager.io/certificate-name";

/// A pair from a Secret (`tls.crt`, `tls.key`, `ca.crt`) that cert-manager or a user fills, and whose CA they publish.
/// Nothing is ever written.
///
/// Every part is checked before it is served: all keys exist and can be read, certificate and key belong together, the
/// certificate is for servers, valid now and for the name by which the API server calls, and the CA in `ca.crt` has
/// signed it and may. A failure is logged in one sentence with what to do, and the previous pair stays.
///
/// A new pair is served once every entry in the cluster trusts it, or when the previous one has expired. So a CA can be
/// replaced in any order without a failed call, as long as both are published for a while.
#[derive(Clone)]
pub struct ProvidedCertificates {
    /// Client that may watch the Secret and the configurations.
    pub client: Client,
    /// The operator's own namespace.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// The name by which the API server calls.
    pub server_name: String,
    /// The crypto provider of the TLS configurations.
    pub provider: Arc<CryptoProvider>,
    /// The owner of the Secret, which decides the advice in errors.
    pub provided_by: ProvidedBy,
    /// The objects in which the CA is published.
    pub configurations: Configurations,
    /// The time to wait, after a bundle was seen everywhere, before serving a pair that needs it: API servers pick up a
    /// changed configuration a little later.
    pub settle: Duration,
    /// The wall clock.
    pub time_of_day: TimeOfDay,
    /// Whether this writes the CA into the objects.
    pub(super) publishes: bool,
    pub(super) metrics: CertificateMetrics,
}

impl std::fmt::Debug for ProvidedCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secret = format!("{}/{}", self.namespace, self.secret);
        f.debug_struct("ProvidedCertificates")
            .field("secret", &secret)
            .field("provided_by", &self.provided_by)
            .finish_non_exhaustive()
    }
}

impl ProvidedCertificates {
    /// The pair in Secret `secret` of `namespace`, served as `server_name`.
    pub fn new(
        client: Client,
        namespace: impl Into<String>,
        secret: impl Into<String>,
        server_name: impl Into<String>,
        provided_by: ProvidedBy,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        Self {
            client,
            namespace: namespace.into(),
            secret: secret.into(),
            server_name: server_name.into(),
            provider,
            provided_by,
            configurations: Configurations::default(),
            settle: SETTLE,
            time_of_day: TimeOfDay::system(),
            publishes: false,
            metrics: CertificateMetrics::default(),
        }
    }

    /// Names the objects in which the CA is published.
    #[must_use]
    pub fn publish_to(mut self, configurations: Configurations) -> Self {
        self.configurations = configurations;
        self
    }

    /// Writes `ca.crt` of the Secret into the objects, as field manager `<operator>-ca-bundle`: for a command that
    /// publishes what another one has made.
    #[must_use]
    pub fn with_publishing(self) -> Self {
        Self { publishes: true, ..self }
    }

    /// Counts in these metrics, which `/metrics` shows.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = CertificateMetrics::clone(&metrics.families());
        self
    }

    /// Returns the observer of whether callers accept `certificate`, in the entries that call this Service.
    pub fn bundle(&self, certificate: &ServingCertificate) -> Bundle {
        let bundle = Bundle::observing(certificate, &self.place(None).publish()).with_services([&self.server_name]);
        // With --wait, Helm runs the hook that publishes after the Pods are ready.
        let bundle = if self.provided_by == ProvidedBy::Hooks { bundle.published_later() } else { bundle };
        bundle.timed_by(self.time_of_day.clone())
    }

    /// Returns that observer, or a publisher if this publishes.
    pub(super) fn bundle_of(&self, operator: &str, certificate: &ServingCertificate) -> Bundle {
        if self.publishes {
            return Bundle::new(operator, &certificate.ca_pem).with_services([&self.server_name]);
        }
        self.bundle(certificate)
    }

    /// Sets in `bundle` what callers must trust by the stored certificates.
    pub(super) async fn publish_stored(&self, bundle: &Bundle) -> Result<(), CertificateError> {
        let (stored, ..) = self.stored().await?;
        if self.publishes {
            bundle.publish(&stored.ca_pem);
        } else {
            bundle.expect(&stored);
        }
        Ok(())
    }

    /// Reads and checks the Secret.
    ///
    /// # Errors
    /// When the API server refuses, or the Secret cannot be served: the error says why, and what to do.
    pub async fn ensure(&self) -> Result<ServingCertificate, CertificateError> {
        let secret = self.read().await?;
        let sound = self.check(secret.as_ref()).inspect_err(|_| self.metrics.reload_failed())?;
        self.serves(&sound);
        Ok(sound.material)
    }

    /// Reads and checks the Secret, and returns the pair, its leaf, and the certificate by which callers trust it.
    pub async fn stored(&self) -> Result<(ServingCertificate, Certificate, Certificate), CertificateError> {
        let Sound { material, leaf, ca } = self.check(self.read().await?.as_ref())?;
        Ok((material, leaf, ca))
    }

    async fn read(&self) -> Result<Option<Secret>, CertificateError> {
        read(&self.client, &self.namespace, &self.secret).await
    }

    /// Watches the Secret until `stop` is cancelled: puts a valid new pair into `tls` once callers accept it, and logs
    /// what is wrong with an invalid one or with the published bundles. The previous pair stays meanwhile.
    pub async fn maintain(
        &self,
        current: ServingCertificate,
        tls: &ArcSwap<ServerConfig>,
        bundle: &Bundle,
        stop: &CancellationToken,
    ) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.report(bundle) => {}
            () = self.take_up(current, tls, bundle) => stop.cancelled().await,
        }
    }

    /// Logs when callers no longer accept the served certificate: readiness does not show that, because the process
    /// stays ready.
    async fn report(&self, bundle: &Bundle) {
        let mut accepted = false;
        let tell = |missing: Option<&str>| {
            match missing {
                None if !accepted => {
                    info!(secret = self.secret, "the published CA bundles trust the served certificate");
                }
                Some(missing) if accepted => {
                    warn!(
                        secret = self.secret,
                        missing,
                        "a published CA bundle does not trust the served certificate: calls fail until it does"
                    );
                }
                _ => {}
            }
            accepted = missing.is_none();
        };
        bundle.report(&self.configurations, tell).await;
    }

    async fn take_up(&self, mut current: ServingCertificate, tls: &ArcSwap<ServerConfig>, bundle: &Bundle) {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut versions = std::pin::pin!(follow(api, &self.secret));
        // The pair that was read at start counts until the watch delivers.
        let (mut live, mut seen): (Option<Secret>, bool) = (None, false);
        let mut next: Option<Candidate> = None;
        let mut told = String::new();
        // An expiry is reported at start, and at once for every new pair.
        let mut reminded = Instant::now();
        // The timer runs on while the watch fails.
        let mut look = interval_at(Instant::now() + LOOK_AGAIN, LOOK_AGAIN);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                version = versions.next() => match version {
                    Some(Ok(version)) => (live, seen) = (version, true),
                    Some(Err(error)) => {
                        warn!(error = error_message(&error), secret = self.secret, "cannot watch the certificate Secret; retrying");
                        continue;
                    }
                    None => return,
                },
                () = self.may_serve(next.as_ref(), &current, bundle, &mut told) => {
                    if let Some(Candidate { sound, config }) = next.take() {
                        tls.store(Arc::new(config));
                        bundle.expect(&sound.material);
                        self.serves(&sound);
                        info!(secret = self.secret, ends = %sound.leaf.not_after, "Updated current TLS certificate");
                        current = sound.material;
                    }
                    continue;
                }
                _ = look.tick() => {}
            }
            if !seen {
                continue;
            }
            let candidate = self.check(live.as_ref()).and_then(|sound| {
                let config = sound.material.tls_config(&self.provider)?;
                Ok(Candidate { sound, config })
            });
            match candidate {
                Ok(candidate) if candidate.sound.material == current => {
                    next = None;
                    if reminded.elapsed() >= REMIND {
                        reminded = Instant::now();
                        self.remind(&candidate.sound);
                    }
                }
                Ok(candidate) if next.as_ref().is_some_and(|next| next.sound == candidate.sound) => {}
                Ok(candidate) => next = Some(candidate),
                Err(error) => {
                    next = None;
                    self.metrics.reload_failed();
                    warn!(
                        %error,
                        secret = self.secret,
                        "cannot serve the certificate in the Secret; serving the previous one until the Secret changes"
                    );
                }
            }
        }
    }

    /// Ends when the candidate is to be served: callers accept it, or the previous pair has expired.
    async fn may_serve(
        &self,
        next: Option<&Candidate>,
        current: &ServingCertificate,
        bundle: &Bundle,
        told: &mut String,
    ) {
        let Some(Candidate { sound, .. }) = next else { return std::future::pending().await };
        let waiting = |missing: &str| {
            if told != missing {
                missing.clone_into(told);
                info!(secret = self.secret, missing, "a new certificate waits until callers accept it");
            }
        };
        let accepted = async {
            bundle.wait_until_accepted(&sound.material, &self.configurations, waiting).await;
            // While callers accept both, waiting costs nothing; after that, every call fails.
            let both = bundle.wait_until_refused(&self.configurations);
            let _ = timeout(self.settle, both).await;
        };
        tokio::select! {
            () = accepted => {}
            () = self.ended(current) => {
                warn!(secret = self.secret, "the served certificate has expired; serving the new one though callers may not trust it yet");
            }
        }
    }

    /// Ends when the pair is not valid any more.
    async fn ended(&self, material: &ServingCertificate) {
        // A certificate that was served before can be parsed.
        let Ok(leaf) = Certificate::from_pem(material.cert_pem.as_bytes()) else { return };
        loop {
            let left = leaf.not_after.duration_since(self.time_of_day.now());
            let Ok(left) = Duration::try_from(left) else { return };
            if left.is_zero() {
                return;
            }
            // The clock may be set meanwhile.
            tokio::time::sleep(left.min(LOOK_AGAIN)).await;
        }
    }

    fn serves(&self, sound: &Sound) {
        self.metrics.ends("leaf", sound.leaf.not_after);
        self.metrics.ends("ca", sound.ca.not_after);
        self.remind(sound);
    }

    /// Logs that the served certificate expires soon, and what to do; cert-manager renews by itself.
    fn remind(&self, sound: &Sound) {
        let ends = sound.leaf.not_after.min(sound.ca.not_after);
        if ends.duration_since(self.time_of_day.now()) >= SOON {
            return;
        }
        let fix = match self.provided_by {
            ProvidedBy::CertManager => return,
            ProvidedBy::User => "have a new one issued and put it into the Secret",
            ProvidedBy::Hooks => "upgrade the installation, which makes a new one",
        };
        warn!(secret = self.secret, %ends, "the certificate, or the CA that it is under, ends soon: {fix}");
    }

    fn check(&self, secret: Option<&Secret>) -> Result<Sound, CertificateError> {
        check::check(secret, &self.server_name, &self.provider, self.time_of_day.now())
            .map_err(|problem| self.refused(secret, &problem))
    }

    fn refused(&self, secret: Option<&Secret>, problem: &Problem) -> CertificateError {
        CertificateError::ProvidedCertificates {
            namespace: self.namespace.clone(),
            name: self.secret.clone(),
            problem: problem.to_string(),
            cure: self.place(secret).cure(problem),
        }
    }

    fn place<'a>(&'a self, secret: Option<&'a Secret>) -> Place<'a> {
        Place {
            provided_by: self.provided_by,
            namespace: &self.namespace,
            secret: &self.secret,
            server_name: &self.server_name,
            certificate: secret
                .and_then(|secret| secret.annotations().get(CERTIFICATE_NAME))
                // 'generate certificates' gives it this name.
                .unwrap_or(&self.secret),
        }
    }
}

/// A valid pair that is not served yet.
struct Candidate {
    sound: Sound,
    config: ServerConfig,
}
