//! Maintains the stored certificates, and the listener.

use std::time::Duration;

use arc_swap::ArcSwap;
use futures::{StreamExt as _, stream};
use portcullis_pki::Certificate;
use portcullis_pki::rotation::{Anchor, Observed, Phase, Step};
use rustls::ServerConfig;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::round::Outcome;
use super::{Automatic, ROUND};
use crate::bundle::Bundle;
use crate::follow::follow;
use crate::pauses::pauses;
use crate::{CertificateError, ServingCertificate};
use portcullis_client::error_message;

/// The pause between two rounds while no event comes.
const LOOK_AGAIN: Duration = Duration::from_hours(1);
/// The time beyond the CA's settle time after which a bundle that is still not published everywhere counts as a
/// failure.
const PATIENCE: Duration = Duration::from_mins(1);
/// The longest pause between rounds that failed or repaired something.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// One replica's view of the stored certificates.
pub(super) struct Keeper<'a> {
    source: &'a Automatic,
    tls: &'a ArcSwap<ServerConfig>,
    bundle: &'a Bundle,
    /// The pair that the listener serves, with the bundle that callers must trust for it.
    served: ServingCertificate,
    /// The pair that was stored at the last round. `unchanged` is since when it has been stored, `wanted` since when
    /// its bundle has been.
    stored: ServingCertificate,
    unchanged: Instant,
    wanted: Instant,
    /// The time since when a new pair waits to be served.
    waiting: Option<Instant>,
    /// The step that this replica took last.
    taken: Option<Step>,
}

impl<'a> Keeper<'a> {
    pub(super) fn new(
        source: &'a Automatic,
        served: ServingCertificate,
        tls: &'a ArcSwap<ServerConfig>,
        bundle: &'a Bundle,
    ) -> Self {
        let (stored, now) = (served.clone(), Instant::now());
        Self { source, tls, bundle, served, stored, unchanged: now, wanted: now, waiting: None, taken: None }
    }

    /// Runs rounds forever.
    pub(super) async fn keep(mut self) {
        let source = self.source;
        let (pair, ca) = (follow(source.secrets(), &source.secret), follow(source.secrets(), &source.ca_secret()));
        let mut secrets = std::pin::pin!(stream::select(pair, ca));
        let mut published = self.bundle.changes();
        let mut pauses = pauses(source.first_pause, LONGEST_PAUSE);
        let (mut due, mut not_before) = (Instant::now(), Instant::now());
        loop {
            tokio::select! {
                changed = secrets.next() => match changed {
                    Some(Ok(_)) => {
                        due = due.min(Instant::now().max(not_before));
                        continue;
                    }
                    Some(Err(error)) => {
                        warn!(error = error_message(&error), secret = source.secret, "cannot watch the certificate Secrets; retrying");
                        continue;
                    }
                    None => return,
                },
                () = published.next() => {
                    due = due.min(Instant::now().max(not_before));
                    continue;
                }
                () = sleep_until(due) => {}
            }
            let round = timeout(ROUND, self.round()).await.unwrap_or_else(|_| Err(source.unsettled()));
            let (pause, next) = round.unwrap_or_else(|error| self.failed(&error));
            // A round that failed, or that someone undoes again and again, is repeated at growing intervals.
            if pause {
                not_before = Instant::now() + pauses.next().unwrap_or(LONGEST_PAUSE);
            }
            due = (Instant::now() + next).max(not_before);
        }
    }

    async fn round(&mut self) -> Result<(bool, Duration), CertificateError> {
        let outcome = self.source.round(Some(&self.served)).await?;
        self.take(outcome).await
    }

    fn failed(&self, error: &CertificateError) -> (bool, Duration) {
        let (namespace, secret) = (&self.source.namespace, &self.source.secret);
        warn!(%error, namespace, secret, "cannot repair or rotate the certificates; keeping them as they are and retrying");
        self.source.metrics.reload_failed();
        (true, Duration::ZERO)
    }

    /// Applies the outcome of a round: publishes, serves, and takes the next step. Returns whether the round repaired
    /// something or repeated itself, and when to check again.
    async fn take(&mut self, outcome: Outcome) -> Result<(bool, Duration), CertificateError> {
        let now = Instant::now();
        if outcome.certificate != self.stored {
            if outcome.certificate.ca_pem != self.stored.ca_pem {
                self.wanted = now;
            }
            self.stored = outcome.certificate.clone();
            self.unchanged = now;
        }
        self.bundle.publish(&self.stored.ca_pem);
        let held = self.bundle.published_since(&self.source.configurations, &self.stored.ca_pem, self.wanted);
        let held = held.map(|since| since.elapsed());
        let serve = self.serve(held);
        self.measure(&outcome);
        if let Some(refused) = &outcome.refused {
            let (_, next) = self.failed(refused);
            return Ok((true, next));
        }
        let observed = Observed { published_for: held, unchanged_for: self.unchanged.elapsed() };
        let (again, step) = match outcome.step(self.source, observed) {
            Step::Wait(time) => (false, time.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN)),
            step => {
                if let Some(valid) = &outcome.valid {
                    self.source.advance(step, valid, &outcome).await?;
                }
                // No step of a rotation follows itself, so another client has undone it.
                (self.taken.replace(step) == Some(step), Duration::ZERO)
            }
        };
        Ok((outcome.repaired || again, step.min(serve)))
    }

    /// Puts a new pair into the listener once callers trust it. Returns when to look again.
    ///
    /// There is no hurry: while the previous pair is valid and trusted, serving it works.
    fn serve(&mut self, held: Option<Duration>) -> Duration {
        if self.stored.cert_pem == self.served.cert_pem && self.stored.key_pem == self.served.key_pem {
            self.served.ca_pem.clone_from(&self.stored.ca_pem);
            self.waiting = None;
            return LOOK_AGAIN;
        }
        let now = self.source.time_of_day.now();
        let (old, new) = (self.served.cert_pem.as_bytes(), self.stored.cert_pem.as_bytes());
        let anchors = Anchor::read(self.stored.ca_pem.as_bytes(), now);
        let trusted: Vec<_> = anchors.iter().filter(|anchor| anchor.verifies(old, now)).collect();
        let works = Certificate::from_pem(old).is_ok_and(|leaf| now <= leaf.not_after) && !trusted.is_empty();
        let same = trusted.iter().any(|anchor| anchor.verifies(new, now));
        let settle = self.source.timing.settle;
        if works && !same && held.is_none_or(|time| time < settle) {
            let secret = &self.source.secret;
            match self.waiting {
                None => info!(secret, "serving the previous certificate until callers trust the new one"),
                Some(since) if since.elapsed() > settle + PATIENCE => {
                    self.source.metrics.reload_failed();
                    warn!(secret, "serving the previous certificate: callers still do not trust the new one");
                }
                Some(_) => {}
            }
            self.waiting.get_or_insert_with(Instant::now);
            return held.map_or(settle + PATIENCE, |time| settle.saturating_sub(time));
        }
        self.waiting = None;
        match self.stored.tls_config(&self.source.provider) {
            Ok(config) => {
                self.tls.store(config.into());
                self.served = self.stored.clone();
                info!(secret = self.source.secret, "Updated current TLS certificate");
            }
            Err(error) => {
                self.source.metrics.reload_failed();
                warn!(%error, secret = self.source.secret, "cannot serve the new certificate; serving the previous one");
            }
        }
        LOOK_AGAIN
    }

    fn measure(&self, outcome: &Outcome) {
        let metrics = &self.source.metrics;
        if let Ok(leaf) = Certificate::from_pem(self.served.cert_pem.as_bytes()) {
            metrics.ends("leaf", leaf.not_after);
        }
        if let Some(valid) = &outcome.valid {
            metrics.ends("ca", valid.authorities.current.certificate().not_after);
            metrics.in_phase(match valid.authorities.phase() {
                Phase::Publishing => 1,
                Phase::Draining => 2,
                _ => 0,
            });
        }
    }
}
