//! The parts of a snapshot. A check declares the parts that it reads; those that some check declares are observed, and
//! a check that cannot see one of its parts, or not all of it, says so. A new part is a row here, which ends with the
//! function of `observe` that reads it.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DynamicObject;

use crate::configuration::Configuration;
use crate::snapshot::{Extent as _, Issuance, Listed, Listener, Log, Look, Place, Right, Stored};
use crate::subject::{Options, Subject};

/// Hands the rows to a macro: documentation, name and field, type, name in messages, the parts that say where to find
/// this one, and its reader.
macro_rules! with_parts {
    ($then:ident) => {
        $then! {
            /// All webhook configurations of the cluster, of both kinds.
            Configurations configurations: Listed<Configuration>, "webhook configurations", [], cluster::configurations;
            /// The operator's CRDs that exist.
            Crds crds: Listed<CustomResourceDefinition>, "CRDs of the operator", [], cluster::crds;
            /// The Services that webhooks for the operator's kinds call, the installation's own first; `None` where one
            /// is missing.
            Services services: Listed<(Place, Option<Service>)>, "Services that webhooks for these kinds call",
                [Configurations Crds], installed::services;
            /// The number of ready addresses behind each of those Services.
            Endpoints endpoints: Listed<(Place, usize)>, "endpoints of those Services", [Services], installed::endpoints;
            /// The namespace that is asked about.
            AskedNamespace asked_namespace: Option<Namespace>, "namespaces", [], cluster::asked_namespace;
            /// Deployments of the operator's namespace.
            Deployments deployments: Listed<Deployment>, "Deployments of the operator's namespace", [], installed::own;
            /// Pods of the operator's namespace.
            Pods pods: Listed<Pod>, "pods of the operator's namespace", [], installed::own;
            /// ServiceAccounts of the operator's namespace.
            Accounts accounts: Listed<ServiceAccount>, "ServiceAccounts of the operator's namespace", [], installed::own;
            /// Jobs of the operator's namespace.
            Jobs jobs: Listed<Job>, "Jobs of the operator's namespace", [], installed::own;
            /// RoleBindings of the operator's namespace.
            RoleBindings role_bindings: Listed<RoleBinding>, "RoleBindings of the operator's namespace", [], installed::own;
            /// The ClusterRoleBinding of the installation.
            ClusterBinding cluster_binding: Option<ClusterRoleBinding>, "ClusterRoleBindings", [], installed::cluster_binding;
            /// The rights that the operator needs, and whether its ServiceAccount has them.
            Rights rights: Listed<Right>, "rights", [Services Deployments], rights::rights;
            /// The serving Secret.
            Secret secret: Option<Stored>, "Secrets", [], installed::secret;
            /// The Secret of the operator's own CA, where it has one.
            CaSecret ca_secret: Option<Stored>, "Secrets", [], installed::ca_secret;
            /// Warning events of the operator's namespace and of the one that is asked about.
            Events events: Listed<Event>, "warnings in a namespace", [], cluster::events;
            /// The Leases by which restricted operators claim namespaces.
            Leases leases: Listed<Lease>, "Leases by which namespaces are claimed", [], cluster::leases;
            /// Namespaces that an admission policy with its binding hands over to restricted operators.
            HandedOver handed_over: Listed<String>, "admission policies that hand namespaces over", [], cluster::handed_over;
            /// The Leases of this operator's leader elections, in all namespaces.
            Leaders leaders: Listed<Lease>, "Leases of leaders", [], cluster::leaders;
            /// cert-manager's objects.
            Issuance issuance: Issuance, "Certificates of the operator's namespace", [], cert_manager::issuance;
            /// Objects of the operator's kinds, each with the name of its CRD.
            Objects objects: Listed<(String, DynamicObject)>,
                "objects of a kind (--in-namespace looks at those of one namespace)", [], cluster::objects;
            /// The last log lines of the operator's pods.
            Logs logs: Listed<Log>, "logs of the operator's pods", [Services Deployments Pods], installed::logs;
            /// Calls to the listeners.
            Listeners listeners: Listed<Listener>, "pods that could be called", [Services Deployments Pods], listener::listeners;
        }
    };
}
pub(super) use with_parts;

macro_rules! snapshot {
    ($($(#[$doc:meta])+ $part:ident $field:ident: $type:ty, $what:literal, [$($after:ident)*], $read:path;)+) => {
        /// One thing that a check may read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Part { $($(#[$doc])+ $part),+ }

        /// The state of the cluster, as far as it was read.
        #[derive(Clone, Debug, Default)]
        pub(super) struct Snapshot {
            /// When it was read: by the API server's clock, where its answer had a date, to the second.
            pub(super) now: Timestamp,
            /// The number of requests that were sent to the API server.
            pub(super) requests: usize,
            /// The questions that the caller asked.
            pub(super) options: Options,
            $($(#[$doc])+ pub(super) $field: Look<$type>,)+
        }

        impl Part {
            /// All parts.
            pub(super) const ALL: &[Self] = &[$(Self::$part),+];

            /// Its name in messages, as a plural.
            pub(super) fn what(self) -> &'static str {
                match self { $(Self::$part => $what),+ }
            }

            /// The parts that say where to find this one.
            pub(super) fn after(self) -> &'static [Self] {
                match self { $(Self::$part => &[$(Self::$after),*]),+ }
            }

            /// Whether there is more of it than was read; why it was not read otherwise.
            pub(super) fn is_cut(self, snapshot: &Snapshot) -> Result<bool, String> {
                match self { $(Self::$part => snapshot.$field.known().map(|seen| seen.is_cut())),+ }
            }
        }

        impl<'a> View<'a> {
            $($(#[$doc])+ pub(super) fn $field(self) -> &'a $type {
                static EMPTY: std::sync::LazyLock<$type> = std::sync::LazyLock::new(<$type>::default);
                self.reads(Part::$part);
                self.snapshot.$field.seen().unwrap_or(&EMPTY)
            })+
        }
    };
}
with_parts!(snapshot);

impl Part {
    /// Whether this part is among those that have to be read for `parts`.
    pub(super) fn is_read_for(self, parts: &[Self]) -> bool {
        parts.iter().any(|part| *part == self || self.is_read_for(part.after()))
    }
}

/// The parts of a snapshot that a check has declared.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) subject: &'a Subject,
    pub(super) snapshot: &'a Snapshot,
    pub(super) parts: &'a [Part],
}

impl View<'_> {
    /// Reports a check that reads a part that it does not declare, and that may not have been read.
    fn reads(self, part: Part) {
        debug_assert!(part.is_read_for(self.parts), "{part:?} is not declared: {:?}", self.parts);
    }
}
