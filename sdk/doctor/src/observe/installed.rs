//! Objects of the operator's own namespace, and the Services that are called.

use futures::future::join_all;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt as _};
use portcullis_manifest::CertificateMode;
use serde::de::DeserializeOwned;

use super::{Reading, both};
use crate::snapshot::{Listed, Log, Look, Place, Stored};

/// The most Services that are looked up: those that webhooks for our kinds call.
const SERVICES: usize = 8;
/// The most pods whose logs are read.
const PODS: usize = 4;

/// The objects of one kind.
pub(super) async fn own<K>(reading: &Reading<'_>) -> Look<Listed<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let own = reading.view.subject.namespace();
    let api = Api::<K>::namespaced(reading.reader.client.clone(), own);
    reading.reader.list(api, format!("{} in namespace {own}", K::plural(&())), ListParams::default()).await
}

pub(super) async fn cluster_binding(reading: &Reading<'_>) -> Look<Option<ClusterRoleBinding>> {
    let api = Api::<ClusterRoleBinding>::all(reading.reader.client.clone());
    reading.reader.get(api, "clusterrolebindings", &reading.view.subject.installation.role()).await
}

pub(super) async fn secret(reading: &Reading<'_>) -> Look<Option<Stored>> {
    secret_named(reading, &reading.view.subject.installation.secret).await
}

pub(super) async fn ca_secret(reading: &Reading<'_>) -> Look<Option<Stored>> {
    let installation = &reading.view.subject.installation;
    match installation.certificates {
        CertificateMode::Automatic => secret_named(reading, &installation.ca_secret()).await,
        CertificateMode::CertManager | CertificateMode::External | CertificateMode::Hooks => Look::default(),
    }
}

async fn secret_named(reading: &Reading<'_>, name: &str) -> Look<Option<Stored>> {
    let own = reading.view.subject.namespace();
    let api = Api::<Secret>::namespaced(reading.reader.client.clone(), own);
    let found = reading.reader.get(api, format!("secrets {name} in namespace {own}"), name).await;
    found.map(|found| found.map(Stored))
}

/// One that another installation calls and that the caller may not read counts as one that is not in the list.
pub(super) async fn services(reading: &Reading<'_>) -> Look<Listed<(Place, Option<Service>)>> {
    let view = reading.view;
    let own = view.subject.place();
    let mut others = Vec::new();
    let conversions = view.conversions().map(|(_, entry)| entry.service());
    for place in view.related().map(|(_, entry)| entry.service()).chain(conversions).flatten() {
        if place != own && !others.contains(&place) {
            others.push(place);
        }
    }
    let left_out = others.len() >= SERVICES;
    others.truncate(SERVICES - 1);
    let find = async |place: Place| {
        let (namespace, name) = &place;
        let api = Api::<Service>::namespaced(reading.reader.client.clone(), namespace);
        let found = reading.reader.get(api, format!("services in namespace {namespace}"), name).await;
        found.map(|service| Listed::from(vec![(place, service)]))
    };
    let (own, others) = tokio::join!(find(own), join_all(others.into_iter().map(find)));
    let unread = |found| match found {
        Look::Seen(found) => found,
        Look::Refused(_) | Look::Failed(_) => Listed { items: Vec::new(), more: true },
    };
    let first = own.map(|own| Listed { more: left_out, ..own });
    others.into_iter().map(unread).fold(first, |all, one| both(all, Look::Seen(one)))
}

pub(super) async fn endpoints(reading: &Reading<'_>) -> Look<Listed<(Place, usize)>> {
    let found = reading.view.services().iter().map(async |(place, _)| {
        let (namespace, name) = place;
        let api = Api::<EndpointSlice>::namespaced(reading.reader.client.clone(), namespace);
        let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
        let slices = reading.reader.list(api, format!("endpointslices in namespace {namespace}"), of_service).await;
        slices.map(|slices| Listed { items: vec![(place.clone(), ready(&slices))], more: slices.more })
    });
    join_all(found).await.into_iter().reduce(both).unwrap_or_default()
}

/// The number of ready addresses. An endpoint that does not say counts as ready.
fn ready(slices: &[EndpointSlice]) -> usize {
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter());
    let is_ready = endpoints
        .filter(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true));
    is_ready.map(|endpoint| endpoint.addresses.len()).sum()
}

/// A log that a node does not give, while others do, counts as one that is not in the list.
pub(super) async fn logs(reading: &Reading<'_>) -> Look<Listed<Log>> {
    let own = reading.view.subject.namespace();
    let started = |pod: &&Pod| {
        let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        containers.into_iter().any(|container| {
            container.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        })
    };
    let pods = reading.view.operator_pods().into_iter().filter(started).take(PODS);
    let found = join_all(pods.map(async |pod| {
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        // Its own container comes first; sidecars are injected behind it.
        let container = containers.first().map(|container| container.name.as_str());
        let lines = reading.reader.log(own, &pod.name_any(), container).await;
        lines.map(|lines| Listed::from(vec![Log { pod: pod.name_any(), lines }]))
    }));
    let one_of_two = |one, other| match (one, other) {
        (Look::Seen(one), Look::Failed(_)) | (Look::Failed(_), Look::Seen(one)) => {
            Look::Seen(Listed { more: true, ..one })
        }
        (one, other) => both(one, other),
    };
    found.await.into_iter().reduce(one_of_two).unwrap_or_default()
}
