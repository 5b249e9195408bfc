//! A round reads the Secrets and repairs them; a step advances the rotation.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use portcullis_pki::rotation::{Anchor, Authorities, Lost, Observed, Repair, Step, Stored, bundle, step};
use portcullis_pki::{Ca, Certificate, CertificateParams, Pair, Usage, check_server_pair};
use tokio::time::sleep;
use tracing::{info, warn};

use super::store::{ca_data, pair_data};
use super::trust::trusted_through;
use super::{Automatic, LONGEST_OVERTAKEN, OVERTAKEN};
use crate::pauses::pauses;
use crate::{CertificateError, ServingCertificate};

/// Clocks of API servers differ a little from ours.
const BACKDATED: SignedDuration = SignedDuration::from_hours(1);
/// The longest subject CN (RFC 5280, ub-common-name).
const COMMON_NAME: usize = 64;

/// The result of a round.
pub(super) struct Outcome {
    /// The pair to serve, with the bundle that callers must trust.
    pub(super) certificate: ServingCertificate,
    /// The stored authorities and leaf; `None` if one of them is damaged.
    pub(super) valid: Option<Valid>,
    /// A repair that the API server refused.
    pub(super) refused: Option<CertificateError>,
    /// Whether this round wrote something.
    pub(super) repaired: bool,
    ca_secret: Option<Secret>,
    pair_secret: Option<Secret>,
}

/// Authorities that can issue, and a leaf that can be served.
pub(super) struct Valid {
    pub(super) authorities: Authorities,
    pub(super) leaf: Certificate,
}

/// Both Secrets, and what they hold.
struct State {
    ca_secret: Option<Secret>,
    pair_secret: Option<Secret>,
    /// The content of the Secrets, with the authorities that callers must keep trusting.
    stored: Stored,
    /// Whether `stored` trusts authorities that the Secret does not hold.
    has_adopted: bool,
    /// The stored pair, with the bundle of `stored`.
    certificate: ServingCertificate,
    /// The leaf of the pair, or the reason why it cannot be served.
    leaf: Result<Certificate, String>,
}

impl Outcome {
    /// Decides the next step of the rotation.
    pub(super) fn step(&self, source: &Automatic, observed: Observed) -> Step {
        let Some(Valid { authorities, leaf }) = &self.valid else { return Step::Wait(None) };
        let (cert, now) = (self.certificate.cert_pem.as_bytes(), source.time_of_day.now());
        step(authorities, cert, leaf, &source.timing, observed, now)
    }
}

impl State {
    fn next_repair(&self) -> Option<Repair> {
        self.stored.next_repair(self.has_adopted, self.leaf.is_ok())
    }

    fn into_outcome(self, refused: Option<CertificateError>, repaired: bool) -> Outcome {
        let Self { ca_secret, pair_secret, stored, certificate, leaf, .. } = self;
        let valid = stored.authorities.ok().zip(leaf.ok()).map(|(authorities, leaf)| Valid { authorities, leaf });
        Outcome { certificate, valid, refused, repaired, ca_secret, pair_secret }
    }
}

impl Automatic {
    /// Reads both Secrets, and repairs them until nothing is damaged. The authorities of `served` stay trusted,
    /// whatever is stored.
    ///
    /// A round makes each repair at most once: if another client undoes it, the round ends with an error, and the next
    /// one follows after a pause.
    pub(super) async fn round(&self, served: Option<&ServingCertificate>) -> Result<Outcome, CertificateError> {
        self.timing.check()?;
        let mut pauses = pauses(OVERTAKEN, LONGEST_OVERTAKEN);
        let mut done = Vec::new();
        loop {
            let state = self.state(served).await?;
            let Some(repair) = state.next_repair() else { return Ok(state.into_outcome(None, !done.is_empty())) };
            let written =
                if done.contains(&repair) { Err(self.unsettled()) } else { self.repair(repair, &state, served).await };
            match written {
                Ok(true) => done.push(repair),
                // Another replica was faster.
                Ok(false) => sleep(pauses.next().unwrap_or(LONGEST_OVERTAKEN)).await,
                Err(error) if state.leaf.is_ok() => return Ok(state.into_outcome(Some(error), !done.is_empty())),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads both Secrets, and adds the authorities that callers must keep trusting.
    async fn state(&self, served: Option<&ServingCertificate>) -> Result<State, CertificateError> {
        let now = self.time_of_day.now();
        let (ca_secret, pair_secret) = (self.read(&self.ca_secret()).await?, self.read(&self.secret).await?);
        let pair = pair_data(pair_secret.as_ref());
        let mut stored = Stored::read(&ca_data(ca_secret.as_ref()), &pair, &self.dns_names, now);
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let (cert_pem, key_pem) = (text(pair.tls_crt), text(pair.tls_key));
        let certificate = ServingCertificate { cert_pem, key_pem, ca_pem: String::new() };
        // The TLS library decides what the listener can serve.
        let leaf = match &stored.leaf {
            Ok(leaf) => certificate.tls_config(&self.provider).map(|_| leaf.clone()).map_err(|error| error.to_string()),
            Err(problem) => Err(problem.to_string()),
        };
        let is_damaged = leaf.is_err() || !stored.damage.is_empty();
        let (ca_pem, has_adopted) = match &mut stored.authorities {
            Ok(authorities) => {
                // The stored CA may be valid, and not the one under which other replicas still serve.
                let trusted = if is_damaged {
                    self.still_trusted(Vec::new(), &certificate, served).await
                } else {
                    trusted_through(served, now)
                };
                let has_adopted = authorities.trust(trusted);
                (authorities.bundle(), has_adopted)
            }
            Err(lost) => {
                let mut known = std::mem::take(&mut lost.remains);
                known.extend(pair.ca_crt.map(|pem| Anchor::read(pem, now)).unwrap_or_default());
                lost.remains = self.still_trusted(known, &certificate, served).await;
                (bundle(&lost.remains), false)
            }
        };
        let certificate = ServingCertificate { ca_pem, ..certificate };
        Ok(State { ca_secret, pair_secret, stored, has_adopted, certificate, leaf })
    }

    /// Makes one repair. Returns whether this writer won.
    async fn repair(
        &self,
        repair: Repair,
        state: &State,
        served: Option<&ServingCertificate>,
    ) -> Result<bool, CertificateError> {
        let State { ca_secret, pair_secret, stored, has_adopted, certificate, leaf } = state;
        match (&stored.authorities, repair) {
            (Err(lost), _) => self.replace_authority(ca_secret.as_ref(), lost).await,
            (Ok(authorities), Repair::IssueLeaf) => {
                let problem = leaf.as_ref().err();
                if pair_secret.is_none() && served.is_none() {
                    info!(secret = self.secret, "no certificate is stored yet; issuing one");
                } else {
                    warn!(secret = self.secret, problem, "the certificate is unusable; issuing a new one");
                }
                self.issue(authorities, pair_secret.as_ref()).await
            }
            (Ok(_), Repair::PublishBundle) => self.write_pair(pair_secret.as_ref(), certificate).await,
            (Ok(authorities), _) => {
                let (secret, damage, adopted) = (self.ca_secret(), &stored.damage, has_adopted);
                let written = self.write_authorities(ca_secret.as_ref(), authorities).await;
                match &written {
                    Ok(true) => warn!(secret, ?damage, adopted, "repaired the Secret of the CA"),
                    Ok(false) => {}
                    Err(_) => warn!(secret, ?damage, adopted, "cannot repair the Secret of the CA"),
                }
                written
            }
        }
    }

    /// Stores a new authority in place of one that cannot issue.
    async fn replace_authority(&self, ca_secret: Option<&Secret>, lost: &Lost) -> Result<bool, CertificateError> {
        let authorities = Authorities::new(self.new_authority()?, lost.remains.clone());
        let written = self.write_authorities(ca_secret, &authorities).await;
        let (secret, problem, trusted) = (self.ca_secret(), &lost.problem, lost.remains.len());
        match &written {
            // A first start has no CA yet, which is no error.
            Ok(true) if ca_secret.is_none() && trusted == 0 => info!(secret, "no CA was stored yet; created one"),
            Ok(true) => warn!(secret, problem, trusted, "replaced the stored CA, which cannot issue"),
            Ok(false) => {}
            Err(_) => warn!(secret, problem, "cannot replace the stored CA, which cannot issue"),
        }
        written
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

    pub(super) fn authority_name(&self) -> String {
        let name = format!("{} ca", self.secret);
        // Names of Secrets are ASCII.
        name.get(name.len().saturating_sub(COMMON_NAME)..).unwrap_or(&name).to_owned()
    }
}

/// The sum, or the latest time.
fn from(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}
