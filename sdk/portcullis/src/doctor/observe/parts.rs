//! Reads that take several requests, or depend on what was read before: objects, rights, logs, probes.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, ResourceExt as _};
use portcullis_manifest::Grant;
use serde_json::Value;

use super::read::Reader;
use crate::doctor::snapshot::{Identity, Listed, Log, Look, Probe, Right, Snapshot};
use crate::doctor::subject::{Kind, Subject};

/// The most kinds, pods and rights that are looked at.
const KINDS: usize = 8;
const PODS: usize = 4;
const RIGHTS: usize = 12;

/// Objects of the operator's kinds.
pub(super) async fn objects(
    reader: &Reader,
    subject: &Subject,
    in_namespace: Option<&str>,
) -> BTreeMap<String, Look<Listed<DynamicObject>>> {
    let namespace = in_namespace.or(subject.installation.restricted_to.as_deref());
    let kinds = subject.kinds.iter().take(KINDS).map(|kind| async {
        let Kind { group, version, kind: name, plural, .. } = kind;
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural);
        let client = reader.client.clone();
        let (api, place) = match namespace.filter(|_| kind.namespaced) {
            Some(namespace) => {
                (Api::namespaced_with(client, namespace, &resource), format!(" in namespace {namespace}"))
            }
            None => (Api::all_with(client, &resource), String::new()),
        };
        (kind.crd.clone(), reader.list(api, format!("{plural}.{group}{place}"), ListParams::default()).await)
    });
    join_all(kinds).await.into_iter().collect()
}

/// Whether the operator's ServiceAccount may do what certificates and webhooks need of it.
pub(super) async fn rights(reader: &Reader, subject: &Subject, snapshot: &Snapshot) -> Look<Vec<Right>> {
    let (own, account) = (subject.namespace(), snapshot.account(subject));
    let mut wanted = Vec::new();
    for (grants, namespace) in [(&subject.access.own_namespace, Some(own)), (&subject.access.cluster, None)] {
        for Grant { group, resources, verbs, names, .. } in grants {
            for (resource, verb) in resources.iter().flat_map(|resource| verbs.iter().map(move |verb| (resource, verb)))
            {
                let name = names.first().cloned();
                // One of the verbs that change something stands for its grant, and the others for themselves.
                if matches!(*verb, "patch" | "create" | "get" | "update") {
                    wanted.push((*group, *resource, *verb, name, namespace));
                }
            }
        }
    }
    wanted.truncate(RIGHTS);
    let api = Api::<SubjectAccessReview>::all(reader.client.clone());
    let mut rights = Vec::new();
    for (group, resource, verb, name, namespace) in wanted {
        let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
        let named = name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let attributes = ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(resource.split('/').next().unwrap_or_default().to_owned()),
            subresource: resource.split_once('/').map(|(_, sub)| sub.to_owned()),
            verb: Some(verb.to_owned()),
            namespace: namespace.map(str::to_owned),
            name,
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{own}:{account}")),
            groups: Some(vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{own}")]),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let question = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        match reader.ask(&api, "subjectaccessreviews.authorization.k8s.io", &question).await {
            Look::Seen(answer) => rights.push(Right {
                what: format!("{verb} {resource}{named}{place}"),
                allowed: answer.status.is_some_and(|status| status.allowed),
            }),
            blind => return blind.map(|_| Vec::new()),
        }
    }
    Look::Seen(rights)
}

/// The end of what the operator's pods and those of failed Jobs said.
pub(super) async fn logs(reader: &Reader, subject: &Subject, snapshot: &Snapshot) -> Vec<(String, Look<Log>)> {
    let own = subject.namespace();
    let started = |pod: &&Pod| {
        let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        containers.into_iter().any(|container| {
            container.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        })
    };
    let operator = snapshot.operator_pods(subject).into_iter().filter(started).take(PODS).map(|pod| (pod, true));
    let jobs = snapshot.job_pods(subject).into_iter().filter(started).take(PODS).map(|pod| (pod, false));
    let logs = operator.chain(jobs).map(|(pod, of_operator)| async move {
        let name = pod.name_any();
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        // Its own container comes first; sidecars are injected behind it.
        let container = containers.first().map(|container| container.name.as_str());
        let log = reader.log(own, &name, container).await;
        (name, log.map(|lines| Log { of_operator, lines }))
    });
    join_all(logs).await
}

/// What becomes of objects that should be refused.
pub(super) async fn probes(reader: &Reader, objects: &[Value]) -> Vec<Probe> {
    let mut probes = Vec::new();
    for object in objects {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("/apiVersion").rsplit_once('/').unwrap_or(("", text("/apiVersion")));
        let kind = text("/kind").to_owned();
        let namespace = match text("/metadata/namespace") {
            "" => reader.client.default_namespace(),
            namespace => namespace,
        }
        .to_owned();
        let known = pinned_kind(&reader.client, &GroupVersionKind::gvk(group, version, &kind)).await;
        let (refusal, namespace) = match (known, serde_json::from_value::<DynamicObject>(object.clone())) {
            (Ok((resource, capabilities)), Ok(parsed)) => {
                let client = reader.client.clone();
                let (api, namespace) = match capabilities.scope {
                    Scope::Cluster => (Api::all_with(client, &resource), String::new()),
                    Scope::Namespaced => (Api::namespaced_with(client, &namespace, &resource), namespace),
                };
                (reader.try_to_create(&api, &parsed).await.err(), namespace)
            }
            (Err(error), _) => (Some((0, error.to_string())), namespace),
            (_, Err(error)) => (Some((0, format!("it is no object: {error}"))), namespace),
        };
        probes.push(Probe { kind, namespace, refusal });
    }
    probes
}

/// Who asks.
pub(super) async fn identity(reader: &Reader, wanted: bool) -> Option<Look<Identity>> {
    if !wanted {
        return None;
    }
    let api = Api::<SelfSubjectReview>::all(reader.client.clone());
    let what = "selfsubjectreviews.authentication.k8s.io";
    let asked = reader.ask(&api, what, &SelfSubjectReview::default()).await;
    Some(asked.map(|review| {
        let user = review.status.and_then(|status| status.user_info).unwrap_or_default();
        Identity { user: user.username.unwrap_or_default(), groups: user.groups.unwrap_or_default() }
    }))
}
