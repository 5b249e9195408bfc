//! Scopes of kinds that are known from their type.

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};

use crate::ScopeType;

/// A resource scope of k8s-openapi that a webhook rule can name.
pub trait KnownScope {
    /// The scope, as rules write it.
    const SCOPE: ScopeType;
}

impl KnownScope for NamespaceResourceScope {
    const SCOPE: ScopeType = ScopeType::Namespaced;
}

impl KnownScope for ClusterResourceScope {
    const SCOPE: ScopeType = ScopeType::Cluster;
}
