//! Lists that were not read to their end, and which checks then cannot say that all is well.

use super::{Note, View, warn};
use crate::lookups::ready;
use crate::observe::MOST;
use crate::snapshot::{Listed, Look};

/// Something that may have been read in part: whether it was, what it is, and the checks that find nothing where it is
/// missing from it.
struct Part {
    cut: fn(&View<'_>) -> bool,
    what: &'static str,
    checks: &'static [&'static str],
}

fn more<T>(look: &Look<Listed<T>>) -> bool {
    look.seen().is_some_and(|listed| listed.more)
}

const PARTS: &[Part] = &[
    Part {
        cut: |view| view.snapshot.objects.values().any(more),
        what: "objects of a kind (--in-namespace looks at those of one namespace)",
        checks: &["W10", "T1", "T2", "T3", "T5"],
    },
    Part {
        cut: |view| more(&view.snapshot.configurations),
        what: "webhook configurations",
        checks: &["L1", "L6", "T2", "T4"],
    },
    Part {
        cut: |view| more(&view.snapshot.leases),
        what: "Leases by which namespaces are claimed",
        checks: &["W7", "L2", "L4", "L5"],
    },
    Part {
        cut: |view| more(&view.snapshot.handed_over),
        what: "admission policies that hand namespaces over",
        checks: &["W7", "L2"],
    },
    Part { cut: |view| more(&view.snapshot.leaders), what: "Leases of leaders", checks: &["L6"] },
    Part {
        cut: |view| more(&view.snapshot.deployments),
        what: "Deployments of the operator's namespace",
        checks: &["W9", "C9", "C11"],
    },
    Part {
        cut: |view| more(&view.snapshot.pods),
        what: "pods of the operator's namespace",
        checks: &["C3", "C6", "C7", "H2"],
    },
    Part {
        cut: |view| more(&view.snapshot.jobs),
        what: "Jobs of the operator's namespace",
        checks: &["X10", "X13", "H1", "H2", "H7"],
    },
    Part {
        cut: |view| more(&view.snapshot.policies),
        what: "NetworkPolicies of the operator's namespace",
        checks: &["C6"],
    },
    Part { cut: |view| more(&view.snapshot.events), what: "warnings in a namespace", checks: &["C12", "H2", "T2"] },
    Part { cut: |view| more(&view.snapshot.rights), what: "rights", checks: &["H4"] },
    Part { cut: services, what: "Services that webhooks for these kinds call", checks: &["T2", "T4"] },
    Part { cut: replicas, what: "pods that could be called", checks: &["C4", "C5", "X6", "X7"] },
];

fn services(view: &View<'_>) -> bool {
    let mut called = view.snapshot.related(view.subject).filter_map(|(_, entry)| entry.service());
    called.any(|place| !view.snapshot.services.contains_key(&place))
}

fn replicas(view: &View<'_>) -> bool {
    let (snapshot, called) = (view.snapshot, view.snapshot.listeners.len());
    let pods = snapshot.operator_pods(view.subject).into_iter().filter(|pod| ready(pod)).count();
    called > 0 && called < pods && !snapshot.is_external(view.subject)
}

/// Why a check that found nothing wrong cannot say that there is nothing.
pub(super) fn unread(view: &View<'_>, check: &str) -> Option<String> {
    let parts = PARTS.iter().filter(|part| part.checks.contains(&check) && (part.cut)(view));
    let parts: Vec<_> = parts.map(|part| part.what).collect();
    (!parts.is_empty())
        .then(|| format!("nothing was found, but only the first were looked at of the {}", parts.join(" and the ")))
}

/// What is to be said of something that is not in a list: where the list was cut, it may be among the rest.
pub(super) fn missing<T>(listed: &Listed<T>, what: &str, said: Note) -> Note {
    if !listed.more {
        return said;
    }
    let message = format!(
        "could not look: there are more {what} than the {MOST} that are read, so it may be that {}",
        said.message
    );
    warn(message, said.fix.unwrap_or_default())
}
