//! One round: what is stored is read, repaired, and carried a step further.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use portcullis_pki::rotation::{Anchor, Authorities, Observed, Step, Stored, bundle, step};
use portcullis_pki::{Ca, Certificate, CertificateParams, Pair, Usage, check_server_pair};
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
pub(super) struct Found {
    /// The pair to serve, and the bundle that callers must trust.
    pub(super) material: ServingCertificate,
    /// The stored authorities and leaf; `None` if one of them is damaged.
    pub(super) sound: Option<Sound>,
    /// A repair that the API server did not let us make.
    pub(super) refused: Option<CertificateError>,
    /// Whether this round wrote something.
    pub(super) repaired: bool,
    ca_secret: Option<Secret>,
    pair_secret: Option<Secret>,
}

pub(super) struct Sound {
    pub(super) authorities: Authorities,
    pub(super) leaf: Certificate,
}

/// A write of a round. A round makes each at most once: if another client undoes it, the next round tries again after a
/// pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    Replace,
    Order,
    Issue,
    Publish,
}

/// Both Secrets, and what they hold.
struct Read {
    ca_secret: Option<Secret>,
    pair_secret: Option<Secret>,
    /// The pair, without a bundle.
    material: ServingCertificate,
    /// The leaf of the pair, or why it cannot be served.
    leaf: Result<Certificate, String>,
    stored: Stored,
}

impl Found {
    /// Decides the next step of the rotation.
    pub(super) fn step(&self, source: &Automatic, observed: Observed) -> Step {
        let Some(Sound { authorities, leaf }) = &self.sound else { return Step::Wait(None) };
        step(authorities, self.material.cert_pem.as_bytes(), leaf, &source.timing, observed, source.time_of_day.now())
    }
}

impl Automatic {
    /// Reads both Secrets, and repairs them until they are sound. What `served` is under stays trusted, whatever is
    /// stored.
    pub(super) async fn round(&self, served: Option<&ServingCertificate>) -> Result<Found, CertificateError> {
        self.timing.check()?;
        let mut pauses = pauses(OVERTAKEN, LONGEST_OVERTAKEN);
        let (mut done, mut refused) = (Vec::new(), None);
        loop {
            let repaired = !done.is_empty();
            let now = self.time_of_day.now();
            let Read { ca_secret, pair_secret, material, leaf, stored } = self.look(now).await?;
            let (repair, written) = match stored.authorities {
                Err(lost) => {
                    let (secret, problem, mut known) = (self.ca_secret(), lost.problem, lost.remains);
                    let beside = pair_data(pair_secret.as_ref()).ca_crt;
                    known.extend(beside.map(|pem| Anchor::read(pem, now)).unwrap_or_default());
                    let remains = self.still_trusted(known, &material, served).await;
                    let trusted = remains.len();
                    let material = ServingCertificate { ca_pem: bundle(&remains), ..material };
                    let authorities = Authorities::new(self.new_authority()?, remains);
                    let write = self.write_authorities(ca_secret.as_ref(), &authorities);
                    match self.once(Repair::Replace, &done, write).await {
                        Ok(true) => {
                            // A first start has no CA yet, which is no fault.
                            if ca_secret.is_none() && trusted == 0 {
                                info!(secret, "there was no CA yet; one is made");
                            } else {
                                warn!(secret, problem, trusted, "the stored CA is replaced");
                            }
                            (Repair::Replace, true)
                        }
                        // Another replica was first.
                        Ok(false) => (Repair::Replace, false),
                        Err(error) => {
                            warn!(secret, problem, "the stored CA cannot be replaced");
                            if leaf.is_err() {
                                return Err(error);
                            }
                            let refused = Some(error);
                            return Ok(Found { material, sound: None, refused, repaired, ca_secret, pair_secret });
                        }
                    }
                }
                Ok(mut authorities) => {
                    // The stored authority may be sound and yet not the one that others still serve under.
                    let damaged = leaf.is_err() || !stored.damage.is_empty();
                    let adopted = authorities.trust(if damaged {
                        self.still_trusted(Vec::new(), &material, served).await
                    } else {
                        trusted_through(served, now)
                    });
                    let disorder = adopted || !stored.damage.is_empty();
                    match leaf {
                        leaf if disorder && refused.is_none() => {
                            let (secret, damage) = (self.ca_secret(), stored.damage);
                            let write = self.write_authorities(ca_secret.as_ref(), &authorities);
                            match self.once(Repair::Order, &done, write).await {
                                Ok(true) => {
                                    warn!(secret, ?damage, adopted, "repaired the Secret of the CA");
                                    (Repair::Order, true)
                                }
                                Ok(false) => (Repair::Order, false),
                                Err(error) => {
                                    warn!(secret, ?damage, adopted, "cannot repair the Secret of the CA");
                                    if leaf.is_err() {
                                        return Err(error);
                                    }
                                    refused = Some(error);
                                    continue;
                                }
                            }
                        }
                        Err(problem) => {
                            if pair_secret.is_none() && served.is_none() {
                                info!(secret = self.secret, "there is no certificate yet; one is issued");
                            } else {
                                warn!(secret = self.secret, problem, "the certificate is unusable; issuing a new one");
                            }
                            let issue = self.issue(&authorities, pair_secret.as_ref());
                            (Repair::Issue, self.once(Repair::Issue, &done, issue).await?)
                        }
                        Ok(leaf) => {
                            let material = ServingCertificate { ca_pem: authorities.bundle(), ..material };
                            let sound = Some(Sound { authorities, leaf });
                            let found = Found { material, sound, refused: None, repaired, ca_secret, pair_secret };
                            if stored.publishes_all || refused.is_some() {
                                return Ok(Found { refused, ..found });
                            }
                            let write = self.write_pair(found.pair_secret.as_ref(), &found.material);
                            match self.once(Repair::Publish, &done, write).await {
                                Err(error) => return Ok(Found { refused: Some(error), ..found }),
                                Ok(written) => (Repair::Publish, written),
                            }
                        }
                    }
                }
            };
            if written {
                done.push(repair);
            } else {
                sleep(pauses.next().unwrap_or(LONGEST_OVERTAKEN)).await;
            }
        }
    }

    /// Carries out a repair, unless this round has done it before and somebody has undone it.
    async fn once(
        &self,
        repair: Repair,
        done: &[Repair],
        write: impl Future<Output = Result<bool, CertificateError>>,
    ) -> Result<bool, CertificateError> {
        if done.contains(&repair) { Err(self.unsettled()) } else { write.await }
    }

    async fn look(&self, now: Timestamp) -> Result<Read, CertificateError> {
        let (ca_secret, pair_secret) = (self.read(&self.ca_secret()).await?, self.read(&self.secret).await?);
        let pair = pair_data(pair_secret.as_ref());
        let stored = Stored::read(&ca_data(ca_secret.as_ref()), &pair, &self.dns_names, now);
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let (cert_pem, key_pem) = (text(pair.tls_crt), text(pair.tls_key));
        let material = ServingCertificate { cert_pem, key_pem, ca_pem: String::new() };
        // The listener has the last word on what it can serve.
        let leaf = match &stored.leaf {
            Ok(leaf) => material.tls_config(&self.provider).map(|_| leaf.clone()).map_err(|error| error.to_string()),
            Err(problem) => Err(problem.to_string()),
        };
        Ok(Read { ca_secret, pair_secret, material, leaf, stored })
    }

    /// Takes one step of a rotation. Says whether this writer was the one to take it.
    pub(super) async fn advance(&self, step: Step, sound: &Sound, found: &Found) -> Result<bool, CertificateError> {
        let Authorities { current, next, previous, .. } = &sound.authorities;
        let copy = |ca: &Ca| Ca::from_pem(ca.cert_pem(), ca.key_pem());
        let mut new = Authorities::new(copy(current)?, previous.clone());
        new.next = next.as_ref().map(copy).transpose()?;
        let what = match step {
            Step::Issue => {
                let issued = self.issue(&sound.authorities, found.pair_secret.as_ref()).await?;
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
        let written = self.write_authorities(found.ca_secret.as_ref(), &new).await?;
        if written {
            info!(secret = self.ca_secret(), phase = ?new.phase(), "{what}");
        }
        Ok(written)
    }

    /// Issues a leaf under the current authority, and stores it. Says whether this writer won.
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
        let material = ServingCertificate { cert_pem, key_pem, ca_pem: authorities.bundle() };
        // A pair that does not pass the checks of the next round would be issued again forever, so refuse it here.
        let unusable =
            |problem| CertificateError::Unusable { namespace: self.namespace.clone(), ca: self.ca_secret(), problem };
        let (cert, key, bundle) = (&material.cert_pem, &material.key_pem, &material.ca_pem);
        let (cert, key, bundle) = (cert.as_bytes(), key.as_bytes(), bundle.as_bytes());
        check_server_pair(cert, key, bundle, &self.dns_names, now, SignedDuration::ZERO)
            .map_err(|problem| unusable(problem.to_string()))?;
        material.tls_config(&self.provider)?;
        let written = self.write_pair(read, &material).await?;
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
                    info!(object = published.object, "may not read the published CA bundles");
                }
                Err(error) => {
                    let error = own_sentence(&error);
                    warn!(error, object = published.object, "cannot read the published CA bundles");
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
