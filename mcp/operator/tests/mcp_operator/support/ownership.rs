//! O2, O5: nobody but a kind's own controller writes about that kind, whatever a test is about. The field manager of a
//! write tells the controller; a controller deletes no object of these kinds.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use portcullis_testing::{AuditEvent, ControlPlane, Mark};
use tokio::{runtime::Handle, task::block_in_place};

use super::CRDS;

/// Until where somebody has looked at the audit log of the test binary's shared control plane.
static LOOKED_AT: Mutex<Option<Mark>> = Mutex::new(None);

/// Holds every write of the run, by every operator, to its owner: one that is dropped looks at all that
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
    let owners: BTreeMap<&str, String> = CRDS
        .iter()
        .map(|crd| (&*crd.spec.names.plural, format!("portcullis-{}-", crd.spec.names.kind.to_lowercase())))
        .collect();
    let overstep = |event: &&AuditEvent| {
        let owner = owners.get(&*event.resource).filter(|_| event.api_group == mcp_api::names::GROUP);
        let by_operator = event.user.starts_with("system:serviceaccount:") && event.code != 403;
        by_operator && owner.is_some_and(|owner| !manager(event).starts_with(owner))
    };
    let found: Vec<_> = events.iter().filter(overstep).map(ToString::to_string).collect();
    assert!(found.is_empty(), "a kind is written by another controller than its own:\n{}", found.join("\n"));
}

/// The field manager that a write names; empty for a deletion, and for a write that names none.
pub(crate) fn manager(event: &AuditEvent) -> &str {
    event.query.split('&').find_map(|pair| pair.strip_prefix("fieldManager=")).unwrap_or_default()
}
