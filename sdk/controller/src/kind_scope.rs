//! Scopes of kinds: namespaced or cluster-scoped; and the kinds whose scope is known.

use std::fmt::Debug;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use portcullis_manifest::KnownScope;
use serde::de::DeserializeOwned;

/// The scope of a kind whose type says which it is: everything that kube derives from a struct, and every kind of
/// k8s-openapi.
pub trait KindScope: KnownScope + MayOwn<NamespaceResourceScope> + Sized {
    /// Whether its objects live in namespaces.
    const NAMESPACED: bool;

    /// The API of the objects of `namespace`; of all objects if that is empty or the kind is cluster-scoped.
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client, namespace: &str) -> Api<K>;
}

/// Scopes whose objects may own objects of scope `S`: a namespaced object cannot own a cluster-scoped one.
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

/// Kinds that a controller can watch beside its own: those of k8s-openapi, all that kube derives, and
/// [`PartialObjectMeta`](kube::core::PartialObjectMeta) of either, to watch and keep only the metadata.
pub trait Watchable:
    Resource<DynamicType = (), Scope: KindScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<T> Watchable for T where
    T: Resource<DynamicType = (), Scope: KindScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

/// Formats namespace and name as `namespace/name`; the name alone without a namespace.
pub(super) fn full_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}
