//! Reads that take several requests, or depend on what was read before.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, ResourceExt as _};
use portcullis_manifest::Grant;
use rustls::crypto::CryptoProvider;
use serde_json::Value;

use super::listener::call;
use super::map;
use super::read::Reader;
use crate::certificates::CertificateMode;
use crate::doctor::snapshot::{
    Calls, Identity, Issuance, Listed, Listener, Log, Look, Place, Probe, Reached, Right, Snapshot,
};
use crate::doctor::subject::{Kind, Subject};

/// The most kinds, pods and rights that are looked at.
const KINDS: usize = 8;
const PODS: usize = 4;
const RIGHTS: usize = 12;
/// The most addresses of a name that are called.
const ADDRESSES: usize = 4;
const FAIL_OPEN: &str = "apiserver_admission_webhook_fail_open_count";
const DURATIONS: &str = "apiserver_admission_webhook_admission_duration_seconds_bucket";

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

/// What cert-manager has for this installation.
pub(super) async fn issuance(reader: &Reader, subject: &Subject) -> Look<Issuance> {
    let own = subject.namespace();
    let resource = |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", kind));
    let groups =
        Api::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>::all(
            reader.client.clone(),
        );
    let found = reader.get(groups, "customresourcedefinitions", "certificates.cert-manager.io").await;
    match found {
        Look::Seen(Some(_)) => {}
        Look::Seen(None) => return Look::default(),
        Look::Refused(_) if subject.installation.certificates != CertificateMode::CertManager => {
            return Look::default();
        }
        Look::Refused(needs) => return Look::Refused(needs),
        Look::Failed(why) => return Look::Failed(why),
    }
    let certificates: Api<DynamicObject> = Api::namespaced_with(reader.client.clone(), own, &resource("Certificate"));
    let what = format!("certificates.cert-manager.io in namespace {own}");
    let certificates = match reader.list(certificates, what, ListParams::default()).await {
        Look::Seen(list) => list.items,
        Look::Refused(needs) => return Look::Refused(needs),
        Look::Failed(why) => return Look::Failed(why),
    };
    let mut issuers = BTreeMap::new();
    for certificate in certificates.iter().take(PODS) {
        let text = |pointer: &str| certificate.data.pointer(pointer).and_then(Value::as_str);
        let kind = text("/spec/issuerRef/kind").unwrap_or("Issuer");
        let Some(name) = text("/spec/issuerRef/name") else { continue };
        let place: Place = (kind.to_owned(), name.to_owned());
        if issuers.contains_key(&place) {
            continue;
        }
        let (api, what): (Api<DynamicObject>, _) = if kind == "ClusterIssuer" {
            (Api::all_with(reader.client.clone(), &resource(kind)), "clusterissuers.cert-manager.io".to_owned())
        } else {
            let api = Api::namespaced_with(reader.client.clone(), own, &resource("Issuer"));
            (api, format!("issuers.cert-manager.io in namespace {own}"))
        };
        let issuer = reader.get(api, what, name).await;
        issuers.insert(place, issuer);
    }
    let injectors = Api::<Deployment>::all(reader.client.clone());
    let labelled = ListParams::default().labels("app.kubernetes.io/name=cainjector");
    let injectors = reader.list(injectors, "deployments in all namespaces", labelled).await;
    Look::Seen(Issuance { installed: true, certificates, issuers, injectors })
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
            Look::Refused(needs) => return Look::Refused(needs),
            Look::Failed(why) => return Look::Failed(why),
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
        (name, map(log, |lines| Log { of_operator, lines }))
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

/// Calls to the places at which the webhooks are served, as far as they can be called from here.
pub(super) async fn listeners(
    provider: Arc<CryptoProvider>,
    subject: &Subject,
    snapshot: &Snapshot,
    call_pods: bool,
) -> Vec<Listener> {
    let installation = &subject.installation;
    if !subject.is_called() {
        return Vec::new();
    }
    let service = snapshot.service(subject).and_then(|service| service.spec.as_ref());
    let external = service.filter(|spec| spec.type_.as_deref() == Some("ExternalName"));
    let mut targets: Vec<(String, Vec<SocketAddr>)> = Vec::new();
    if let Some(host) = external.and_then(|spec| spec.external_name.as_deref()) {
        // It stands for a host; the port is the one that the API server calls.
        let entries = snapshot.ours(subject);
        let port = entries.first().and_then(|(_, entry)| u16::try_from(entry.port()).ok());
        let port = port.unwrap_or(installation.service.port);
        let found = tokio::net::lookup_host((host, port)).await.map(|found| found.take(ADDRESSES).collect());
        targets.push((format!("Service {} ({host})", installation.service.name), found.unwrap_or_default()));
    } else if call_pods {
        let port = snapshot.target_port(subject);
        for pod in snapshot.operator_pods(subject).into_iter().filter(|pod| ready(pod)).take(PODS) {
            let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()?.parse().ok());
            let port = port.as_ref().and_then(|port| Snapshot::port_of(pod, port));
            let address = ip.zip(port).map(|(ip, port)| SocketAddr::new(ip, port));
            targets.push((format!("pod {}", pod.name_any()), Vec::from_iter(address)));
        }
    }
    let mut paths: Vec<String> = snapshot.ours(subject).iter().map(|(_, entry)| entry.path().to_owned()).collect();
    paths.extend(subject.conversions.iter().map(|(_, path)| path.clone()));
    paths.sort();
    paths.dedup();
    paths.truncate(KINDS * 2);
    let name = installation.server_name();
    let calls = targets.into_iter().map(|(target, addresses)| {
        let (provider, name, paths) = (&provider, &name, &paths);
        async move {
            let mut listener =
                Listener { target, address: None, reached: Reached::Unreachable("it has no address".to_owned()) };
            // A name may stand for several addresses, of which one answers.
            for address in addresses {
                listener.address = Some(address);
                listener.reached = call(Arc::clone(provider), address, name, paths).await;
                if matches!(listener.reached, Reached::Answered(_) | Reached::NoTls(_)) {
                    break;
                }
            }
            listener
        }
    });
    join_all(calls).await
}

/// What the API server counted of our webhooks.
pub(super) async fn calls(reader: &Reader, subject: &Subject) -> Option<Look<Calls>> {
    if !subject.is_called() {
        return None;
    }
    let lines = reader.metrics(&[FAIL_OPEN, DURATIONS]).await;
    Some(map(lines, |lines| counted(&lines, subject)))
}

fn counted(lines: &[String], subject: &Subject) -> Calls {
    let mut calls = Calls::default();
    for line in lines {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let label = |name: &str| series.split_once(&format!("{name}=\""))?.1.split_once('"').map(|(value, _)| value);
        let Some(name) = label("name").filter(|name| subject.webhooks.iter().any(|webhook| webhook.name == *name))
        else {
            continue;
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counters are whole and not negative"
        )]
        let Ok(count) = value.parse::<f64>().map(|value| value as u64) else { continue };
        if series.starts_with(FAIL_OPEN) {
            *calls.failed_open.entry(name.to_owned()).or_default() += count;
        } else if let Some(most) = label("le").and_then(|le| le.replace("+Inf", "inf").parse::<f64>().ok()) {
            let buckets = calls.durations.entry(name.to_owned()).or_default();
            // One series for each operation: together they are the webhook's.
            match buckets.iter_mut().find(|(le, _)| le.total_cmp(&most).is_eq()) {
                Some((_, sum)) => *sum += count,
                None => buckets.push((most, count)),
            }
        }
    }
    for buckets in calls.durations.values_mut() {
        buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    }
    calls
}

/// Who asks.
pub(super) async fn identity(reader: &Reader, wanted: bool) -> Option<Look<Identity>> {
    if !wanted {
        return None;
    }
    let api = Api::<SelfSubjectReview>::all(reader.client.clone());
    let what = "selfsubjectreviews.authentication.k8s.io";
    let asked = reader.ask(&api, what, &SelfSubjectReview::default()).await;
    Some(map(asked, |review| {
        let user = review.status.and_then(|status| status.user_info).unwrap_or_default();
        Identity { user: user.username.unwrap_or_default(), groups: user.groups.unwrap_or_default() }
    }))
}

/// Whether it is taken for ready.
pub(in crate::doctor) fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use portcullis_manifest::{Webhook, WebhookKind};

    use super::*;
    use crate::doctor::tests::subject;

    #[test]
    fn counters_of_other_webhooks_and_lines_that_are_none_are_left_out() {
        let mut subject = subject();
        subject.webhooks = vec![Webhook::new("a.b.c", WebhookKind::Validating, "/a", Vec::new())];
        let lines = [
            r#"apiserver_admission_webhook_fail_open_count{name="a.b.c",type="validating"} 3"#,
            r#"apiserver_admission_webhook_fail_open_count{name="x.y.z",type="validating"} 5"#,
            r#"apiserver_admission_webhook_admission_duration_seconds_bucket{name="a.b.c",operation="CREATE",le="+Inf"} 7"#,
            r#"apiserver_admission_webhook_admission_duration_seconds_bucket{name="a.b.c",operation="CREATE",le="0.5"} 4"#,
            r#"apiserver_admission_webhook_admission_duration_seconds_bucket{name="a.b.c",operation="UPDATE",le="0.5"} 2"#,
            "garbage",
        ];
        let calls = counted(&lines.map(str::to_owned), &subject);
        assert_eq!(calls.failed_open, BTreeMap::from([("a.b.c".to_owned(), 3)]));
        assert_eq!(calls.durations["a.b.c"], [(0.5, 6), (f64::INFINITY, 7)]);
    }
}
