//! W9, C1 and C8: the operator's Deployment, its pods and their logs.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use portcullis_manifest::WebhookKind;
use portcullis_manifest::messages::FAILED;

use super::{Note, absent, fail, info, unseen};
use crate::lookups::ready;
use crate::parts::View;

const OFF: [&str; 3] = ["--webhooks=off", "--enable-webhooks=false", "--enable-webhooks=0"];
/// Words of Rust's standard library about a panic.
const PANICKED: &str = "panicked at";

/// W9
pub(super) fn switched_on(view: View<'_>) -> Vec<Note> {
    if !view.subject.installation.webhooks.is_on() {
        return vec![still_called(view)];
    }
    let template = view.deployment().and_then(|one| one.spec.as_ref()?.template.spec.as_ref());
    let off = template.into_iter().flat_map(|spec| &spec.containers).any(|container| {
        let words: Vec<_> = container.command.iter().flatten().chain(container.args.iter().flatten()).collect();
        let pair = words.windows(2).any(|pair| pair[0] == "--webhooks" && pair[1] == "off");
        pair || words.iter().any(|word| OFF.contains(&word.as_str()))
    });
    if !off || !view.subject.is_called() {
        return Vec::new();
    }
    let message = "the operator runs with webhooks disabled; only controllers validate, and calls are refused";
    vec![fail(message, format!("take --webhooks off out of its arguments: {}", view.subject.apply("operator")))]
}

/// Names the configurations and conversions that still call the operator when webhooks are off.
fn still_called(view: View<'_>) -> Note {
    let own = Some(view.subject.place());
    let converted = view.conversions().filter(|(_, entry)| entry.service() == own);
    let configurations = [WebhookKind::Validating, WebhookKind::Mutating].into_iter();
    let left: Vec<_> = configurations
        .filter_map(|kind| view.configuration(kind))
        .map(|one| format!("kubectl delete {} {}", one.resource(), one.name()))
        .chain(converted.map(|(crd, _)| {
            format!(
                "kubectl patch crd {crd} --type=json -p \
                 '[{{\"op\":\"replace\",\"path\":\"/spec/conversion\",\"value\":{{\"strategy\":\"None\"}}}}]'"
            )
        }))
        .collect();
    if left.is_empty() {
        return info("webhooks are switched off; only controllers validate");
    }
    fail("webhooks are switched off, and are still called: the calls fail", left.join("; "))
}

/// C1
pub(super) fn pods(view: View<'_>) -> Vec<Note> {
    if view.is_external_name() {
        return vec![info("the webhooks are served from outside of the cluster: no pods are expected")];
    }
    let pods = view.operator_pods();
    if pods.iter().any(|pod| ready(pod)) {
        return Vec::new();
    }
    let states: Vec<_> = pods.iter().map(|pod| format!("{}: {}", pod.name_any(), state(pod))).collect();
    let found = if states.is_empty() {
        "none found".to_owned()
    } else {
        format!("{} found: {}", pods.len(), states.join("; "))
    };
    let namespace = view.subject.namespace();
    let fix = match pods.first() {
        None => view.subject.apply("operator"),
        Some(pod) => {
            format!("kubectl -n {namespace} describe pod {0}; kubectl -n {namespace} logs {0}", pod.name_any())
        }
    };
    vec![absent(format!("no ready operator pod in namespace {namespace} ({found})"), fix)]
}

/// Phase, and the first reason that is given for it.
fn state(pod: &Pod) -> String {
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

/// C8
pub(super) fn logs(view: View<'_>) -> Vec<Note> {
    if view.logs().is_empty() {
        return unseen("there is no log of a pod of the operator that could be read");
    }
    let broken = |line: &&String| line.starts_with(FAILED) || line.contains(PANICKED);
    let last = view.logs().iter().filter_map(|log| Some((&log.pod, log.lines.iter().rev().find(broken)?)));
    let note = |(pod, line): (&String, &String)| {
        let message = format!("{pod} says: {}", line.chars().take(300).collect::<String>());
        fail(message, format!("kubectl -n {} logs {pod}", view.subject.namespace()))
    };
    last.map(note).collect()
}
