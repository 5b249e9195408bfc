//! The children of a plan.

use k8s_openapi::{
    Resource,
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{ConfigMap, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        rbac::v1::{Role, RoleBinding},
    },
};
use kube_core::ApiResource;
use serde::Serialize;
use serde_json::Value;

/// The kinds of children this operator makes. Exhaustive: each kind of workloads says of every one whose it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChildKind {
    /// `v1` ConfigMap.
    ConfigMap,
    /// `v1` Service.
    Service,
    /// `v1` ServiceAccount.
    ServiceAccount,
    /// `rbac.authorization.k8s.io/v1` Role.
    Role,
    /// `rbac.authorization.k8s.io/v1` RoleBinding.
    RoleBinding,
    /// `networking.k8s.io/v1` NetworkPolicy.
    NetworkPolicy,
    /// `apps/v1` Deployment.
    Deployment,
    /// `apps/v1` StatefulSet.
    StatefulSet,
}

/// A child by kind and name; its namespace is its workload's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildRef {
    /// The kind.
    pub kind: ChildKind,
    /// `metadata.name`.
    pub name: String,
}

/// A child as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Which object it is.
    pub reference: ChildRef,
    /// The document: what the operator wants to own and nothing else.
    pub object: Value,
}

impl ChildKind {
    /// All kinds, in no particular order.
    pub const ALL: [Self; 8] = [
        Self::ConfigMap,
        Self::Service,
        Self::ServiceAccount,
        Self::Role,
        Self::RoleBinding,
        Self::NetworkPolicy,
        Self::Deployment,
        Self::StatefulSet,
    ];

    /// The kind's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Service => "Service",
            Self::ServiceAccount => "ServiceAccount",
            Self::Role => "Role",
            Self::RoleBinding => "RoleBinding",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
        }
    }

    /// API group and plural, as rules of roles name them.
    pub fn group_and_plural(self) -> (&'static str, &'static str) {
        fn of<K: Resource>() -> (&'static str, &'static str) {
            (K::GROUP, K::URL_PATH_SEGMENT)
        }
        match self {
            Self::ConfigMap => of::<ConfigMap>(),
            Self::Service => of::<Service>(),
            Self::ServiceAccount => of::<ServiceAccount>(),
            Self::Role => of::<Role>(),
            Self::RoleBinding => of::<RoleBinding>(),
            Self::NetworkPolicy => of::<NetworkPolicy>(),
            Self::Deployment => of::<Deployment>(),
            Self::StatefulSet => of::<StatefulSet>(),
        }
    }

    /// Group, version, kind and plural as the API server names them.
    pub fn api_resource(self) -> ApiResource {
        match self {
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            Self::Service => ApiResource::erase::<Service>(&()),
            Self::ServiceAccount => ApiResource::erase::<ServiceAccount>(&()),
            Self::Role => ApiResource::erase::<Role>(&()),
            Self::RoleBinding => ApiResource::erase::<RoleBinding>(&()),
            Self::NetworkPolicy => ApiResource::erase::<NetworkPolicy>(&()),
            Self::Deployment => ApiResource::erase::<Deployment>(&()),
            Self::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        }
    }
}

impl ChildRef {
    /// The child of this kind and name.
    pub fn new(kind: ChildKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }
}

impl Child {
    /// The document of `object`, whose metadata says `name`.
    pub fn new<T: Resource + Serialize>(kind: ChildKind, name: &str, object: &T) -> Self {
        // Kubernetes types are structs of strings, numbers and maps with string keys: they always serialize.
        let object = serde_json::to_value(object).unwrap_or_default();
        Self { reference: ChildRef::new(kind, name), object }
    }
}
