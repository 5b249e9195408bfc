//! Where objects of a kind live: in namespaces, or in none.

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use portcullis_manifest::KnownScope;

/// The scope of a kind whose type says which it is: everything that kube derives from a struct, and every kind of
/// k8s-openapi.
pub trait KindScope: KnownScope + MayOwn<NamespaceResourceScope> + Sized {
    /// Whether its objects live in namespaces.
    const NAMESPACED: bool;

    /// The objects of `namespace`: of all namespaces where that is empty, or where the kind has none.
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client, namespace: &str) -> Api<K>;
}

/// Scopes whose objects may be named as owners by objects of scope `S`: an object without a namespace cannot be owned by
/// one that lives in a namespace.
pub trait MayOwn<S> {}

impl MayOwn<Self> for NamespaceResourceScope {}
impl MayOwn<NamespaceResourceScope> for ClusterResourceScope {}
impl MayOwn<Self> for ClusterResourceScope {}

impl KindScope for NamespaceResourceScope {
    const NAMESPACED: bool = true;

    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client, namespace: &str) -> Api<K> {
        if namespace.is_empty() { Api::all(client) } else { Api::namespaced(client, namespace) }
    }
}

impl KindScope for ClusterResourceScope {
    const NAMESPACED: bool = false;

    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client, _: &str) -> Api<K> {
        Api::all(client)
    }
}

/// Namespace and name as people write them; the name alone where there is no namespace.
pub(super) fn full_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}
