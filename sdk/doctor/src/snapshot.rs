//! What was observed. Nothing here is judged.

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

/// What became of one read.
#[derive(Clone, Debug)]
pub enum Look<T> {
    /// It was read.
    Seen(T),
    /// The caller may not: the verb, the resource and the namespace that it needs.
    Refused(String),
    /// The API server did not answer, or not as it should.
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

/// A list, and whether there was more of it than is looked at.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    /// The first of them.
    pub items: Vec<T>,
    /// Whether there are more.
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

/// Everything that the checks ask for.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When the lists had been read, by this machine's clock.
    pub now: Timestamp,
    /// The same moment by the API server's clock (to the second), where its answer carried it.
    pub server_time: Option<Timestamp>,
    /// How many requests were sent to the API server.
    pub requests: usize,
    /// Only objects of this namespace are looked at; all without, or those of the one that the operator is restricted to.
    pub in_namespace: Option<String>,
    /// After this many seconds an object that is being deleted counts as stuck.
    pub stuck_after_seconds: u64,
    /// All webhook configurations of the cluster, both kinds.
    pub configurations: Look<Listed<Configuration>>,
    /// The same a while later, when that was asked for.
    pub later: Option<Look<Listed<Configuration>>>,
    /// The policies with CEL rules that should exist, each with its binding, by name.
    pub cel_policies: BTreeMap<String, Bound>,
    /// The operator's CRDs that exist, by name.
    pub crds: BTreeMap<String, Look<Option<CustomResourceDefinition>>>,
    /// The Services that matching webhooks call.
    pub services: BTreeMap<Place, Look<Option<Service>>>,
    /// The EndpointSlices of those Services.
    pub endpoints: BTreeMap<Place, Look<Listed<EndpointSlice>>>,
    /// The operator's namespace and the one that is asked about, by name.
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
    /// Warnings of the operator's namespace and of the namespace that was asked for.
    pub events: Look<Listed<Event>>,
    /// RoleBindings of the operator's namespace.
    pub role_bindings: Look<Listed<RoleBinding>>,
    /// The ClusterRoleBinding of the installation.
    pub cluster_binding: Look<Option<ClusterRoleBinding>>,
    /// What the operator's ServiceAccount may do, of what it needs.
    pub rights: Look<Listed<Right>>,
    /// The serving Secret.
    pub secret: Look<Option<Stored>>,
    /// The Secret of the operator's own CA.
    pub ca_secret: Look<Option<Stored>>,
    /// Leases under the scope's names, in all namespaces.
    pub leases: Look<Listed<Lease>>,
    /// Namespaces that an admission policy with its binding hands over to restricted operators of this kind.
    pub handed_over: Look<Listed<String>>,
    /// The Leases of the leaders of cluster-wide installations of this operator, in all namespaces.
    pub leaders: Look<Listed<Lease>>,
    /// Those under the scope's names a while later, when that was asked for.
    pub leases_later: Option<Look<Listed<Lease>>>,
    /// cert-manager's part, where it is installed.
    pub issuance: Look<Issuance>,
    /// Objects of the operator's kinds, by CRD.
    pub objects: BTreeMap<String, Look<Listed<DynamicObject>>>,
    /// The end of what pods of the operator and of failed Jobs said.
    pub logs: Vec<(String, Look<Log>)>,
    /// Calls to the listener.
    pub listeners: Vec<Listener>,
    /// What the API server counted.
    pub calls: Option<Look<Calls>>,
    /// The same a while later, when that was asked for.
    pub calls_later: Option<Look<Calls>>,
    /// Who asks.
    pub identity: Option<Look<Identity>>,
    /// Objects that should be refused, each with what became of it.
    pub probes: Vec<Probe>,
    /// A refusal that somebody wants explained.
    pub denial: Option<String>,
    /// An object that somebody wants to know about, by name.
    pub object: Option<String>,
}

/// The end of a log.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Whether it is that of a pod of the operator; of a Job otherwise.
    pub of_operator: bool,
    /// The last lines.
    pub lines: Vec<String>,
}

/// cert-manager's objects.
#[derive(Clone, Debug, Default)]
pub struct Issuance {
    /// Whether its kinds exist.
    pub installed: bool,
    /// Certificates of the operator's namespace.
    pub certificates: Vec<DynamicObject>,
    /// The Issuers and ClusterIssuers that those name, by kind and name; none where there is none.
    pub issuers: BTreeMap<Place, Look<Option<DynamicObject>>>,
    /// Deployments of cainjector, in any namespace.
    pub injectors: Look<Listed<Deployment>>,
}

/// One right that the operator or a controller needs.
#[derive(Clone, Debug)]
pub struct Right {
    /// The ServiceAccount that needs it.
    pub account: String,
    /// Verb.
    pub verb: String,
    /// As in `secrets entity-webhook-tls in namespace demo`: resource, name, place.
    pub on: String,
    /// Whether the API server allows it.
    pub allowed: bool,
}

/// A place at which the webhooks should be served, and what became of a call there.
#[derive(Clone, Debug)]
pub struct Listener {
    /// `pod NAME` or `Service NAME`.
    pub target: String,
    /// The address that was called.
    pub address: Option<SocketAddr>,
    /// What became of it.
    pub reached: Reached,
}

/// What became of a call to a listener.
#[derive(Clone, Debug)]
pub enum Reached {
    /// It speaks TLS.
    Answered(Box<Served>),
    /// Nothing listens.
    Refused,
    /// No answer: from here it may not be reachable at all.
    Unreachable(String),
    /// Something listens that does not speak TLS as it should.
    NoTls(String),
}

/// What a listener showed.
#[derive(Clone, Debug)]
pub struct Served {
    /// Its certificate.
    pub leaf: Certificate,
    /// The chain that it sent, as DER, leaf first.
    pub chain: Vec<Vec<u8>>,
    /// What it says to a GET of each path that the configurations call.
    pub answers: Vec<Answer>,
}

/// An answer to a GET: nothing is reviewed by it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Path.
    pub path: String,
    /// HTTP status, or why there is none.
    pub status: Result<u16, String>,
    /// The beginning of the body.
    pub body: String,
}

/// What the API server that answered counted since its start, by the webhook's full name.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Calls that failed and were let pass.
    pub failed_open: BTreeMap<String, u64>,
    /// Calls by how long they took at most: seconds (the last is infinite), and how many, growing.
    pub durations: BTreeMap<String, Vec<(f64, u64)>>,
}

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The user's name.
    pub user: String,
    /// Its groups.
    pub groups: Vec<String>,
}

/// A dry-run creation of an object that should be refused.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty for kinds without.
    pub namespace: String,
    /// The API server's refusal: code and message; none when it was accepted.
    pub refusal: Option<(u16, String)>,
}
