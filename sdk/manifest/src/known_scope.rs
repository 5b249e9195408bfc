//! Scopes of kinds that are known from their type.

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};

use crate::Scope;

/// A resource scope of k8s-openapi that a webhook rule can name.
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
