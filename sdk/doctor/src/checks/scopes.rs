//! W7 and L: which operator has which namespace?

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use portcullis_lease::Record;

use super::cut::missing;
use super::{Said, View, fail, fine, info, unseen, warn};
use crate::configuration::{Configuration, shown};
use crate::snapshot::Blind;
use crate::trust::span;

/// Clocks that differ by more are worth a word.
const SKEW: SignedDuration = SignedDuration::from_secs(5);
/// As often as this a Lease may change hands in an hour.
const HANDS: f64 = 30.0;

/// One claim of a namespace.
struct Claim<'a> {
    lease: &'a Lease,
    record: Record,
    namespace: String,
}

impl Claim<'_> {
    fn holder(&self) -> &str {
        self.record.holder.as_deref().unwrap_or("nobody")
    }

    /// How long ago it was renewed, by the API server's clock against the holder's.
    fn age(&self, view: &View<'_>) -> Option<SignedDuration> {
        self.record.renewed.map(|renewed| view.now.duration_since(renewed))
    }

    /// Whether somebody holds it and renews it. Operators time this by their own observation; one look has only the
    /// times that are written down, with some grace for clocks.
    fn is_live(&self, view: &View<'_>) -> bool {
        let (Some(_), Some(age), Some(duration)) = (&self.record.holder, self.age(view), self.record.duration) else {
            return false;
        };
        SignedDuration::try_from(duration).is_ok_and(|duration| age <= duration.saturating_add(SKEW))
    }
}

/// The claims of namespaces.
fn claims<'a>(view: &View<'a>) -> Result<Vec<Claim<'a>>, Blind> {
    Ok(view.snapshot.leases.known()?.items.iter().map(claim).collect())
}

fn claim(lease: &Lease) -> Claim<'_> {
    Claim { lease, record: Record::from(lease), namespace: lease.namespace().unwrap_or_default() }
}

/// The configurations of restricted installations of this operator, by namespace.
fn restricted<'a>(view: &View<'a>) -> Result<BTreeMap<&'a str, Vec<&'a Configuration>>, Blind> {
    view.snapshot.configurations.known()?;
    let mut restricted: BTreeMap<&str, Vec<&Configuration>> = BTreeMap::new();
    for one in view.snapshot.family(view.subject) {
        if let Some(namespace) = one.entries.first().and_then(|entry| entry.restricted_to()) {
            restricted.entry(namespace).or_default().push(one);
        }
    }
    Ok(restricted)
}

/// The namespaces that are handed over to restricted operators.
fn handed_over<'a>(view: &View<'a>) -> Result<BTreeSet<&'a str>, Blind> {
    Ok(view.snapshot.handed_over.known()?.items.iter().map(String::as_str).collect())
}

/// W7
pub(super) fn claimed(view: &View<'_>) -> Said {
    if view.subject.installation.restricted_to.is_some() {
        return Ok(vec![fine("a restricted operator looks at no other's Lease")]);
    }
    let asked = view.snapshot.in_namespace.as_ref();
    let claims = claims(view)?;
    let handed_over = handed_over(view)?;
    let counts = |claim: &Claim<'_>| claim.is_live(view) && handed_over.contains(claim.namespace.as_str());
    let live = claims.iter().filter(|claim| counts(claim) && asked.is_none_or(|asked| *asked == claim.namespace));
    let note = |claim: &Claim<'_>| {
        info(format!(
            "namespace {} is excluded by Lease {}, holder {}, renewed {} ago; the restricted operator validates it",
            claim.namespace,
            claim.lease.name_any(),
            claim.holder(),
            claim.age(view).map(span).unwrap_or_default()
        ))
    };
    Ok(live.map(note).collect())
}

/// L1
pub(super) fn lost(view: &View<'_>) -> Said {
    let claims = claims(view)?;
    let mut notes = Vec::new();
    for (namespace, mut configurations) in restricted(view)? {
        let claim = claims.iter().find(|claim| claim.namespace == namespace && claim.record.holder.is_some());
        if claim.is_some_and(|claim| claim.is_live(view)) {
            continue;
        }
        // A restricted look sees the Leases of its own namespace alone.
        if view.subject.installation.restricted_to.as_ref().is_some_and(|own| own != namespace) {
            continue;
        }
        let since = claim.and_then(|claim| claim.age(view)).map(|age| format!(" {} ago", span(age)));
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
        let message = match since {
            Some(since) => {
                format!("restricted operator of {namespace} lost its lease{since}; cluster-wide has resumed, {effect}")
            }
            None => format!(
                "restricted operator of {namespace} holds no lease; the cluster-wide one validates there too, {effect}"
            ),
        };
        let delete = |one: &&Configuration| format!("kubectl delete {} {}", one.resource(), one.name());
        let deletes: Vec<_> = configurations.iter().map(delete).collect();
        let fix = format!("start the restricted operator again, or take it away: {}", deletes.join("; "));
        notes.push(match claim {
            Some(_) => fail(message, fix),
            None => {
                missing(view.snapshot.leases.known()?, "Leases by which namespaces are claimed", fail(message, fix))
            }
        });
    }
    Ok(notes)
}

/// L2
pub(super) fn unguarded(view: &View<'_>) -> Said {
    let handed_over = handed_over(view)?;
    let mut notes = Vec::new();
    for claim in
        claims(view)?.iter().filter(|claim| claim.is_live(view) && !handed_over.contains(claim.namespace.as_str()))
    {
        let (namespace, lease) = (&claim.namespace, claim.lease.name_any());
        let message = format!(
            "lease {lease} in namespace {namespace}, held by {}, is ignored: no admission policy with a \
             binding hands the namespace over, so the cluster-wide operator works there",
            claim.holder()
        );
        let fix = format!(
            "where a restricted operator is behind it, apply what its 'generate rbac' prints, which hands the namespace over; \
             otherwise see who writes it and delete it: kubectl -n {namespace} delete lease {lease}"
        );
        let what = "admission policies that hand namespaces over";
        let note = missing(view.snapshot.handed_over.known()?, what, warn(message, fix));
        notes.push(note);
    }
    Ok(notes)
}

/// L4
pub(super) fn holders(view: &View<'_>) -> Said {
    let later = view.snapshot.leases_later.as_ref().map(crate::snapshot::Look::known).transpose()?;
    let mut notes = Vec::new();
    for claim in claims(view)? {
        let (namespace, name) = (&claim.namespace, claim.lease.name_any());
        let fix = format!(
            "two operators restricted to {namespace}? kubectl get pods --all-namespaces shows them; give it to one"
        );
        let again = later.iter().flat_map(|list| &list.items).find(|one| one.metadata.uid == claim.lease.metadata.uid);
        let again = again
            .map(Record::from)
            .filter(|again| again.holder != claim.record.holder && again.transitions != claim.record.transitions + 1);
        let created =
            claim.lease.metadata.creation_timestamp.as_ref().map(|at| view.now.duration_since(at.0).as_secs_f64());
        let hours = created.unwrap_or_default().max(60.0) / 3600.0;
        let rate = f64::from(claim.record.transitions) / hours;
        if let Some(again) = again {
            let message = format!(
                "two holders renew lease {namespace}/{name}: {} and {}",
                claim.holder(),
                again.holder.as_deref().unwrap_or("nobody")
            );
            notes.push(warn(message, fix));
        } else if rate > HANDS && claim.record.transitions > 5 {
            let message = format!(
                "lease {namespace}/{name} changed hands {} times, {rate:.0} times an hour",
                claim.record.transitions
            );
            notes.push(warn(message, fix));
        }
    }
    Ok(notes)
}

/// L5
pub(super) fn clocks(view: &View<'_>) -> Said {
    let mut notes = Vec::new();
    for claim in claims(view)? {
        let Some(age) = claim.age(view).filter(|age| *age < -SKEW) else { continue };
        let message = format!(
            "clock skew: lease {}/{} was renewed {} in the future by {}",
            claim.namespace,
            claim.lease.name_any(),
            span(age),
            claim.holder()
        );
        notes.push(warn(
            message,
            "synchronise the clocks of the nodes (chrony, ntp); operators of this kind do not compare them, others do",
        ));
    }
    let here = view.snapshot.server_time.map(|server| view.snapshot.now.duration_since(server));
    if let Some(skew) = here.filter(|skew| skew.abs() > SKEW.saturating_add(SKEW)) {
        notes.push(info(format!("the clocks of this machine and of the API server differ by {}", span(skew))));
    }
    Ok(notes)
}

/// L6
pub(super) fn cluster_wide(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let fix = "keep one of them, and delete the others or restrict each to a namespace (--restrict-to-namespace); or let \
               them share a namespace of leader election (--leader-election-namespace): then one runs the controllers";
    let running = leading(view);
    let name = |claim: &Claim<'_>| {
        let lease = format!("{}/{}", claim.namespace, claim.lease.name_any());
        match &claim.record.installation {
            Some(installation) => format!("{installation} by Lease {lease}"),
            None => format!("{} by Lease {lease}", claim.holder()),
        }
    };
    if running.len() > 1 {
        let all: Vec<_> = running.iter().map(name).collect();
        let message =
            format!("{} installations lead at once, and nothing excludes them: {}", all.len(), all.join(" and "));
        return Ok(vec![fail(message, fix)]);
    }
    let own = subject.installation.name();
    let other = |claim: &&Claim<'_>| claim.record.installation.as_ref().is_some_and(|leads| *leads != own);
    if let Some(claim) = running.iter().find(other) {
        let message = format!("another installation leads: {}; {own} only validates, and writes nothing", name(claim));
        return Ok(vec![warn(message, fix)]);
    }
    snapshot.configurations.known()?;
    let mut called = Vec::new();
    for configuration in snapshot.family(subject) {
        let everywhere = configuration.entries.iter().any(|entry| entry.restricted_to().is_none());
        let service = configuration.entries.first().and_then(crate::configuration::Entry::service);
        if everywhere && service.as_ref().is_some_and(|place| !called.contains(place)) {
            called.extend(service);
        }
    }
    if called.len() < 2 {
        // Without them, this says less than it could.
        snapshot.leaders.known()?;
        return Ok(Vec::new());
    }
    let names: Vec<_> = called.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
    let message = format!("{} installations validate the whole cluster: {}", names.len(), names.join(" and "));
    Ok(vec![fail(message, fix)])
}

/// The Leases of leader election that somebody holds now.
fn leading<'a>(view: &View<'a>) -> Vec<Claim<'a>> {
    let leaders = view.snapshot.leaders.seen();
    let claims = leaders.into_iter().flat_map(|leaders| &leaders.items).map(claim);
    claims.filter(|claim| claim.is_live(view)).collect()
}

/// L7
pub(super) fn selectors(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let Some(only) = &subject.installation.restricted_to else {
        return unseen("this installation is not restricted to a namespace");
    };
    snapshot.configurations.known()?;
    if snapshot.ours(subject).is_empty() {
        return unseen("there is no configuration of this installation, see W1");
    }
    let foreign = snapshot.ours(subject).into_iter().filter(|(_, entry)| entry.restricted_to() != Some(only.as_str()));
    let note = |(label, entry): (String, crate::configuration::Entry)| {
        let message =
            format!("{label} validates namespaces with {}, should only {only}", shown(entry.namespaces.as_ref()));
        fail(message, subject.apply("webhooks"))
    };
    Ok(foreign.map(note).collect())
}
