use futures::Stream;

use crate::changes::Changes;
use crate::{Leadership, LeaseHandle, Ownership, Scopes};

/// The namespaces that this operator owns. Cheap to clone; every answer is as of now.
#[derive(Clone, Debug)]
pub struct Scope {
    extent: Extent,
    leadership: Leadership,
}

#[derive(Clone, Debug)]
enum Extent {
    Everything,
    Restricted { namespace: String, lease: LeaseHandle },
    ClusterWide(Scopes),
}

impl Scope {
    /// All namespaces, always: there is no other operator of this kind.
    pub fn everything() -> Self {
        Self::of(Extent::Everything)
    }

    /// One namespace, while the lease in it is held.
    pub fn restricted(namespace: &str, lease: LeaseHandle) -> Self {
        let extent = Extent::Restricted { namespace: namespace.to_owned(), lease };
        Self::of(extent)
    }

    /// All namespaces but those that others hold. An operator's `run` creates it; this is for processes of your own.
    pub fn cluster_wide(scopes: Scopes) -> Self {
        Self::of(Extent::ClusterWide(scopes))
    }

    fn of(extent: Extent) -> Self {
        Self { extent, leadership: Leadership::always() }
    }

    /// Restricts writing to the time in which `leadership` holds.
    #[must_use]
    pub fn with_leadership(&self, leadership: Leadership) -> Self {
        Self { leadership, ..self.clone() }
    }

    /// Returns the owner of this namespace, as far as that is known now. The empty name stands for cluster-scoped
    /// objects, which the cluster-wide operator owns.
    pub fn owns(&self, namespace: &str) -> Ownership {
        let ownership = match &self.extent {
            Extent::Restricted { lease, .. } => lease.owns(namespace),
            Extent::ClusterWide(scopes) => scopes.owns(namespace),
            Extent::Everything => Ownership::Mine,
        };
        if ownership.may_write() && !self.leadership.holds() { Ownership::Unknown } else { ownership }
    }

    /// Returns the owner of this namespace now: where that has not been confirmed for a while, this asks the API
    /// server, and waits for the answer for five seconds at most. Check it at the start of every reconcile and before
    /// its writes.
    pub async fn confirm(&self, namespace: &str) -> Ownership {
        if let Extent::ClusterWide(scopes) = &self.extent
            && self.leadership.holds()
        {
            scopes.confirmed(namespace).await;
        }
        self.owns(namespace)
    }

    /// Yields each namespace to reconcile again because its owner changed; `None` for every namespace, when it is known
    /// again who owns which. It ends with the process.
    pub fn changes(&self) -> impl Stream<Item = Option<String>> + Send + Unpin + use<> {
        match &self.extent {
            Extent::Everything => Changes::never(),
            Extent::Restricted { lease, .. } => lease.changes(),
            Extent::ClusterWide(scopes) => scopes.changes(),
        }
    }

    /// The reason why a review of an object in this namespace is allowed unchecked; `None` if this operator has to
    /// check it.
    pub fn skip_reason(&self, namespace: &str) -> Option<String> {
        // A cluster-wide operator whose view is old validates: that needs no list.
        let owner = match &self.extent {
            Extent::ClusterWide(scopes) => scopes.peek(namespace),
            _ => self.owns(namespace),
        };
        (!owner.must_check()).then(|| self.skips())
    }

    fn skips(&self) -> String {
        match &self.extent {
            Extent::Restricted { namespace, .. } => format!("this operator is restricted to namespace {namespace}"),
            Extent::Everything | Extent::ClusterWide(_) => "namespace has namespace-restricted operator".to_owned(),
        }
    }

    /// The namespace of a restricted operator: watch only this one; all where there is none.
    pub fn restricted_to(&self) -> Option<&str> {
        if let Extent::Restricted { namespace, .. } = &self.extent { Some(namespace) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_others_beside_it_owns_everything_while_it_leads() {
        let scope = Scope::everything();
        assert!(scope.owns("team-a").may_write() && scope.owns("").may_write());
        assert_eq!(scope.restricted_to(), None);
        let follower = scope.with_leadership(Leadership::never());
        assert!(!follower.owns("team-a").may_write());
        assert!(follower.owns("team-a").must_check());
    }
}
