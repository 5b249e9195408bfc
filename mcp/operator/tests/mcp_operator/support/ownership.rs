//! O2: nobody but a kind's own controller writes about that kind, whatever a test is about.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use portcullis_testing::{AuditEvent, ControlPlane, Mark};
use tokio::{runtime::Handle, task::block_in_place};

use super::CRDS;

/// Field manager of a test that plays a controller which oversteps, to see it refused.
pub(crate) const IMPOSTOR: &str = "impostor";

/// Until where somebody has looked at the audit log of the test binary's shared control plane.
static LOOKED_AT: Mutex<Option<Mark>> = Mutex::new(None);

/// Holds every write of the run, by every account of every operator, to its owner: one that is dropped looks at all that
/// was written since the last one looked, and fails its test. The last of them sees the end of the run.
#[derive(Debug)]
pub(crate) struct SoleOwnership(&'static ControlPlane);

impl SoleOwnership {
    /// Of the shared control plane, before the test starts an operator.
    pub(crate) fn of(cluster: &'static ControlPlane) -> Self {
        LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| cluster.audit().mark());
        Self(cluster)
    }
}

impl Drop for SoleOwnership {
    fn drop(&mut self) {
        // The test fails for another reason, and the next one looks at what this one leaves.
        if std::thread::panicking() {
            return;
        }
        let since = LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner).unwrap();
        let now = self.0.audit().mark();
        let events = block_in_place(|| Handle::current().block_on(self.0.audit().writes(since)));
        owned(&events);
        let mut looked_at = LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
        *looked_at = (*looked_at).max(Some(now));
    }
}

/// Asserts that no controller wrote about another's kind.
pub(crate) fn owned(events: &[AuditEvent]) {
    let impostor = format!("fieldManager={IMPOSTOR}");
    let played = |event: &AuditEvent| event.code == 403 && event.query.split('&').any(|pair| pair == impostor);
    let found: Vec<_> = oversteps(events).filter(|event| !played(event)).map(ToString::to_string).collect();
    assert!(found.is_empty(), "a kind is written by another account than its controller's:\n{}", found.join("\n"));
}

/// The writes about a kind of ours, its status or its finalizers by an account that is not its controller's. Other users
/// than ServiceAccounts play people.
pub(crate) fn oversteps(events: &[AuditEvent]) -> impl Iterator<Item = &AuditEvent> {
    let names = CRDS.iter().map(|crd| &crd.spec.names);
    let owners: BTreeMap<&str, String> =
        names.map(|names| (&*names.plural, format!("-{}", names.kind.to_lowercase()))).collect();
    events.iter().filter(move |event| {
        let owner = owners.get(&*event.resource).filter(|_| event.api_group == mcp_api::names::GROUP);
        owner.is_some_and(|owner| is_foreign(&event.user, owner))
    })
}

/// Whether a ServiceAccount is another than the one with this end of its name, of a release that is called as by default
/// or, in tests that have releases of their own, as its namespace.
fn is_foreign(user: &str, owner: &str) -> bool {
    let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    account.is_some_and(|(namespace, name)| {
        ["mcp-operator", namespace].iter().all(|release| name != format!("{release}{owner}"))
    })
}
