//! What was observed in a cluster, as the checks need it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DynamicObject;
use portcullis_pki::Certificate;

use super::configuration::Configuration;

/// The result of one read.
#[derive(Clone, Debug)]
pub enum Look<T> {
    /// It was read.
    Seen(T),
    /// The caller may not read it: the verb, the resource and the namespace of the missing right.
    Refused(String),
    /// The API server did not answer, or with an error.
    Failed(String),
}

impl<T> Look<T> {
    /// What was read, if it was.
    pub fn seen(&self) -> Option<&T> {
        match self {
            Self::Seen(seen) => Some(seen),
            Self::Refused(_) | Self::Failed(_) => None,
        }
    }

    /// The same of what was read.
    pub(super) fn map<U>(self, f: impl FnOnce(T) -> U) -> Look<U> {
        match self {
            Self::Seen(seen) => Look::Seen(f(seen)),
            Self::Refused(needs) => Look::Refused(needs),
            Self::Failed(why) => Look::Failed(why),
        }
    }

    /// What was read, or why a check that needs it says nothing.
    pub(super) fn known(&self) -> Result<&T, Blind> {
        match self {
            Self::Seen(seen) => Ok(seen),
            Self::Refused(needs) => Err(Blind(format!("could not look: needs {needs}"))),
            Self::Failed(why) => Err(Blind(format!("could not look: {why}"))),
        }
    }
}

impl<T: Default> Default for Look<T> {
    fn default() -> Self {
        Self::Seen(T::default())
    }
}

/// Why a check says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blind(pub(super) String);

/// The beginning of a list.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    /// The first items.
    pub items: Vec<T>,
    /// Whether there are more items.
    pub more: bool,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { items: Vec::new(), more: false }
    }
}

impl<T> From<Vec<T>> for Listed<T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, more: false }
    }
}

/// An admission policy, and the binding of the same name.
pub type Bound = (Look<Option<ValidatingAdmissionPolicy>>, Look<Option<ValidatingAdmissionPolicyBinding>>);

/// Namespace and name.
pub(super) type Place = (String, String);

/// A Secret. Its values are not shown in logs.
#[derive(Clone)]
pub struct Stored(pub Secret);

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.0.data.iter().flat_map(BTreeMap::keys).collect();
        f.debug_struct("Stored").field("metadata", &self.0.metadata).field("keys", &keys).finish_non_exhaustive()
    }
}

/// Everything that the checks need.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When the lists were read, by this machine's clock.
    pub now: Timestamp,
    /// The same moment by the API server's clock (to the second), where its answer had a date.
    pub server_time: Option<Timestamp>,
    /// How many requests were sent to the API server.
    pub requests: usize,
    /// The namespace whose objects are checked; without it, the one that the operator is restricted to, or all.
    pub in_namespace: Option<String>,
    /// After this many seconds an object that is being deleted counts as stuck.
    pub stuck_after_seconds: u64,
    /// All webhook configurations of the cluster, both kinds.
    pub configurations: Look<Listed<Configuration>>,
    /// The same after [`Options::watch`](crate::Options::watch).
    pub later: Option<Look<Listed<Configuration>>>,
    /// The admission policies that should exist, each with its binding, by name.
    pub cel_policies: BTreeMap<String, Bound>,
    /// The operator's CRDs that exist, by name.
    pub crds: BTreeMap<String, Look<Option<CustomResourceDefinition>>>,
    /// The Services that matching webhooks call.
    pub services: BTreeMap<Place, Look<Option<Service>>>,
    /// The EndpointSlices of those Services.
    pub endpoints: BTreeMap<Place, Look<Listed<EndpointSlice>>>,
    /// The operator's namespace and [`in_namespace`](Self::in_namespace), by name.
    pub namespaces: BTreeMap<String, Look<Option<Namespace>>>,
    /// Deployments of the operator's namespace.
    pub deployments: Look<Listed<Deployment>>,
    /// Pods of the operator's namespace.
    pub pods: Look<Listed<Pod>>,
    /// ServiceAccounts of the operator's namespace.
    pub accounts: Look<Listed<ServiceAccount>>,
    /// Jobs of the operator's namespace.
    pub jobs: Look<Listed<Job>>,
    /// NetworkPolicies of the operator's namespace.
    pub policies: Look<Listed<NetworkPolicy>>,
    /// PodDisruptionBudgets of the operator's namespace.
    pub budgets: Look<Listed<PodDisruptionBudget>>,
    /// Warning events of the operator's namespace and of [`in_namespace`](Self::in_namespace).
    pub events: Look<Listed<Event>>,
    /// RoleBindings of the operator's namespace.
    pub role_bindings: Look<Listed<RoleBinding>>,
    /// The ClusterRoleBinding of the installation.
    pub cluster_binding: Look<Option<ClusterRoleBinding>>,
    /// The rights that the operator needs, and whether its ServiceAccount has them.
    pub rights: Look<Listed<Right>>,
    /// The serving Secret.
    pub secret: Look<Option<Stored>>,
    /// The Secret of the operator's own CA.
    pub ca_secret: Look<Option<Stored>>,
    /// The Leases by which restricted operators claim namespaces, in all namespaces.
    pub leases: Look<Listed<Lease>>,
    /// Namespaces that an admission policy with its binding hands over to restricted operators.
    pub handed_over: Look<Listed<String>>,
    /// The Leases of this operator's leader elections, in all namespaces.
    pub leaders: Look<Listed<Lease>>,
    /// [`leases`](Self::leases) after [`Options::watch`](crate::Options::watch).
    pub leases_later: Option<Look<Listed<Lease>>>,
    /// cert-manager's objects.
    pub issuance: Look<Issuance>,
    /// Objects of the operator's kinds, by CRD.
    pub objects: BTreeMap<String, Look<Listed<DynamicObject>>>,
    /// The last log lines of the operator's pods and of failed Jobs.
    pub logs: Vec<(String, Look<Log>)>,
    /// Calls to the listener.
    pub listeners: Vec<Listener>,
    /// The API server's metrics of webhook calls.
    pub calls: Option<Look<Calls>>,
    /// The same after [`Options::watch`](crate::Options::watch).
    pub calls_later: Option<Look<Calls>>,
    /// The user who runs the checks.
    pub identity: Option<Look<Identity>>,
    /// Objects that should be refused, each with the API server's answer.
    pub probes: Vec<Probe>,
    /// The message of a refusal to explain.
    pub denial: Option<String>,
    /// Name of an object, to find decisions about it in the logs.
    pub object: Option<String>,
}

/// The end of a log.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Whether it is the log of a pod of the operator; otherwise that of a Job.
    pub of_operator: bool,
    /// The last lines.
    pub lines: Vec<String>,
}

/// cert-manager's objects.
#[derive(Clone, Debug, Default)]
pub struct Issuance {
    /// Whether its CRDs exist.
    pub installed: bool,
    /// Certificates of the operator's namespace.
    pub certificates: Vec<DynamicObject>,
    /// The Issuers and ClusterIssuers that those name, by kind and name; `None` where one is missing.
    pub issuers: BTreeMap<Place, Look<Option<DynamicObject>>>,
    /// Deployments of cainjector, in any namespace.
    pub injectors: Look<Listed<Deployment>>,
}

/// One right that the operator needs.
#[derive(Clone, Debug)]
pub struct Right {
    /// Verb.
    pub verb: String,
    /// Resource, name and namespace, as in `secrets entity-webhook-tls in namespace demo`.
    pub on: String,
    /// Whether the API server allows it.
    pub allowed: bool,
}

/// An address at which the webhooks should be served, and the result of a call to it.
#[derive(Clone, Debug)]
pub struct Listener {
    /// `pod NAME` or `Service NAME`.
    pub target: String,
    /// The address that was called.
    pub address: Option<SocketAddr>,
    /// The result.
    pub reached: Reached,
}

/// The result of a call to a listener.
#[derive(Clone, Debug)]
pub enum Reached {
    /// It answered over TLS.
    Answered(Box<Served>),
    /// Connection refused: nothing listens.
    Refused,
    /// No answer: the address may not be reachable from here.
    Unreachable(String),
    /// The TLS handshake failed.
    NoTls(String),
}

/// What a listener answered.
#[derive(Clone, Debug)]
pub struct Served {
    /// Its certificate.
    pub leaf: Certificate,
    /// The chain that it sent, as DER, leaf first.
    pub chain: Vec<Vec<u8>>,
    /// Its answer to a GET of each path that the configurations call.
    pub answers: Vec<Answer>,
}

/// An answer to a GET, which sends no review.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The path.
    pub path: String,
    /// HTTP status, or why there is none.
    pub status: Result<u16, String>,
    /// The beginning of the body.
    pub body: String,
}

/// Metrics since the start of the API server that answered, by the webhook's full name.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Calls that failed, with the request allowed.
    pub failed_open: BTreeMap<String, u64>,
    /// Histogram of call durations: upper bounds in seconds (the last is infinite), and cumulative counts.
    pub durations: BTreeMap<String, Vec<(f64, u64)>>,
}

/// The user who runs the checks.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The user's name.
    pub user: String,
    /// The user's groups.
    pub groups: Vec<String>,
}

/// A dry-run creation of an object that should be refused.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty for kinds without.
    pub namespace: String,
    /// The API server's refusal: code and message; `None` when it was accepted.
    pub refusal: Option<(u16, String)>,
}
