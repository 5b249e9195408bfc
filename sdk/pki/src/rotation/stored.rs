//! The content of the two Secrets, read from their bytes.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::anchor::{Anchor, bundle};
use crate::{Ca, Certificate, PairProblem, bundle_fingerprints, check_server_pair};

/// The most earlier authorities that are kept. Each makes every configuration longer.
const MAX_PREVIOUS: usize = 4;

/// The values of the Secret with the authorities, as they are stored.
#[derive(Clone, Copy, Default)]
pub struct CaData<'a> {
    /// `ca.crt`: the authority that issues.
    pub ca_crt: Option<&'a [u8]>,
    /// `ca.key`: its key.
    pub ca_key: Option<&'a [u8]>,
    /// `next.crt`: the authority that is being published, and does not issue yet.
    pub next_crt: Option<&'a [u8]>,
    /// `next.key`: its key.
    pub next_key: Option<&'a [u8]>,
    /// `previous.crt`: authorities that no longer issue and are still trusted.
    pub previous_crt: Option<&'a [u8]>,
}

/// The values of the Secret with the pair, as they are stored.
#[derive(Clone, Copy, Default)]
pub struct PairData<'a> {
    /// `tls.crt`: the chain, leaf first.
    pub tls_crt: Option<&'a [u8]>,
    /// `tls.key`: the leaf's key.
    pub tls_key: Option<&'a [u8]>,
    /// `ca.crt`: the bundle to publish.
    pub ca_crt: Option<&'a [u8]>,
}

impl fmt::Debug for CaData<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaData").finish_non_exhaustive()
    }
}

impl fmt::Debug for PairData<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairData").finish_non_exhaustive()
    }
}

/// The phase of a rotation. It follows from the stored authorities, so any process that reads the Secret can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Phase {
    /// One authority.
    Steady,
    /// The next authority exists and is being published; nothing is issued under it.
    Publishing,
    /// The next authority has become the one that issues; the one before it is still trusted.
    Draining,
}

/// The authorities of one installation.
#[derive(Debug)]
#[non_exhaustive]
pub struct Authorities {
    /// Issues the leaf.
    pub current: Ca,
    /// The authority that is being published, and issues nothing.
    pub next: Option<Ca>,
    /// The authorities that issue nothing any more, and are still trusted.
    pub previous: Vec<Anchor>,
}

/// No stored authority can issue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The problem of the authority that is stored.
    pub problem: String,
    /// The certificates of the Secret that can still be trusted. Only those that are known to be ours should be.
    pub remains: Vec<Anchor>,
}

/// The content of the two Secrets.
#[derive(Debug)]
#[non_exhaustive]
pub struct Stored {
    /// The authorities, or the reason why there are none.
    pub authorities: Result<Authorities, Lost>,
    /// Further problems of the authorities' Secret; the values that have them are left out of `authorities`.
    pub damage: Vec<String>,
    /// The pair's leaf, or why it cannot be served under the stored authorities (where those are lost, under what is
    /// still known of them).
    pub leaf: Result<Certificate, PairProblem>,
    /// Whether `ca.crt` beside the pair is the bundle of the stored authorities.
    pub publishes_all: bool,
}

impl Authorities {
    /// One authority and those before it that are still trusted.
    pub fn new(current: Ca, previous: Vec<Anchor>) -> Self {
        let mut authorities = Self { current, next: None, previous: Vec::new() };
        authorities.trust(previous);
        authorities
    }

    /// The phase of the rotation.
    pub fn phase(&self) -> Phase {
        match (&self.next, self.previous.is_empty()) {
            (Some(_), _) => Phase::Publishing,
            (None, false) => Phase::Draining,
            (None, true) => Phase::Steady,
        }
    }

    /// All authorities that callers must trust now.
    pub fn anchors(&self) -> Vec<Anchor> {
        let own = [&self.current].into_iter().chain(&self.next).map(Anchor::from);
        own.chain(self.previous.iter().cloned()).collect()
    }

    /// The bundle in PEM. It has the same bytes before and after the next authority becomes the current one.
    pub fn bundle(&self) -> String {
        bundle(&self.anchors())
    }

    /// Adds these to the previous authorities, which are still trusted. Returns whether that changed anything. If there
    /// are too many, these are kept first, in order, then those of before that expire last: an authority that was
    /// generated and lost again has issued nothing, however young it is, and must not displace the one that issued what
    /// is served.
    pub fn trust(&mut self, anchors: Vec<Anchor>) -> bool {
        let before = std::mem::take(&mut self.previous);
        for anchor in anchors.iter().chain(&before) {
            if self.previous.len() < MAX_PREVIOUS && !self.anchors().contains(anchor) {
                self.previous.push(anchor.clone());
            }
        }
        self.previous.sort_by_key(latest_first);
        self.previous != before
    }

    /// Lets the next authority issue from now on; the one before it stays trusted. Does nothing if there is no next
    /// one.
    pub fn promote(&mut self) {
        if let Some(next) = self.next.take() {
            let before = Anchor::from(&std::mem::replace(&mut self.current, next));
            self.trust(vec![before]);
        }
    }
}

/// Sorts into a total order, also authorities that expire at the same time.
fn latest_first(anchor: &Anchor) -> (Reverse<Timestamp>, String) {
    (Reverse(anchor.certificate().not_after), anchor.certificate().fingerprint.clone())
}

impl Stored {
    /// Reads both Secrets. It never fails: the result says what is damaged.
    pub fn read(ca: &CaData<'_>, pair: &PairData<'_>, dns_names: &[String], now: Timestamp) -> Self {
        let mut damage = Vec::new();
        let authorities = authorities(ca, now, &mut damage);
        let known = match &authorities {
            Ok(authorities) => authorities.anchors(),
            Err(lost) => {
                let beside = pair.ca_crt.map(|pem| Anchor::read(pem, now)).unwrap_or_default();
                lost.remains.iter().cloned().chain(beside).collect()
            }
        };
        let missing = |key: &str| format!("key {key} is missing");
        let leaf = match (pair.tls_crt, pair.tls_key) {
            (None, _) => Err(PairProblem::Certificate(missing("tls.crt"))),
            (_, None) => Err(PairProblem::Key(missing("tls.key"))),
            (Some(cert), Some(key)) => {
                check_server_pair(cert, key, bundle(&known).as_bytes(), dns_names, now, SignedDuration::ZERO)
            }
        };
        let wanted: BTreeSet<_> = known.iter().map(|anchor| anchor.certificate().fingerprint.clone()).collect();
        let publishes_all = pair.ca_crt.is_some_and(|pem| bundle_fingerprints(pem).is_ok_and(|found| found == wanted));
        Self { authorities, damage, leaf, publishes_all }
    }
}

fn authorities(data: &CaData<'_>, now: Timestamp, damage: &mut Vec<String>) -> Result<Authorities, Lost> {
    let current = authority("ca", data.ca_crt, data.ca_key, now);
    let next = match (data.next_crt, data.next_key) {
        (None, None) => None,
        (cert, key) => authority("next", cert, key, now).map_err(|problem| damage.push(problem)).ok(),
    };
    let mut previous = data.previous_crt.map(|pem| Anchor::read(pem, now)).unwrap_or_default();
    previous.sort_by_key(latest_first);
    let (current, next) = match (current, next) {
        (Ok(current), next) => (current, next),
        // It may be published already, and callers that trust it lose nothing.
        (Err(problem), Some(next)) => {
            damage.push(problem);
            // The served leaf is under this one.
            previous.splice(0..0, data.ca_crt.map(|pem| Anchor::read(pem, now)).unwrap_or_default());
            (next, None)
        }
        (Err(problem), None) => {
            let texts = [data.ca_crt, data.next_crt, data.previous_crt];
            let remains = texts.into_iter().flatten().flat_map(|pem| Anchor::read(pem, now)).collect();
            return Err(Lost { problem, remains });
        }
    };
    let next = next.filter(|next| {
        let other = Anchor::from(next) != Anchor::from(&current);
        if !other {
            damage.push("next.crt is the certificate in ca.crt".to_owned());
        }
        other
    });
    let mut authorities = Authorities { current, next, previous: Vec::new() };
    authorities.trust(previous);
    if let Some(pem) = data.previous_crt {
        let kept = authorities.previous.iter().map(|anchor| anchor.certificate().fingerprint.clone()).collect();
        if bundle_fingerprints(pem).ok() != Some(kept) {
            damage.push(
                "previous.crt does not read, or holds what is no CA, or not valid now, or stored beside it".to_owned(),
            );
        }
    }
    Ok(authorities)
}

/// The authority of one pair of keys, when it can issue now.
fn authority(name: &str, cert: Option<&[u8]>, key: Option<&[u8]>, now: Timestamp) -> Result<Ca, String> {
    let text = |suffix: &str, bytes: Option<&[u8]>| {
        let bytes = bytes.ok_or_else(|| format!("key {name}.{suffix} is missing"))?;
        str::from_utf8(bytes).map(str::to_owned).map_err(|_| format!("key {name}.{suffix} is not PEM"))
    };
    let (cert, key) = (text("crt", cert)?, text("key", key)?);
    let ca = Ca::from_pem(&cert, &key).map_err(|error| format!("{name}.crt and {name}.key: {error}"))?;
    let Certificate { not_before, not_after, .. } = ca.certificate();
    if now < *not_before {
        return Err(format!("{name}.crt is not valid before {not_before}"));
    }
    if now > *not_after {
        return Err(format!("{name}.crt expired at {not_after}"));
    }
    // The text is published as it is: it must not include a foreign certificate.
    match bundle_fingerprints(cert.as_bytes()) {
        Ok(found) if found.len() == 1 => Ok(ca),
        _ => Err(format!("{name}.crt holds more than one certificate")),
    }
}
