//! The operator's Deployment, its pods and what they say.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use portcullis_manifest::WebhookKind;

use super::cut::missing;
use super::{Said, View, fail, info, no_namespace, note, unseen, warn};
use crate::lookups::ready;
use crate::report::Verdict;
use crate::snapshot::{Blind, Look};
use crate::trust::span;
use portcullis_listener::UNTRUSTED_CERTIFICATE;
use portcullis_manifest::words::{FAILED, WEBHOOKS_OFF};

const OFF: [&str; 3] = ["--webhooks=off", "--enable-webhooks=false", "--enable-webhooks=0"];
/// What Rust's standard library says of a panic.
const PANICKED: &str = "panicked at";
/// Seconds after the start of a pod in which the first bundle is still on its way.
const START: i64 = 180;
/// Seconds after which it counts as mended that somebody did not trust the certificate: the log says so once a minute
/// while it lasts.
const LATELY: i64 = 900;

/// The operator's own container: sidecars are injected behind it.
fn containers<'a>(view: &View<'a>) -> Vec<&'a Container> {
    let template = view.snapshot.deployment(view.subject).and_then(|one| one.spec.as_ref()?.template.spec.as_ref());
    template.map(|spec| spec.containers.iter().collect()).unwrap_or_default()
}

/// W9
pub(super) fn switched_on(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let installed = !snapshot.ours(subject).is_empty() || subject.is_called();
    if !subject.installation.webhooks.is_on() {
        snapshot.configurations.known()?;
        let converted =
            snapshot.conversions(subject).filter(|(_, entry)| entry.service().as_ref() == Some(&subject.place()));
        let left: Vec<_> = [WebhookKind::Validating, WebhookKind::Mutating]
            .into_iter()
            .filter_map(|kind| snapshot.configuration(subject, kind))
            .map(|one| format!("kubectl delete {} {}", one.resource(), one.name()))
            .chain(converted.map(|(crd, _)| {
                format!(
                    "kubectl patch crd {crd} --type=json -p \
                     '[{{\"op\":\"replace\",\"path\":\"/spec/conversion\",\"value\":{{\"strategy\":\"None\"}}}}]'"
                )
            }))
            .collect();
        let note = if left.is_empty() {
            info("webhooks are switched off; only controllers validate")
        } else {
            fail("webhooks are switched off, and are still called: the calls fail", left.join("; "))
        };
        return Ok(vec![note]);
    }
    if !installed {
        return Ok(Vec::new());
    }
    snapshot.deployments.known()?;
    let off = containers(view).into_iter().any(|container| {
        let words: Vec<_> = container.command.iter().flatten().chain(container.args.iter().flatten()).collect();
        let pair = words.windows(2).any(|pair| pair[0] == "--webhooks" && pair[1] == "off");
        pair || words.iter().any(|word| OFF.contains(&word.as_str()))
    });
    let said = snapshot.logs.iter().any(|(_, log)| {
        log.seen().is_some_and(|log| log.of_operator && log.lines.iter().any(|line| line.contains(WEBHOOKS_OFF)))
    });
    if off || said {
        let message = "the operator runs with webhooks disabled; only controllers validate, and calls are refused";
        return Ok(vec![fail(
            message,
            format!("take --webhooks off out of its arguments: {}", subject.apply("operator")),
        )]);
    }
    Ok(Vec::new())
}

/// C1
pub(super) fn pods(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    if snapshot.is_external(subject) {
        return Ok(vec![info("the webhooks are served from outside of the cluster: no pods are expected")]);
    }
    if let Some(missing) = no_namespace(view) {
        return Ok(vec![missing]);
    }
    let listed = snapshot.pods.known()?;
    let pods = snapshot.operator_pods(subject);
    if pods.iter().any(|pod| ready(pod)) {
        return Ok(Vec::new());
    }
    let states: Vec<_> = pods.iter().map(|pod| format!("{}: {}", pod.name_any(), state(pod))).collect();
    let found = if states.is_empty() {
        "none found".to_owned()
    } else {
        format!("{} found: {}", pods.len(), states.join("; "))
    };
    let namespace = subject.namespace();
    let fix = match pods.first() {
        None => subject.apply("operator"),
        Some(pod) => {
            format!("kubectl -n {namespace} describe pod {0}; kubectl -n {namespace} logs {0}", pod.name_any())
        }
    };
    let none = fail(format!("no ready operator pod in namespace {namespace} ({found})"), fix);
    Ok(vec![missing(listed, "pods", none)])
}

/// Phase, and the first reason that is given for it.
pub(super) fn state(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let statuses = status.container_statuses.unwrap_or_default();
    let waiting = statuses.iter().find_map(|container| {
        let state = container.state.as_ref()?;
        let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.clone());
        waiting.or_else(|| state.terminated.as_ref().and_then(|terminated| terminated.reason.clone()))
    });
    let conditions = status.conditions.unwrap_or_default();
    let condition = conditions.into_iter().find(|one| one.status != "True").and_then(|one| one.reason.or(one.message));
    let reason = status.reason.or(waiting).or(condition);
    [status.phase, reason].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Why nothing can be said from the operator's logs.
const SILENT: &str = "there is no log of a pod of the operator that could be read";

/// Whether any log of the operator was read.
fn heard(view: &View<'_>) -> bool {
    view.snapshot.logs.iter().any(|(_, log)| log.seen().is_some_and(|log| log.of_operator))
}

/// C8
pub(super) fn logs(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let mut notes = Vec::new();
    for (pod, log) in &snapshot.logs {
        let log = match log {
            Look::Seen(log) if log.of_operator => log,
            Look::Seen(_) => continue,
            // A node that does not answer is no fault of the webhooks.
            Look::Refused(needs) => return Err(Blind(format!("could not look: needs {needs}"))),
            Look::Failed(why) => {
                notes.push(warn(
                    format!("the log of {pod} cannot be read: {why}"),
                    format!("kubectl -n {} get nodes,pods -o wide", subject.namespace()),
                ));
                continue;
            }
        };
        let broken = |line: &&String| line.starts_with(FAILED) || line.contains(PANICKED);
        if let Some(line) = log.lines.iter().rev().find(broken) {
            let message = format!("{pod} says: {}", line.chars().take(300).collect::<String>());
            notes.push(fail(message, format!("kubectl -n {} logs {pod}", subject.namespace())));
        }
    }
    if notes.is_empty() && !heard(view) {
        return unseen(SILENT);
    }
    Ok(notes)
}

/// C9
pub(super) fn replicas(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.deployments.known()?;
    let closed: Vec<_> = snapshot.ours(subject).into_iter().filter(|(_, entry)| entry.fails_closed).collect();
    let (Some(deployment), false) = (snapshot.deployment(subject), closed.is_empty()) else { return Ok(Vec::new()) };
    let (name, namespace) = (deployment.name_any(), subject.namespace());
    let spec = deployment.spec.clone().unwrap_or_default();
    let mut notes = Vec::new();
    let replicas = spec.replicas.unwrap_or(1);
    if replicas < 2 {
        let message = format!(
            "Deployment {name} has {replicas} replica(s) and its webhooks fail closed: each rollout and each drained node stops admission"
        );
        notes.push(warn(message, format!("kubectl -n {namespace} scale deployment {name} --replicas=2")));
    }
    if spec.strategy.and_then(|strategy| strategy.type_).as_deref() == Some("Recreate") {
        let message = format!(
            "Deployment {name} has strategy Recreate and its webhooks fail closed: each rollout stops admission"
        );
        notes.push(warn(message, format!("use RollingUpdate: {}", subject.apply("operator"))));
    }
    if replicas > 1 {
        let labels = spec.template.metadata.and_then(|metadata| metadata.labels).unwrap_or_default();
        let budgets = snapshot.budgets.known()?;
        let covered = budgets.items.iter().any(|budget| {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            selector.is_some_and(|selector| crate::configuration::selects(Some(selector), &labels))
        });
        if !covered && !budgets.more {
            let message =
                format!("no PodDisruptionBudget for Deployment {name}: drained nodes may take all replicas at once");
            notes.push(note(Verdict::Info, message, Some(subject.apply("operator"))));
        }
    }
    Ok(notes)
}

/// C11
pub(super) fn readiness(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.deployments.known()?;
    let Some(deployment) = snapshot.deployment(subject) else { return Ok(Vec::new()) };
    let own = containers(view).into_iter().next();
    let probe = own.and_then(|container| container.readiness_probe.as_ref());
    let path = probe.and_then(|probe| probe.http_get.as_ref()).and_then(|get| get.path.as_deref());
    if path == Some("/readyz") {
        return Ok(Vec::new());
    }
    let has = match (probe, path) {
        (_, Some(path)) => format!("asks {path}"),
        (Some(_), None) => "does not ask over HTTP".to_owned(),
        (None, None) => "is missing".to_owned(),
    };
    let message = format!(
        "the readiness probe of Deployment {} {has}: readiness does not cover the webhook listener (/readyz does)",
        deployment.name_any()
    );
    Ok(vec![warn(message, subject.apply("operator"))])
}

/// X15
pub(super) fn handshakes(view: &View<'_>) -> Said {
    let View { subject, snapshot, now, .. } = *view;
    if !heard(view) {
        return unseen(SILENT);
    }
    let mut notes = Vec::new();
    for (pod, log) in &snapshot.logs {
        let Some(log) = log.seen().filter(|log| log.of_operator) else { continue };
        let Some(line) = log.lines.iter().rev().find(|line| line.contains(UNTRUSTED_CERTIFICATE)) else { continue };
        let started = snapshot.operator_pods(subject).into_iter().find(|one| one.name_any() == *pod);
        let started = started.and_then(|pod| pod.status.as_ref()?.start_time.clone());
        let at = written(line).unwrap_or(now);
        let ago = now.duration_since(at);
        let message = format!("{pod} says: {UNTRUSTED_CERTIFICATE}, last {} ago", span(ago));
        notes.push(if started.is_some_and(|started| at.duration_since(started.0).as_secs() <= START) {
            info(format!("{message}; that is normal until the CA has been published for the first time"))
        } else if ago.as_secs() > LATELY {
            info(format!("{message}, and not since"))
        } else {
            // Others than the API server may have called; what it trusts is judged by the checks that are named.
            warn(message, "if it was the API server, it has another bundle or none: see W3 and X5")
        });
    }
    Ok(notes)
}

/// When a line of the log was written: it is its first word, or a value of the object that it is.
fn written(line: &str) -> Option<Timestamp> {
    line.split([' ', '"']).find_map(|word| word.parse().ok())
}
