//! Reading what the checks ask for: nothing is changed, every list has an end, and what is refused is written down.

mod cert_manager;
mod counters;
mod listener;
mod parts;
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use rustls::crypto::CryptoProvider;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::configuration::Configuration;
use super::snapshot::{Bound, Listed, Look, Place, Snapshot, Stored};
use super::subject::Subject;
use portcullis_manifest::CertificateMode;
pub(super) use read::MOST;
use read::Reader;

/// The most Services that are looked up: those that webhooks for our kinds call.
const SERVICES: usize = 8;

/// What to observe in addition to the installation itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// Check only objects of this namespace, and whether the webhooks are called for it.
    pub in_namespace: Option<String>,
    /// An object whose deletion takes longer counts as stuck.
    pub stuck_after: Duration,
    /// Call the pods by their addresses, which works inside the cluster.
    pub call_pods: bool,
    /// Read configurations, Leases and the API server's metrics a second time after this duration, to see who rewrites
    /// them, and how long calls take meanwhile.
    pub watch: Option<Duration>,
    /// Objects that should be refused: they are created as a dry run.
    pub probes: Vec<Value>,
    /// The message of a refusal to explain.
    pub denial: Option<String>,
    /// Name of an object, to find decisions about it in the logs.
    pub object: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            in_namespace: None,
            stuck_after: Duration::from_mins(2),
            call_pods: false,
            watch: None,
            probes: Vec::new(),
            denial: None,
            object: None,
        }
    }
}

/// Reads everything that the checks need. Each request has a deadline. There are a few dozen requests, one for each
/// right that the operator needs (at most 250), and two for each probe.
pub async fn observe(client: Client, provider: Arc<CryptoProvider>, subject: &Subject, options: &Options) -> Snapshot {
    let reader = Reader::new(client);
    let mut snapshot = Box::pin(at_once(&reader, subject, options)).await;
    // Both at one moment, at which the lists have just been read: what is written in them is compared with it.
    snapshot.server_time = reader.server_time().await;
    snapshot.now = Timestamp::now();
    snapshot.in_namespace.clone_from(&options.in_namespace);
    snapshot.stuck_after_seconds = options.stuck_after.as_secs();
    snapshot.denial.clone_from(&options.denial);
    snapshot.object.clone_from(&options.object);

    // What is asked next depends on what was found.
    let (services, endpoints) = services(&reader, subject, &snapshot).await;
    (snapshot.services, snapshot.endpoints) = (services, endpoints);
    let (issuance, rights, logs, probes, listeners) = tokio::join!(
        cert_manager::issuance(&reader, subject),
        parts::rights(&reader, subject, &snapshot),
        parts::logs(&reader, subject, &snapshot),
        parts::probes(&reader, &options.probes),
        listener::listeners(provider, subject, &snapshot, options.call_pods),
    );
    snapshot.issuance = issuance;
    snapshot.rights = rights;
    snapshot.logs = logs;
    snapshot.probes = probes;
    snapshot.listeners = listeners;
    if let Some(watch) = options.watch {
        tokio::time::sleep(watch).await;
        let (later, leases, calls) = tokio::join!(
            configurations(&reader, subject),
            leases(&reader, subject),
            counters::calls(&reader, subject),
        );
        (snapshot.later, snapshot.leases_later, snapshot.calls_later) = (Some(later), Some(leases), calls);
    }
    snapshot.requests = reader.requests();
    snapshot
}

/// All that can be asked for without knowing anything.
async fn at_once(reader: &Reader, subject: &Subject, options: &Options) -> Snapshot {
    let own = subject.namespace();
    let installation = &subject.installation;
    let asked = options.in_namespace.as_deref().or(installation.restricted_to.as_deref());
    let of = |what: &str| format!("{what} in namespace {own}");
    macro_rules! own {
        ($kind:ty, $what:literal) => {
            reader.list(Api::<$kind>::namespaced(reader.client.clone(), own), of($what), ListParams::default())
        };
    }
    let crds = join_all(subject.kinds.iter().map(|kind| async {
        let api = Api::<CustomResourceDefinition>::all(reader.client.clone());
        (kind.crd.clone(), reader.get(api, "customresourcedefinitions", &kind.crd).await)
    }));
    let cel_policies = cel_policies(reader, subject);
    let secret = async |name: &str| -> Look<Option<Stored>> {
        let api = Api::<Secret>::namespaced(reader.client.clone(), own);
        reader.get(api, of(&format!("secrets {name}")), name).await.map(|found| found.map(Stored))
    };
    let ca_secret = async {
        match installation.certificates {
            CertificateMode::Automatic => secret(&installation.ca_secret()).await,
            CertificateMode::CertManager | CertificateMode::External | CertificateMode::Hooks => Look::default(),
        }
    };
    let binding = async {
        let api = Api::<ClusterRoleBinding>::all(reader.client.clone());
        reader.get(api, "clusterrolebindings", &installation.role()).await
    };
    let first = async {
        tokio::join!(
            configurations(reader, subject),
            crds,
            namespaces(reader, [Some(own), asked]),
            own!(Deployment, "deployments"),
            own!(Pod, "pods"),
            own!(ServiceAccount, "serviceaccounts"),
            own!(Job, "jobs"),
            own!(NetworkPolicy, "networkpolicies"),
            own!(PodDisruptionBudget, "poddisruptionbudgets"),
            own!(RoleBinding, "rolebindings"),
            binding,
        )
    };
    let second = async {
        tokio::join!(
            events(reader, own, options.in_namespace.as_deref()),
            secret(&installation.secret),
            ca_secret,
            leases(reader, subject),
            leaders(reader, subject),
            handed_over(reader, subject),
            cel_policies,
            parts::objects(reader, subject, options.in_namespace.as_deref()),
            counters::calls(reader, subject),
            parts::identity(reader, options.denial.is_some()),
        )
    };
    let (
        (configurations, crds, namespaces, deployments, pods, accounts, jobs, policies, budgets, roles, cluster),
        (events, secret, ca_secret, leases, leaders, handed_over, cel_policies, objects, calls, identity),
    ) = tokio::join!(first, second);
    Snapshot {
        configurations,
        crds: crds.into_iter().collect(),
        namespaces,
        deployments,
        pods,
        accounts,
        jobs,
        policies,
        budgets,
        role_bindings: roles,
        cluster_binding: cluster,
        events,
        secret,
        ca_secret,
        leases,
        leaders,
        handed_over,
        cel_policies,
        objects,
        calls,
        identity,
        ..Snapshot::default()
    }
}

async fn configurations(reader: &Reader, subject: &Subject) -> Look<Listed<Configuration>> {
    let validating = Api::<ValidatingWebhookConfiguration>::all(reader.client.clone());
    let mutating = Api::<MutatingWebhookConfiguration>::all(reader.client.clone());
    let (validating, mutating) = tokio::join!(
        of_kind(reader, validating, "validatingwebhookconfigurations", subject.installation.validating()),
        of_kind(reader, mutating, "mutatingwebhookconfigurations", subject.installation.mutating()),
    );
    both(validating.map(of_either_kind), mutating.map(of_either_kind))
}

/// The first of a kind, and its own wherever it stands in the list.
async fn of_kind<K>(reader: &Reader, api: Api<K>, what: &str, own: String) -> Look<Listed<K>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut listed = match reader.list(api.clone(), what, ListParams::default()).await {
        Look::Seen(listed) => listed,
        blind => return blind,
    };
    if listed.more && !listed.items.iter().any(|one| one.meta().name.as_ref() == Some(&own)) {
        match reader.get(api, what, &own).await {
            Look::Seen(found) => listed.items.extend(found),
            blind => return blind.map(|_| Listed::default()),
        }
    }
    Look::Seen(listed)
}

fn of_either_kind<K: Into<Configuration>>(list: Listed<K>) -> Listed<Configuration> {
    Listed { items: list.items.into_iter().map(Into::into).collect(), more: list.more }
}

async fn namespaces(reader: &Reader, names: [Option<&str>; 2]) -> BTreeMap<String, Look<Option<Namespace>>> {
    let names: BTreeSet<_> = names.into_iter().flatten().collect();
    let found = names.into_iter().map(|name| async move {
        let api = Api::<Namespace>::all(reader.client.clone());
        (name.to_owned(), reader.get(api, "namespaces", name).await)
    });
    join_all(found).await.into_iter().collect()
}

async fn events(reader: &Reader, own: &str, other: Option<&str>) -> Look<Listed<Event>> {
    let of = async |namespace: &str| {
        let api = Api::<Event>::namespaced(reader.client.clone(), namespace);
        let warnings = ListParams::default().fields("type=Warning");
        reader.list(api, format!("events in namespace {namespace}"), warnings).await
    };
    match other.filter(|other| *other != own) {
        None => of(own).await,
        Some(other) => {
            let (own, other) = tokio::join!(of(own), of(other));
            both(own, other)
        }
    }
}

async fn leases(reader: &Reader, subject: &Subject) -> Look<Listed<Lease>> {
    let client = reader.client.clone();
    let (api, place) = match &subject.installation.restricted_to {
        Some(one) => (Api::<Lease>::namespaced(client, one), format!("leases in namespace {one}")),
        None => (Api::all(client), "leases in all namespaces".to_owned()),
    };
    let named = ListParams::default().fields(&format!("metadata.name={}", subject.installation.scope_lease));
    reader.list(api, place, named).await
}

/// The namespaces that policies with their bindings hand over.
async fn handed_over(reader: &Reader, subject: &Subject) -> Look<Listed<String>> {
    let selector = format!("app.kubernetes.io/name={}", subject.installation.operator);
    let labelled = || ListParams::default().labels(&selector);
    let policies = Api::<ValidatingAdmissionPolicy>::all(reader.client.clone());
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(reader.client.clone());
    let (policies, bindings) = tokio::join!(
        reader.list(policies, "validatingadmissionpolicies", labelled()),
        reader.list(bindings, "validatingadmissionpolicybindings", labelled()),
    );
    let bindings = match bindings {
        Look::Seen(bindings) => bindings,
        blind => return blind.map(|_| Listed::default()),
    };
    let lease = &subject.installation.scope_lease;
    policies.map(|policies| Listed {
        more: policies.more || bindings.more,
        items: portcullis_lease::handed_over(lease, &policies.items, &bindings.items).into_iter().collect(),
    })
}

/// Those that should be there, by name.
async fn cel_policies(reader: &Reader, subject: &Subject) -> BTreeMap<String, Bound> {
    let names = subject.policies().into_iter().filter_map(|(policy, _)| policy.metadata.name);
    let found = names.map(|name| async move {
        let policies = Api::<ValidatingAdmissionPolicy>::all(reader.client.clone());
        let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(reader.client.clone());
        let bound = tokio::join!(
            reader.get(policies, "validatingadmissionpolicies", &name),
            reader.get(bindings, "validatingadmissionpolicybindings", &name),
        );
        (name, bound)
    });
    join_all(found).await.into_iter().collect()
}

/// A restricted look is not for what others do to the cluster.
async fn leaders(reader: &Reader, subject: &Subject) -> Look<Listed<Lease>> {
    if subject.installation.restricted_to.is_some() {
        return Look::default();
    }
    let leaders = ListParams::default().labels(&portcullis_manifest::names::leaders(subject.installation.operator));
    reader.list(Api::all(reader.client.clone()), "leases in all namespaces".to_owned(), leaders).await
}

/// The Services that webhooks for our kinds or under our names call, and who stands behind them.
async fn services(
    reader: &Reader,
    subject: &Subject,
    snapshot: &Snapshot,
) -> (BTreeMap<Place, Look<Option<Service>>>, BTreeMap<Place, Look<Listed<EndpointSlice>>>) {
    let mut places = vec![subject.place()];
    for entry in snapshot.related(subject).map(|(_, entry)| entry) {
        places.extend(entry.service().filter(|place| !places.contains(place)));
    }
    places.truncate(SERVICES);
    let found = join_all(places.into_iter().map(|place| async {
        let (namespace, name) = &place;
        let services = Api::<Service>::namespaced(reader.client.clone(), namespace);
        let slices = Api::<EndpointSlice>::namespaced(reader.client.clone(), namespace);
        let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
        let (what, slices_what) =
            (format!("services in namespace {namespace}"), format!("endpointslices in namespace {namespace}"));
        let (service, slices) =
            tokio::join!(reader.get(services, what, name), reader.list(slices, slices_what, of_service));
        (place, service, slices)
    }));
    let (mut services, mut endpoints) = (BTreeMap::new(), BTreeMap::new());
    for (place, service, slices) in found.await {
        services.insert(place.clone(), service);
        endpoints.insert(place, slices);
    }
    (services, endpoints)
}

/// Two lists as one; what could not be seen of either is missing from both.
fn both<T>(one: Look<Listed<T>>, other: Look<Listed<T>>) -> Look<Listed<T>> {
    match (one, other) {
        (Look::Seen(mut one), Look::Seen(other)) => {
            one.items.extend(other.items);
            one.more |= other.more;
            Look::Seen(one)
        }
        (Look::Seen(_), blind) | (blind, _) => blind,
    }
}

#[cfg(test)]
mod tests;
