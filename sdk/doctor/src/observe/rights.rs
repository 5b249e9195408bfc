//! The rights that the operator needs.

use futures::StreamExt as _;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;

use super::Reading;
use crate::snapshot::{Listed, Look, Right};
use crate::subject::Subject;

/// The most rights that are asked for, and how many at the same time.
const RIGHTS: usize = 250;
const AT_ONCE: usize = 8;

/// One question about a right.
struct Asked {
    group: String,
    resource: String,
    verb: String,
    name: Option<String>,
    namespace: Option<String>,
}

/// Each verb on each resource under each name that the registration needs.
fn needed(subject: &Subject) -> Vec<Asked> {
    let access = &subject.rights;
    let own = Some(subject.namespace());
    let watched = subject.installation.restricted_to.as_deref();
    let mut needed = Vec::new();
    let leader = Some(subject.installation.leader_election_namespace.as_str());
    for (rules, namespace) in [
        (&access.own_namespace, own),
        (&access.leader_election, leader),
        (&access.cluster, None),
        (&access.watched, watched),
    ] {
        for PolicyRule { api_groups, resources, verbs, resource_names, .. } in rules {
            let names = resource_names.as_ref().map_or(vec![None], |names| names.iter().cloned().map(Some).collect());
            for group in api_groups.iter().flatten() {
                for (resource, name) in
                    resources.iter().flatten().flat_map(|it| names.iter().map(move |name| (it, name)))
                {
                    needed.extend(verbs.iter().map(|verb| Asked {
                        group: group.clone(),
                        resource: resource.clone(),
                        verb: verb.clone(),
                        name: name.clone(),
                        namespace: namespace.map(str::to_owned),
                    }));
                }
            }
        }
    }
    needed
}

/// Whether the operator's ServiceAccount may do all that it needs to.
pub(super) async fn rights(reading: &Reading<'_>) -> Look<Listed<Right>> {
    let (reader, view) = (reading.reader, reading.view);
    if !view.has_account() {
        return Look::default();
    }
    let own = view.subject.namespace();
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{own}")];
    let api = Api::<SubjectAccessReview>::all(reader.client.clone());
    let user = format!("system:serviceaccount:{own}:{}", view.account());
    let mut needed = needed(view.subject);
    let more = needed.len() > RIGHTS;
    needed.truncate(RIGHTS);
    let ask = |Asked { group, resource, verb, name, namespace }: Asked| {
        let attributes = ResourceAttributes {
            group: Some(group.clone()),
            resource: Some(resource.split('/').next().unwrap_or_default().to_owned()),
            subresource: resource.split_once('/').map(|(_, sub)| sub.to_owned()),
            verb: Some(verb.clone()),
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
                verb,
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

#[cfg(test)]
mod tests {
    use portcullis_manifest::{named_policy_rule, policy_rule};

    use super::*;
    use crate::tests::subject;

    #[test]
    fn every_right_is_checked_by_verb_resource_and_name() {
        let mut subject = subject();
        subject.installation.restricted_to = Some("team".to_owned());
        subject.rights.own_namespace = vec![named_policy_rule("", &["secrets"], &["list", "delete"], ["a", "b"])];
        subject.rights.cluster = vec![policy_rule("coordination.k8s.io", &["leases"], &["watch"])];
        subject.rights.watched = vec![policy_rule("shop.example", &["orders", "orders/status"], &["patch"])];
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
