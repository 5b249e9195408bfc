//! C: whether the webhooks answer.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use portcullis_manifest::messages::POST_ONLY;

use super::{Note, absent, fail, fine, info, unseen, warn};
use crate::parts::View;
use crate::report::Verdict;
use crate::snapshot::{Listener, Reached};

/// C2
pub(super) fn endpoints(view: View<'_>) -> Vec<Note> {
    let place = view.subject.place();
    let Some(service) = view.service() else { return vec![fine("see W4: there is no Service")] };
    if view.is_external_name() {
        return vec![info("the webhooks are served from outside of the cluster: there are no pods to look at")];
    }
    if view.ready_endpoints(&place).unwrap_or_default() > 0 {
        return Vec::new();
    }
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
    let selector: Vec<_> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let (namespace, name) = place;
    let message = format!("Service {namespace}/{name} has no ready endpoints (its selector is {})", selector.join(","));
    vec![absent(message, format!("kubectl -n {namespace} get pods -l '{}'", selector.join(",")))]
}

/// C3
pub(super) fn ports(view: View<'_>) -> Vec<Note> {
    let Some(target) = view.target_port() else { return Vec::new() };
    let exposes = |pod: &Pod| {
        let ports: Vec<_> = container_ports(pod).collect();
        match &target {
            IntOrString::Int(number) => ports.is_empty() || ports.iter().any(|(_, port)| port == number),
            IntOrString::String(name) => ports.iter().any(|(has, _)| has == name),
        }
    };
    let Some(pod) = view.operator_pods().into_iter().find(|pod| !exposes(pod)) else { return Vec::new() };
    let has: Vec<_> = container_ports(pod).map(|(name, port)| format!("{name} {port}").trim().to_owned()).collect();
    let target = match target {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => name,
    };
    let message = format!(
        "Service {} targets port {target}, pod {} exposes {}",
        view.subject.installation.service.name,
        pod.name_any(),
        if has.is_empty() { "none".to_owned() } else { has.join(", ") }
    );
    vec![fail(message, view.subject.apply("operator"))]
}

fn container_ports(pod: &Pod) -> impl Iterator<Item = (String, i32)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.map(|port| (port.name.clone().unwrap_or_default(), port.container_port))
}

/// C4
pub(super) fn reached(view: View<'_>) -> Vec<Note> {
    let (namespace, service) = (view.subject.namespace(), &view.subject.installation.service);
    let external = view.is_external_name();
    let by_hand = if external {
        format!(
            "kubectl -n {namespace} get service {} -o yaml names the host; where it runs: curl -vk https://localhost:{}/",
            service.name, service.port
        )
    } else {
        format!(
            "kubectl -n {namespace} port-forward service/{} 9443:{}, and in another terminal: curl -vk https://localhost:9443/",
            service.name, service.port
        )
    };
    let start = if external {
        format!(
            "start the operator there, listening on port {} (run --bind), or give every command the --service-port that \
             it listens on",
            service.port
        )
    } else {
        let release = &view.subject.installation.release;
        format!("kubectl -n {namespace} get pods; kubectl -n {namespace} logs deployment/{release}")
    };
    if view.listeners().is_empty() {
        let message =
            "the listener was not called: from here the pods cannot be reached (--call-pods does, inside the cluster)";
        return vec![Note::new(Verdict::Info, message, Some(by_hand))];
    }
    let judge = |Listener { target, address, reached }: &Listener| {
        let address = address.map(|address| format!(" ({address})")).unwrap_or_default();
        let note = match reached {
            Reached::Answered(_) => return None,
            Reached::Refused => {
                fail(format!("connection refused by {target}{address}: nothing listens there"), start.clone())
            }
            Reached::Unreachable(why) => {
                warn(format!("{target}{address} cannot be reached from here: {why}"), by_hand.clone())
            }
            Reached::NoTls(why) => {
                fail(format!("{target}{address} does not speak TLS as it should: {why}"), by_hand.clone())
            }
        };
        Some(note)
    };
    view.listeners().iter().filter_map(judge).collect()
}

/// C5
pub(super) fn ourselves(view: View<'_>) -> Vec<Note> {
    let mut answered = 0;
    let mut notes = Vec::new();
    for Listener { target, reached, .. } in view.listeners().iter() {
        let Reached::Answered(served) = reached else { continue };
        answered += 1;
        let ours = |status: &Result<u16, String>, body: &str| *status == Ok(405) && body.contains(POST_ONLY);
        let Some(answer) = served.answers.iter().find(|answer| !ours(&answer.status, &answer.body)) else { continue };
        let said = match &answer.status {
            Ok(status) => format!("HTTP {status}"),
            Err(why) => why.clone(),
        };
        let message = format!(
            "{target}: unexpected answer at {} ({said}): something else listens there, or another version of the operator",
            answer.path
        );
        let fix = format!("kubectl -n {} get endpointslices,pods -o wide", view.subject.namespace());
        notes.push(warn(message, fix));
    }
    if answered == 0 { unseen("no listener was called that answered, see C4") } else { notes }
}
