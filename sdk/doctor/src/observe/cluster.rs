//! Objects that are not in the operator's own namespace.

use futures::future::join_all;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::read::Reader;
use super::{Reading, both};
use crate::configuration::Configuration;
use crate::snapshot::{Listed, Look};
use crate::subject::Kind;

pub(super) async fn configurations(reading: &Reading<'_>) -> Look<Listed<Configuration>> {
    let (reader, installation) = (reading.reader, &reading.view.subject.installation);
    let validating = Api::<ValidatingWebhookConfiguration>::all(reader.client.clone());
    let mutating = Api::<MutatingWebhookConfiguration>::all(reader.client.clone());
    let (validating, mutating) = tokio::join!(
        of_kind(reader, validating, "validatingwebhookconfigurations", installation.validating()),
        of_kind(reader, mutating, "mutatingwebhookconfigurations", installation.mutating()),
    );
    both(validating, mutating)
}

/// The first of a kind, and its own wherever it stands in the list.
async fn of_kind<K>(reader: &Reader, api: Api<K>, what: &str, own: String) -> Look<Listed<Configuration>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Into<Configuration>,
{
    let mut listed = match reader.list(api.clone(), what, ListParams::default()).await {
        Look::Seen(listed) => listed,
        blind => return blind.map(|_| Listed::default()),
    };
    if listed.more && !listed.iter().any(|one| one.meta().name.as_ref() == Some(&own)) {
        match reader.get(api, what, &own).await {
            Look::Seen(found) => listed.items.extend(found),
            blind => return blind.map(|_| Listed::default()),
        }
    }
    Look::Seen(Listed { items: listed.items.into_iter().map(Into::into).collect(), more: listed.more })
}

pub(super) async fn crds(reading: &Reading<'_>) -> Look<Listed<CustomResourceDefinition>> {
    let found = reading.view.subject.kinds.iter().map(async |kind| {
        let api = Api::<CustomResourceDefinition>::all(reading.reader.client.clone());
        let found = reading.reader.get(api, "customresourcedefinitions", &kind.crd).await;
        found.map(|crd| Listed::from(Vec::from_iter(crd)))
    });
    join_all(found).await.into_iter().reduce(both).unwrap_or_default()
}

pub(super) async fn asked_namespace(reading: &Reading<'_>) -> Look<Option<Namespace>> {
    let Some(asked) = reading.view.asked_namespace_name() else { return Look::default() };
    reading.reader.get(Api::<Namespace>::all(reading.reader.client.clone()), "namespaces", asked).await
}

pub(super) async fn events(reading: &Reading<'_>) -> Look<Listed<Event>> {
    let of = async |namespace: &str| {
        let api = Api::<Event>::namespaced(reading.reader.client.clone(), namespace);
        let warnings = ListParams::default().fields("type=Warning");
        reading.reader.list(api, format!("events in namespace {namespace}"), warnings).await
    };
    let own = reading.view.subject.namespace();
    match reading.view.snapshot.options.in_namespace.as_deref().filter(|other| *other != own) {
        None => of(own).await,
        Some(other) => {
            let (own, other) = tokio::join!(of(own), of(other));
            both(own, other)
        }
    }
}

/// A restricted installation looks at its own namespace alone.
pub(super) async fn leases(reading: &Reading<'_>) -> Look<Listed<Lease>> {
    let (client, installation) = (reading.reader.client.clone(), &reading.view.subject.installation);
    let (api, place) = match &installation.restricted_to {
        Some(one) => (Api::<Lease>::namespaced(client, one), format!("leases in namespace {one}")),
        None => (Api::all(client), "leases in all namespaces".to_owned()),
    };
    let named = ListParams::default().fields(&format!("metadata.name={}", installation.scope_lease));
    reading.reader.list(api, place, named).await
}

pub(super) async fn handed_over(reading: &Reading<'_>) -> Look<Listed<String>> {
    let (reader, installation) = (reading.reader, &reading.view.subject.installation);
    let selector = format!("app.kubernetes.io/name={}", installation.operator);
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
    policies.map(|policies| Listed {
        more: policies.more || bindings.more,
        items: portcullis_lease::handed_over(&installation.scope_lease, &policies, &bindings).into_iter().collect(),
    })
}

/// A restricted installation may not see those of others.
pub(super) async fn leaders(reading: &Reading<'_>) -> Look<Listed<Lease>> {
    let installation = &reading.view.subject.installation;
    if installation.restricted_to.is_some() {
        return Look::default();
    }
    let leaders = ListParams::default().labels(&portcullis_manifest::names::leader_selector(installation.operator));
    reading.reader.list(Api::all(reading.reader.client.clone()), "leases in all namespaces", leaders).await
}

pub(super) async fn objects(reading: &Reading<'_>) -> Look<Listed<(String, DynamicObject)>> {
    let namespace = reading.view.asked_namespace_name();
    let kinds = reading.view.subject.kinds.iter().map(async |kind| {
        let Kind { crd, group, version, kind, plural, namespaced } = kind;
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        let client = reading.reader.client.clone();
        let (api, place) = match namespace.filter(|_| *namespaced) {
            Some(namespace) => {
                (Api::namespaced_with(client, namespace, &resource), format!(" in namespace {namespace}"))
            }
            None => (Api::all_with(client, &resource), String::new()),
        };
        let found = reading.reader.list(api, format!("{plural}.{group}{place}"), ListParams::default()).await;
        found.map(|Listed { items, more }| Listed {
            items: items.into_iter().map(|object| (crd.clone(), object)).collect(),
            more,
        })
    });
    join_all(kinds).await.into_iter().reduce(both).unwrap_or_default()
}
