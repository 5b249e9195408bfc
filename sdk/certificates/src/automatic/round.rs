//! One round reads both Secrets, repairs them, and takes one step of a rotation.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use portcullis_pki::rotation::{Anchor, Authorities, Observed, Repair, Step, Stored, bundle, next_repair, step};
use portcullis_pki::{Ca, Certificate, CertificateParams, Pair, PairProblem, Usage, check_server_pair};
use tokio::time::sleep;
use tracing::{info, warn};

use super::store::{ca_data, pair_data};
use super::{Automatic, LONGEST_OVERTAKEN, OVERTAKEN};
use crate::pauses::pauses;
use crate::{CertificateError, ServingCertificate, published};
use portcullis_client::own_sentence;

/// Clocks of API servers differ a little from ours.
const BACKDATED: SignedDuration = SignedDuration::from_hours(1);
/// The longest subject CN (RFC 5280, ub-common-name).
const COMMON_NAME: usize = 64;

/// The result of a round.
pub(super) struct Outcome {
    /// The pair to serve, and the bundle that callers must trust.
    pub(super) certificate: ServingCertificate,
    /// The stored authorities and leaf; `None` if one of them is damaged.
    pub(super) valid: Option<Valid>,
    /// The error of a repair that failed.
    pub(super) failed: Option<CertificateError>,
    /// Whether this round wrote something.
    pub(super) repaired: bool,
    ca_secret: Option<Secret>,
    pair_secret: Option<Secret>,
}

/// Authorities that can issue, and a leaf that can be served under them.
pub(super) struct Valid {
    pub(super) authorities: Authorities,
    pub(super) leaf: Certificate,
}

/// Both Secrets as they were read, and what callers must trust.
struct State {
    ca_secret: Option<Secret>,
    pair_secret: Option<Secret>,
    /// The stored pair, with the bundle of the stored and of the adopted authorities.
    certificate: ServingCertificate,
    /// The authorities, the adopted ones among them, and the leaf.
    stored: Stored,
    /// Authorities to keep trusting beside a new one, if no stored one can issue.
    trusted: Vec<Anchor>,
    /// Whether `stored` trusts an authority that is not in the Secret.
    adopted: bool,
}

impl Outcome {
    /// Decides the next step of the rotation.
    pub(super) fn step(&self, source: &Automatic, observed: Observed) -> Step {
        let Some(Valid { authorities, leaf }) = &self.valid else { return Step::Wait(None) };
        let now = source.time_of_day.now();
        step(authorities, self.certificate.cert_pem.as_bytes(), leaf, &source.timing, observed, now)
    }
}

impl State {
    /// Ends the round with this state, whose leaf can be served. `failed` is the error of the last repair.
    fn into_outcome(self, repaired: bool, failed: Option<CertificateError>) -> Outcome {
        let Self { ca_secret, pair_secret, certificate, stored, .. } = self;
        let valid = match (stored.authorities, stored.leaf) {
            (Ok(authorities), Ok(leaf)) => Some(Valid { authorities, leaf }),
            _ => None,
        };
        Outcome { certificate, valid, failed, repaired, ca_secret, pair_secret }
    }
}

impl Automatic {
    /// Reads both Secrets, and repairs them until they are valid. The authorities of `served` stay trusted, whatever is
    /// stored.
    ///
    /// A round makes each repair at most once: if another client undoes it, the next round tries again after a pause.
    pub(super) async fn round(&self, served: Option<&ServingCertificate>) -> Result<Outcome, CertificateError> {
        self.timing.check()?;
        let mut pauses = pauses(OVERTAKEN, LONGEST_OVERTAKEN);
        let mut done = Vec::new();
        loop {
            let state = self.read_state(served).await?;
            let Some(repair) = next_repair(&state.stored, state.adopted) else {
                return Ok(state.into_outcome(!done.is_empty(), None));
            };
            let written = if done.contains(&repair) {
                Err(self.unsettled())
            } else {
                self.repair(repair, &state, served.is_none()).await
            };
            match written {
                Ok(true) => done.push(repair),
                // Another replica was faster.
                Ok(false) => sleep(pauses.next().unwrap_or(LONGEST_OVERTAKEN)).await,
                Err(error) => {
                    self.log_failed_repair(repair, &state);
                    if state.stored.leaf.is_err() {
                        return Err(error);
                    }
                    return Ok(state.into_outcome(!done.is_empty(), Some(error)));
                }
            }
        }
    }

    /// Reads both Secrets, and the published bundles if something is damaged.
    async fn read_state(&self, served: Option<&ServingCertificate>) -> Result<State, CertificateError> {
        let now = self.time_of_day.now();
        let (ca_secret, pair_secret) = (self.read(&self.ca_secret()).await?, self.read(&self.secret).await?);
        let pair = pair_data(pair_secret.as_ref());
        let mut stored = Stored::read(&ca_data(ca_secret.as_ref()), &pair, &self.dns_names, now);
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let (cert_pem, key_pem) = (text(pair.tls_crt), text(pair.tls_key));
        let mut certificate = ServingCertificate { cert_pem, key_pem, ca_pem: String::new() };
        // rustls may refuse a pair that passed our own checks.
        if stored.leaf.is_ok()
            && let Err(error) = certificate.tls_config(&self.provider)
        {
            stored.leaf = Err(PairProblem::Key(error.to_string()));
        }
        let damaged = stored.leaf.is_err() || !stored.damage.is_empty();
        let (mut trusted, mut adopted) = (Vec::new(), false);
        match &mut stored.authorities {
            Ok(authorities) => {
                // The stored CA may be valid but not the one that other replicas serve under: keep trusting theirs.
                adopted = authorities.trust(if damaged {
                    self.still_trusted(Vec::new(), &certificate, served).await
                } else {
                    trusted_through(served, now)
                });
                certificate.ca_pem = authorities.bundle();
            }
            Err(lost) => {
                let mut known = lost.remains.clone();
                known.extend(pair.ca_crt.map(|pem| Anchor::read(pem, now)).unwrap_or_default());
                trusted = self.still_trusted(known, &certificate, served).await;
                certificate.ca_pem = bundle(&trusted);
            }
        }
        Ok(State { ca_secret, pair_secret, certificate, stored, trusted, adopted })
    }

    /// Makes one repair. Returns whether this writer won. `starting` says that this process serves nothing yet.
    async fn repair(&self, repair: Repair, state: &State, starting: bool) -> Result<bool, CertificateError> {
        let State { ca_secret, pair_secret, certificate, stored, trusted, adopted } = state;
        match (repair, &stored.authorities) {
            (Repair::Store, Ok(authorities)) => {
                let written = self.write_authorities(ca_secret.as_ref(), authorities).await?;
                if written {
                    let (secret, damage) = (self.ca_secret(), &stored.damage);
                    warn!(secret, ?damage, adopted, "repaired the Secret of the CA");
                }
                Ok(written)
            }
            (Repair::Issue, Ok(authorities)) => {
                match &stored.leaf {
                    Err(problem) if pair_secret.is_some() || !starting => {
                        warn!(secret = self.secret, %problem, "the certificate is unusable; issuing a new one");
                    }
                    _ => info!(secret = self.secret, "there is no certificate yet; one is issued"),
                }
                self.issue(authorities, pair_secret.as_ref()).await
            }
            (Repair::Publish, Ok(_)) => self.write_pair(pair_secret.as_ref(), certificate).await,
            (_, authorities) => {
                let new = Authorities::new(self.new_authority()?, trusted.clone());
                let written = self.write_authorities(ca_secret.as_ref(), &new).await?;
                let (secret, trusted) = (self.ca_secret(), trusted.len());
                match authorities {
                    Err(lost) if written && (ca_secret.is_some() || trusted > 0) => {
                        let problem = &lost.problem;
                        warn!(secret, problem, trusted, "replaced the stored CA, which cannot issue");
                    }
                    _ if written => info!(secret, "there was no CA yet; one is made"),
                    _ => {}
                }
                Ok(written)
            }
        }
    }

    fn log_failed_repair(&self, repair: Repair, state: &State) {
        let (secret, State { stored, adopted, .. }) = (self.ca_secret(), state);
        match (repair, &stored.authorities) {
            (Repair::Replace, Err(lost)) => {
                warn!(secret, problem = lost.problem, "cannot replace the stored CA, which cannot issue");
            }
            (Repair::Store, _) => {
                warn!(secret, damage = ?stored.damage, adopted, "cannot repair the Secret of the CA");
            }
            // The caller logs the error, which names the Secret.
            _ => {}
        }
    }

    /// Takes one step of a rotation. Returns whether this writer won.
    pub(super) async fn advance(&self, step: Step, valid: &Valid, outcome: &Outcome) -> Result<bool, CertificateError> {
        let Authorities { current, next, previous, .. } = &valid.authorities;
        let copy = |ca: &Ca| Ca::from_pem(ca.cert_pem(), ca.key_pem());
        let mut new = Authorities::new(copy(current)?, previous.clone());
        new.next = next.as_ref().map(copy).transpose()?;
        let what = match step {
            Step::Issue => {
                let issued = self.issue(&valid.authorities, outcome.pair_secret.as_ref()).await?;
                return Ok(issued);
            }
            Step::MakeNext => {
                new.next = Some(self.new_authority()?);
                "created the next CA; it is published beside the current one"
            }
            Step::Promote => {
                new.promote();
                "certificates are issued under the next CA from now on"
            }
            Step::Forget => {
                new.previous.clear();
                "removed the previous CA from the bundle"
            }
            _ => return Ok(false),
        };
        let written = self.write_authorities(outcome.ca_secret.as_ref(), &new).await?;
        if written {
            info!(secret = self.ca_secret(), phase = ?new.phase(), "{what}");
        }
        Ok(written)
    }

    /// Issues a leaf under the current authority, and stores it. Returns whether this writer won.
    async fn issue(&self, authorities: &Authorities, read: Option<&Secret>) -> Result<bool, CertificateError> {
        let (now, ca) = (self.time_of_day.now(), &authorities.current);
        let first = self.dns_names.first().map_or("webhook", String::as_str);
        let Pair { cert_pem, key_pem } = ca.issue(&CertificateParams {
            common_name: if first.len() > COMMON_NAME { "" } else { first },
            organizations: &[],
            dns_names: &self.dns_names,
            ip_addresses: &[],
            not_before: from(now, -BACKDATED),
            not_after: from(now, self.timing.leaf_validity).min(ca.certificate().not_after),
            usage: Usage::Server,
        })?;
        let certificate = ServingCertificate { cert_pem, key_pem, ca_pem: authorities.bundle() };
        // A pair that does not pass the checks of the next round would be issued again forever, so refuse it here.
        let unusable =
            |problem| CertificateError::Unusable { namespace: self.namespace.clone(), ca: self.ca_secret(), problem };
        let (cert, key, bundle) = (&certificate.cert_pem, &certificate.key_pem, &certificate.ca_pem);
        let (cert, key, bundle) = (cert.as_bytes(), key.as_bytes(), bundle.as_bytes());
        check_server_pair(cert, key, bundle, &self.dns_names, now, SignedDuration::ZERO)
            .map_err(|problem| unusable(problem.to_string()))?;
        certificate.tls_config(&self.provider)?;
        let written = self.write_pair(read, &certificate).await?;
        if written {
            info!(secret = self.secret, names = ?self.dns_names, "issued a certificate");
        }
        Ok(written)
    }

    fn new_authority(&self) -> Result<Ca, CertificateError> {
        let now = self.time_of_day.now();
        Ok(Ca::generate(&self.authority_name(), from(now, -BACKDATED), from(now, self.timing.ca_validity))?)
    }

    fn authority_name(&self) -> String {
        let name = format!("{} ca", self.secret);
        // Names of Secrets are ASCII.
        name.get(name.len().saturating_sub(COMMON_NAME)..).unwrap_or(&name).to_owned()
    }

    /// Returns the authorities that callers must keep trusting when the stored CA is damaged: those that have our name
    /// or that issued the stored or the served leaf, out of the known and the published ones.
    async fn still_trusted(
        &self,
        mut known: Vec<Anchor>,
        stored: &ServingCertificate,
        served: Option<&ServingCertificate>,
    ) -> Vec<Anchor> {
        let (now, name) = (self.time_of_day.now(), self.authority_name());
        known.extend(self.published(now).await);
        let (behind, others): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|anchor| anchor.stands_behind(stored.cert_pem.as_bytes(), now));
        let ours = others.into_iter().filter(|anchor| anchor.certificate().common_name == name);
        let mut once: Vec<Anchor> = Vec::new();
        // A bundle has a limit, so the most important authorities come first.
        for anchor in trusted_through(served, now).into_iter().chain(behind).chain(ours) {
            if !once.contains(&anchor) {
                once.push(anchor);
            }
        }
        once
    }

    /// Reads the bundles that callers of our Service trust now. A bundle that cannot be read is logged and left out.
    async fn published(&self, now: Timestamp) -> Vec<Anchor> {
        let mut found = Vec::new();
        for published in published(&self.client, &self.configurations).await {
            match published.entries {
                Ok(entries) => {
                    let entries = entries.into_iter().flatten();
                    let ours =
                        entries.filter(|entry| entry.service.as_ref().is_none_or(|one| self.dns_names.contains(one)));
                    found.extend(ours.flat_map(|entry| Anchor::read(&entry.bundle, now)));
                }
                // A command that makes certificates need not have that right.
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    info!(
                        object = published.object,
                        "no right to read the published CA bundle; it is not kept trusted"
                    );
                }
                Err(error) => {
                    let error = own_sentence(&error);
                    warn!(
                        error,
                        object = published.object,
                        "cannot read the published CA bundle; it is not kept trusted"
                    );
                }
            }
        }
        found
    }
}

/// The time after this one, or the end of time.
fn from(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// The authorities that callers of what is served must trust.
fn trusted_through(served: Option<&ServingCertificate>, now: Timestamp) -> Vec<Anchor> {
    let Some(ServingCertificate { cert_pem, ca_pem, .. }) = served else { return Vec::new() };
    let valid = Certificate::from_pem(cert_pem.as_bytes()).is_ok_and(|leaf| now <= leaf.not_after);
    let anchors = Anchor::read(ca_pem.as_bytes(), now);
    anchors.into_iter().filter(|anchor| valid && anchor.stands_behind(cert_pem.as_bytes(), now)).collect()
}
