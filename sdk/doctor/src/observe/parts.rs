//! Reads that take several requests, or depend on what was read before: objects, rights, logs, probes.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use futures::future::join_all;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use kube::{Api, ResourceExt as _};
use portcullis_manifest::Grant;
use serde_json::Value;

use super::read::Reader;
use crate::snapshot::{Identity, Listed, Log, Look, Probe, Right, Snapshot};
use crate::subject::{Kind, Subject};

/// The most pods whose logs are read.
const PODS: usize = 4;
/// The most rights that are asked for, and how many at the same time.
const RIGHTS: usize = 250;
const AT_ONCE: usize = 8;

/// Objects of the operator's kinds.
pub(super) async fn objects(
    reader: &Reader,
    subject: &Subject,
    in_namespace: Option<&str>,
) -> BTreeMap<String, Look<Listed<DynamicObject>>> {
    let namespace = in_namespace.or(subject.installation.restricted_to.as_deref());
    let kinds = subject.kinds.iter().map(|kind| async {
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

/// One question about a right.
struct Asked {
    group: String,
    resource: String,
    verb: &'static str,
    name: Option<String>,
    namespace: Option<String>,
}

/// Everything that the registration says is needed: each verb on each resource, under each name.
fn needed(subject: &Subject) -> Vec<Asked> {
    let access = &subject.rights;
    let own = Some(subject.namespace());
    let watched = subject.installation.restricted_to.as_deref();
    let mut needed = Vec::new();
    let leader = Some(subject.installation.leader_election_namespace.as_str());
    for (grants, namespace) in [
        (&access.own_namespace, own),
        (&access.leader_election, leader),
        (&access.cluster, None),
        (&access.watched, watched),
    ] {
        for Grant { group, resources, verbs, names, .. } in grants {
            let names: Vec<_> = names.iter().cloned().map(Some).collect();
            let names = if names.is_empty() { vec![None] } else { names };
            for (resource, name) in resources.iter().flat_map(|resource| names.iter().map(move |name| (resource, name)))
            {
                needed.extend(verbs.iter().map(|verb| Asked {
                    group: group.clone(),
                    resource: resource.clone(),
                    verb,
                    name: name.clone(),
                    namespace: namespace.map(str::to_owned),
                }));
            }
        }
    }
    needed
}

/// Whether the operator's ServiceAccount may do all that it needs to.
pub(super) async fn rights(reader: &Reader, subject: &Subject, snapshot: &Snapshot) -> Look<Listed<Right>> {
    if snapshot.is_external(subject) && snapshot.deployment(subject).is_none() {
        // It does not run under a ServiceAccount.
        return Look::default();
    }
    let own = subject.namespace();
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{own}")];
    let api = Api::<SubjectAccessReview>::all(reader.client.clone());
    let user = format!("system:serviceaccount:{own}:{}", snapshot.account(subject));
    let mut needed = needed(subject);
    let more = needed.len() > RIGHTS;
    needed.truncate(RIGHTS);
    let ask = |Asked { group, resource, verb, name, namespace }: Asked| {
        let attributes = ResourceAttributes {
            group: Some(group.clone()),
            resource: Some(resource.split('/').next().unwrap_or_default().to_owned()),
            subresource: resource.split_once('/').map(|(_, sub)| sub.to_owned()),
            verb: Some(verb.to_owned()),
            namespace: namespace.clone(),
            name: name.clone(),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.clone()),
            groups: Some(groups.to_vec()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let question = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api = &api;
        async move {
            let answer = reader.ask(api, "subjectaccessreviews.authorization.k8s.io", &question).await;
            let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
            let named = name.map(|name| format!(" {name}")).unwrap_or_default();
            answer.map(|answer| Right {
                verb: verb.to_owned(),
                on: format!("{resource}{named}{place}"),
                allowed: answer.status.is_some_and(|status| status.allowed),
            })
        }
    };
    let mut answers = futures::stream::iter(needed).map(ask).buffered(AT_ONCE);
    let mut rights = Vec::new();
    while let Some(answer) = answers.next().await {
        match answer {
            Look::Seen(right) => rights.push(right),
            // It is the same for all of them.
            blind => return blind.map(|_| Listed::default()),
        }
    }
    Look::Seen(Listed { items: rights, more })
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
        let known = reader.kind(&GroupVersionKind::gvk(group, version, &kind)).await;
        let (refusal, namespace) = match (known, serde_json::from_value::<DynamicObject>(object.clone())) {
            (Look::Seen((resource, capabilities)), Ok(parsed)) => {
                let client = reader.client.clone();
                let (api, namespace) = match capabilities.scope {
                    Scope::Cluster => (Api::all_with(client, &resource), String::new()),
                    Scope::Namespaced => (Api::namespaced_with(client, &namespace, &resource), namespace),
                };
                (reader.try_to_create(&api, &parsed).await.err(), namespace)
            }
            (Look::Refused(needs), _) => (Some((0, format!("needs {needs}"))), namespace),
            (Look::Failed(why), _) => (Some((0, why)), namespace),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::subject;

    #[test]
    fn every_verb_on_every_resource_under_every_name_is_asked_for_where_it_is_needed() {
        let mut subject = subject();
        subject.installation.restricted_to = Some("team".to_owned());
        subject.rights.own_namespace = vec![Grant::new("", &["secrets"], &["list", "delete"]).named(["a", "b"])];
        subject.rights.cluster = vec![Grant::new("coordination.k8s.io", &["leases"], &["watch"])];
        subject.rights.watched = vec![Grant::new("shop.example", &["orders", "orders/status"], &["patch"])];
        let asked: Vec<_> = needed(&subject)
            .into_iter()
            .map(|Asked { group, resource, verb, name, namespace }| {
                let part = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
                format!("{verb} {resource}.{group} {} {}", part(name), part(namespace))
            })
            .collect();
        let expected = [
            "list secrets. a shop-system",
            "delete secrets. a shop-system",
            "list secrets. b shop-system",
            "delete secrets. b shop-system",
            "watch leases.coordination.k8s.io - -",
            "patch orders.shop.example - team",
            "patch orders/status.shop.example - team",
        ];
        assert_eq!(asked, expected);
    }
}
