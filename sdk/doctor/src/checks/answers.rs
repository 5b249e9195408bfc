//! C: do the webhooks answer?

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use portcullis_pki::Certificate;

use super::cut::missing;
use super::{Said, View, fail, fine, info, unseen, warn};
use crate::configuration::{Entry, selects};
use crate::lookups::ready;
use crate::snapshot::{Listener, Look, Reached, Snapshot};
use crate::trust::pair;
use portcullis_manifest::words::POST_ONLY;

/// Sidecars that take a pod's inbound calls, each with the annotation that keeps a port out of it.
const SIDECARS: [(&str, &str); 2] = [
    ("istio-proxy", "traffic.sidecar.istio.io/excludeInboundPorts"),
    ("linkerd-proxy", "config.linkerd.io/skip-inbound-ports"),
];
/// Answers should take a small part of the time that there is.
const SLOW: f64 = 1.0;

const OUTSIDE: &str = "the webhooks are served from outside of the cluster: there are no pods to look at";

/// C2
pub(super) fn endpoints(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let place = subject.place();
    let Some(service) = snapshot.services.get(&place) else { return Ok(Vec::new()) };
    let Some(service) = service.known()? else { return Ok(vec![fine("see W4: there is no Service")]) };
    if snapshot.is_external(subject) {
        return Ok(vec![info(OUTSIDE)]);
    }
    let Some(slices) = snapshot.endpoints.get(&place) else { return Ok(Vec::new()) };
    if ready_endpoints(&slices.known()?.items) > 0 {
        return Ok(Vec::new());
    }
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
    let selector: Vec<_> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let (namespace, name) = place;
    let message = format!("Service {namespace}/{name} has no ready endpoints (its selector is {})", selector.join(","));
    Ok(vec![fail(message, format!("kubectl -n {namespace} get pods -l '{}'", selector.join(",")))])
}

fn ready_endpoints(slices: &[k8s_openapi::api::discovery::v1::EndpointSlice]) -> usize {
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter());
    let is_ready = endpoints.filter(|endpoint| {
        // What is not said counts as ready.
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    });
    is_ready.map(|endpoint| endpoint.addresses.len()).sum()
}

/// C3
pub(super) fn ports(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.pods.known()?;
    let Some(target) = snapshot.target_port(subject) else { return Ok(Vec::new()) };
    let mut notes = Vec::new();
    for pod in snapshot.operator_pods(subject) {
        let ports: Vec<_> = container_ports(pod).collect();
        let exposed = match &target {
            IntOrString::Int(number) => ports.is_empty() || ports.iter().any(|(_, port)| port == number),
            IntOrString::String(name) => ports.iter().any(|(has, _)| has == name),
        };
        if !exposed {
            let has: Vec<_> = ports.iter().map(|(name, port)| format!("{name} {port}").trim().to_owned()).collect();
            let (service, target) = (&subject.installation.service.name, shown_port(&target));
            let message = format!(
                "Service {service} targets port {target}, pod {} exposes {}",
                pod.name_any(),
                if has.is_empty() { "none".to_owned() } else { has.join(", ") }
            );
            notes.push(fail(message, subject.apply("operator")));
            break;
        }
    }
    Ok(notes)
}

fn container_ports(pod: &Pod) -> impl Iterator<Item = (String, i32)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.map(|port| (port.name.clone().unwrap_or_default(), port.container_port))
}

fn shown_port(port: &IntOrString) -> String {
    match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => name.clone(),
    }
}

/// C4
pub(super) fn reached(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let (namespace, service) = (subject.namespace(), &subject.installation.service);
    let external = snapshot.is_external(subject);
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
    if snapshot.listeners.is_empty() {
        let message =
            "the listener was not called: from here the pods cannot be reached (--call-pods does, inside the cluster)";
        return Ok(vec![super::note(crate::report::Verdict::Info, message, Some(by_hand))]);
    }
    let mut notes = Vec::new();
    for Listener { target, address, reached } in &snapshot.listeners {
        let port = address.map(|address| address.port());
        let address = address.map(|address| format!(" ({address})")).unwrap_or_default();
        match reached {
            Reached::Answered(_) => {}
            Reached::Refused => notes.push(fail(
                format!("connection refused by {target}{address}: nothing listens there"),
                if external {
                    // Entries may call another port than this installation's, of which nobody outside knows.
                    let strayed = snapshot.ours(subject).into_iter().map(|(_, entry)| entry).find(|entry| {
                        entry.port() != i32::from(service.port) && port.is_some_and(|port| entry.port() == i32::from(port))
                    });
                    strayed.map_or_else(
                        || {
                            format!(
                                "start the operator there, listening on port {} (run --bind), or give every command the \
                                 --service-port that it listens on",
                                service.port
                            )
                        },
                        |entry| subject.restore(&entry),
                    )
                } else {
                    format!(
                        "kubectl -n {namespace} get pods; kubectl -n {namespace} logs deployment/{}",
                        subject.installation.release
                    )
                },
            )),
            Reached::Unreachable(why) => {
                notes.push(warn(format!("{target}{address} cannot be reached from here: {why}"), by_hand.clone()));
            }
            Reached::NoTls(why) => {
                notes.push(fail(format!("{target}{address} does not speak TLS as it should: {why}"), by_hand.clone()));
            }
        }
    }
    Ok(notes)
}

/// C5
pub(super) fn ourselves(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    if !snapshot.listeners.iter().any(|listener| matches!(listener.reached, Reached::Answered(_))) {
        return unseen("no listener was called that answered, see C4");
    }
    let served = subject.paths();
    let mut notes = Vec::new();
    for Listener { target, reached, .. } in &snapshot.listeners {
        let Reached::Answered(answered) = reached else { continue };
        let strange = answered.answers.iter().find(|answer| {
            let ours = answer.status == Ok(405) && answer.body.contains(POST_ONLY);
            // 404 is W5's.
            served.contains(&&*answer.path) && !ours && answer.status != Ok(404)
        });
        if let Some(answer) = strange {
            let said = match &answer.status {
                Ok(status) => format!("HTTP {status}"),
                Err(why) => why.clone(),
            };
            let message =
                format!("{target}: unexpected answer at {} ({said}): something else listens there", answer.path);
            notes.push(warn(message, format!("kubectl -n {} get endpointslices,pods -o wide", subject.namespace())));
        }
    }
    Ok(notes)
}

/// C6
pub(super) fn policies(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let listed = snapshot.policies.known()?;
    snapshot.pods.known()?;
    let Some(target) = snapshot.target_port(subject) else { return Ok(Vec::new()) };
    let mut notes = Vec::new();
    for pod in snapshot.operator_pods(subject) {
        let selecting: Vec<_> = listed.items.iter().filter(|policy| restricts(policy, pod)).collect();
        // Policies add up: one that lets the API server in is enough.
        let port = Snapshot::port_of(pod, &target);
        if selecting.is_empty() || selecting.iter().any(|policy| lets_anybody_in(policy, &target, port)) {
            continue;
        }
        let names: Vec<_> = selecting.iter().map(|policy| policy.name_any()).collect();
        let message = format!(
            "NetworkPolicy {} may block the API server: nobody from outside of the selected peers may call port {} of {}",
            names.join(", "),
            shown_port(&target),
            pod.name_any()
        );
        let fix = format!(
            "let everybody, or the API servers' addresses (ipBlock), call the port: {}",
            subject.apply("operator")
        );
        notes.push(missing(listed, "NetworkPolicies", warn(message, fix)));
        break;
    }
    Ok(notes)
}

fn restricts(policy: &NetworkPolicy, pod: &Pod) -> bool {
    policy.spec.as_ref().is_some_and(|spec| {
        let ingress = spec.policy_types.as_ref().is_none_or(|types| types.iter().any(|one| one == "Ingress"));
        ingress && selects(spec.pod_selector.as_ref(), pod.labels())
    })
}

fn lets_anybody_in(policy: &NetworkPolicy, target: &IntOrString, number: Option<u16>) -> bool {
    let rules = policy.spec.iter().flat_map(|spec| spec.ingress.iter().flatten());
    rules.into_iter().any(|rule| {
        let peers = rule.from.as_deref().unwrap_or_default();
        // API servers are no pods: an address is the only peer that they can be.
        let anybody = peers.is_empty() || peers.iter().any(|peer| peer.ip_block.is_some());
        let ports = rule.ports.as_deref().unwrap_or_default();
        let open = |port: &NetworkPolicyPort| match (&port.port, port.end_port) {
            (None, _) => true,
            (Some(IntOrString::Int(from)), Some(to)) => {
                number.is_some_and(|number| (*from..=to).contains(&i32::from(number)))
            }
            (Some(IntOrString::Int(one)), None) => number.is_some_and(|number| i32::from(number) == *one),
            (Some(name), None) => name == target,
            (Some(IntOrString::String(_)), Some(_)) => false,
        };
        anybody && (ports.is_empty() || ports.iter().any(open))
    })
}

/// C7
pub(super) fn sidecars(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.pods.known()?;
    let target = snapshot.target_port(subject);
    let mut notes = Vec::new();
    for pod in snapshot.operator_pods(subject) {
        let spec = pod.spec.as_ref();
        let containers =
            spec.into_iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
        let names: Vec<_> = containers.map(|container| container.name.as_str()).collect();
        for (sidecar, annotation) in SIDECARS.into_iter().filter(|(sidecar, _)| names.contains(sidecar)) {
            let port = target.as_ref().and_then(|target| Snapshot::port_of(pod, target)).unwrap_or(9443);
            let excluded = pod.annotations().get(annotation);
            if excluded.is_some_and(|ports| ports.split(',').any(|one| one.trim() == port.to_string())) {
                continue;
            }
            let message = format!(
                "sidecar {sidecar} on operator pod {}: the API server has no identity of its mesh",
                pod.name_any()
            );
            notes.push(warn(
                message,
                format!("exclude inbound port {port}: annotate the pod template with {annotation}: \"{port}\""),
            ));
        }
        if !notes.is_empty() {
            break;
        }
    }
    Ok(notes)
}

/// C10
pub(super) fn latency(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let Some(calls) = &snapshot.calls else { return Ok(Vec::new()) };
    let calls = match calls {
        Look::Seen(calls) => calls,
        // Most people may not read these, and nothing is broken by that.
        Look::Refused(needs) => return Ok(vec![info(format!("how long calls take is not known: needs {needs}"))]),
        Look::Failed(why) => return Ok(vec![info(format!("how long calls take is not known: {why}"))]),
    };
    let later = snapshot.calls_later.as_ref().and_then(Look::seen);
    let mut notes = Vec::new();
    for (label, entry) in snapshot.ours(subject) {
        let before = calls.durations.get(&entry.name).map(Vec::as_slice).unwrap_or_default();
        let during = later.and_then(|later| between(before, later.durations.get(&entry.name)?));
        let during = during.filter(|during| total(during) > 0);
        // What is counted since the API server's start says little of today.
        let (buckets, when) = match &during {
            Some(during) => (during.as_slice(), "while they were watched"),
            None => (before, "since the API server's start"),
        };
        let Some(most) = slow(buckets) else { continue };
        let message = format!(
            "{label}: of 100 calls 99 take {most} of the {} s that there are ({} calls {when})",
            entry.timeout_seconds,
            total(buckets)
        );
        let cure = "give the operator more CPU, or see what its handlers wait for (/metrics of the operator)";
        notes.push(if during.is_some() {
            warn(message, cure)
        } else {
            let watch = format!("whether they still do, says: {}; if so, {cure}", subject.command("doctor --watch 1m"));
            super::note(crate::report::Verdict::Info, message, Some(watch))
        });
    }
    Ok(notes)
}

/// Calls by how long they took at most, growing.
type Buckets = [(f64, u64)];

fn total(buckets: &Buckets) -> u64 {
    buckets.last().map_or(0, |(_, count)| *count)
}

/// What was counted between two looks; nothing where the API server was started anew, or another one answered.
fn between(before: &Buckets, after: &Buckets) -> Option<Vec<(f64, u64)>> {
    let known = |most: f64| before.iter().find(|(one, _)| one.total_cmp(&most).is_eq()).map_or(0, |(_, count)| *count);
    after.iter().map(|(most, count)| Some((*most, count.checked_sub(known(*most))?))).collect()
}

/// How long 99 of 100 calls took at most, if that is long.
fn slow(buckets: &Buckets) -> Option<String> {
    let total = total(buckets);
    // The first bucket that holds 99 of 100.
    let p99 = buckets.iter().find(|(_, count)| total > 0 && count.saturating_mul(100) >= total.saturating_mul(99));
    let (most, _) = p99.filter(|(most, _)| *most > SLOW)?;
    Some(if most.is_finite() { format!("up to {most} s") } else { "more than the slowest bucket".to_owned() })
}

/// C12
pub(super) fn network(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let pods = snapshot.operator_pods(subject);
    let well = pods.iter().any(|pod| ready(pod)) && !snapshot.is_external(subject);
    let events = &snapshot.events.known()?.items;
    let timed_out = events.iter().filter_map(|event| event.message.as_deref()).find(|message| {
        let ours = subject.webhooks.iter().any(|webhook| message.contains(&webhook.name));
        ours && ["context deadline exceeded", "i/o timeout", "no route to host"]
            .iter()
            .any(|sign| message.contains(sign))
    });
    let Some(message) = timed_out.filter(|_| well) else { return Ok(Vec::new()) };
    let message = format!("the API server may not reach the pod network, although the pods are ready: {message}");
    let fix = "let the control plane reach the pods' port (a firewall rule for 9443 on private clusters), or run the pods \
               with hostNetwork where the CNI is not the cloud's own";
    Ok(vec![warn(message, fix)])
}

/// Why calls of this entry fail, as far as what was observed tells.
pub(super) fn unreachable(view: &View<'_>, entry: &Entry) -> Option<String> {
    let View { subject, snapshot, now, .. } = *view;
    let place = entry.service()?;
    let (namespace, name) = &place;
    let service = snapshot.services.get(&place)?.seen()?;
    let Some(service) = service else { return Some(format!("Service {namespace}/{name} is gone")) };
    let external = service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName"));
    let slices = snapshot.endpoints.get(&place).and_then(Look::seen);
    if !external && slices.is_some_and(|slices| ready_endpoints(&slices.items) == 0) {
        return Some(format!("Service {namespace}/{name} has no ready endpoints"));
    }
    let Some(bundle) = entry.bundle() else { return Some("its caBundle is empty".to_owned()) };
    if let Err(why) = Certificate::all_from_pem(bundle) {
        return Some(format!("its caBundle is not PEM: {why}"));
    }
    if place != subject.place() {
        return None;
    }
    let stored = snapshot.secret.seen()?.as_ref()?;
    let pair = pair(stored).ok()?;
    if pair.trusted_by(bundle, now) == Some(false) {
        return Some("its caBundle does not vouch for the serving certificate".to_owned());
    }
    let dead = |listener: &Listener| matches!(listener.reached, Reached::Refused | Reached::NoTls(_));
    let all_dead = !snapshot.listeners.is_empty() && snapshot.listeners.iter().all(dead);
    all_dead.then(|| "nothing answers there".to_owned())
}
