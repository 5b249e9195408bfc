//! W7 and L: the operator of each namespace, and the installation that leads.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::ResourceExt as _;
use portcullis_lease::INSTALLATION;

use super::{Note, absent, fail, info, warn};
use crate::configuration::Configuration;
use crate::parts::View;
use crate::trust::span;

/// Clocks that differ by no more than this agree.
const SKEW: SignedDuration = SignedDuration::from_secs(5);

/// Operators count no Lease for longer, whatever it states.
const LONGEST: SignedDuration = SignedDuration::from_mins(5);

/// A Lease, by which an operator claims a namespace or leads.
struct Claim<'a> {
    lease: &'a Lease,
    spec: LeaseSpec,
    namespace: String,
}

impl<'a> From<&'a Lease> for Claim<'a> {
    fn from(lease: &'a Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        Self { lease, spec, namespace: lease.namespace().unwrap_or_default() }
    }
}

impl Claim<'_> {
    fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    fn installation(&self) -> Option<&String> {
        self.lease.annotations().get(INSTALLATION)
    }

    /// The time since it was renewed, by the API server's clock against the holder's.
    fn age(&self, now: Timestamp) -> Option<SignedDuration> {
        self.spec.renew_time.as_ref().map(|renewed| now.duration_since(renewed.0))
    }

    /// Whether it is held and renewed. Operators time this by their own observation; one look has only the
    /// times that are written down, with some grace for clocks.
    fn is_live(&self, now: Timestamp) -> bool {
        let (Some(_), Some(age), Some(seconds)) = (self.holder(), self.age(now), self.spec.lease_duration_seconds)
        else {
            return false;
        };
        age <= SignedDuration::from_secs(seconds.into()).min(LONGEST) + SKEW
    }
}

/// W7
pub(super) fn claimed(view: View<'_>) -> Vec<Note> {
    let now = view.snapshot.now;
    let asked = view.asked_namespace_name();
    let counts = |claim: &Claim<'_>| {
        let handed_over = view.handed_over().contains(&claim.namespace);
        handed_over && claim.is_live(now) && asked.is_none_or(|asked| asked == claim.namespace)
    };
    let note = |claim: Claim<'_>| {
        info(format!(
            "namespace {} is excluded by Lease {}, holder {}, renewed {} ago; the restricted operator validates it",
            claim.namespace,
            claim.lease.name_any(),
            claim.holder().unwrap_or("nobody"),
            claim.age(now).map(span).unwrap_or_default()
        ))
    };
    view.leases().iter().map(Claim::from).filter(counts).map(note).collect()
}

/// The configurations of restricted installations of this operator, by namespace.
fn restricted(view: View<'_>) -> BTreeMap<&str, Vec<&Configuration>> {
    let mut restricted: BTreeMap<&str, Vec<&Configuration>> = BTreeMap::new();
    for one in view.family() {
        if let Some(namespace) = one.entries.first().and_then(|entry| entry.restricted_to()) {
            restricted.entry(namespace).or_default().push(one);
        }
    }
    restricted
}

/// L1
pub(super) fn lost(view: View<'_>) -> Vec<Note> {
    let now = view.snapshot.now;
    let claims: Vec<_> = view.leases().iter().map(Claim::from).collect();
    let mut notes = Vec::new();
    for (namespace, mut configurations) in restricted(view) {
        let claim = claims.iter().find(|claim| claim.namespace == namespace && claim.holder().is_some());
        if claim.is_some_and(|claim| claim.is_live(now)) {
            continue;
        }
        // A restricted look sees the Leases of its own namespace alone.
        if view.subject.installation.restricted_to.as_ref().is_some_and(|own| own != namespace) {
            continue;
        }
        let fails_closed = |one: &Configuration| one.entries.iter().any(|entry| entry.fails_closed);
        // One that keeps writes refused, where there is one, is the one to name.
        configurations.sort_by_key(|one| !fails_closed(one));
        let Some(first) = configurations.first() else { continue };
        let name = first.name();
        let effect = if fails_closed(first) {
            format!("but {name} still calls it, and rejects with Fail when it does not answer")
        } else {
            format!("and {name} still calls it")
        };
        let delete = |one: &&Configuration| format!("kubectl delete {} {}", one.resource(), one.name());
        let deletes: Vec<_> = configurations.iter().map(delete).collect();
        let fix = format!("start the restricted operator again, or take it away: {}", deletes.join("; "));
        notes.push(if let Some(claim) = claim {
            let since = claim.age(now).map(|age| format!(" {} ago", span(age))).unwrap_or_default();
            let lost = format!("restricted operator of {namespace} lost its lease{since}");
            fail(format!("{lost}; cluster-wide has resumed, {effect}"), fix)
        } else {
            let none = format!("restricted operator of {namespace} holds no lease");
            absent(format!("{none}; the cluster-wide one validates there too, {effect}"), fix)
        });
    }
    notes
}

/// L6
pub(super) fn leaders(view: View<'_>) -> Vec<Note> {
    let fix = "keep one of them, and delete the others or restrict each to a namespace (--restrict-to-namespace); or let \
               them share a namespace of leader election (--leader-election-namespace): then one runs the controllers";
    let running: Vec<_> =
        view.leaders().iter().map(Claim::from).filter(|claim| claim.is_live(view.snapshot.now)).collect();
    let name = |claim: &Claim<'_>| {
        let leader = claim.installation().map(String::as_str).or_else(|| claim.holder()).unwrap_or("nobody");
        format!("{leader} by Lease {}/{}", claim.namespace, claim.lease.name_any())
    };
    if running.len() > 1 {
        let all: Vec<_> = running.iter().map(name).collect();
        let message =
            format!("{} installations lead at once, and nothing excludes them: {}", all.len(), all.join(" and "));
        return vec![fail(message, fix)];
    }
    let own = view.subject.installation.name();
    let other = running.iter().find(|claim| claim.installation().is_some_and(|leads| *leads != own));
    let note = |claim: &Claim<'_>| {
        warn(format!("another installation leads: {}; {own} only validates, and writes nothing", name(claim)), fix)
    };
    other.map(note).into_iter().collect()
}
