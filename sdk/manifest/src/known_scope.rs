//! Scopes of kinds that a type tells.

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};

use crate::Scope;

/// Scopes that a webhook rule can name.
pub trait KnownScope {
    /// The scope, as rules write it.
    const SCOPE: Scope;
}

impl KnownScope for NamespaceResourceScope {
    const SCOPE: Scope = Scope::Namespaced;
}

impl KnownScope for ClusterResourceScope {
    const SCOPE: Scope = Scope::Cluster;
}
