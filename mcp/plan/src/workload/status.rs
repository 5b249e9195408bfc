//! The state of a workload, read from its proxy's pods (toolhive-operator §2.3) and what is known of the server behind
//! it.

use std::collections::BTreeSet;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Condition};

use super::backend::{Backend, Outlook};

/// States of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is being created or its pods are starting.
    Pending,
    /// At least one proxy pod serves, and the server behind it runs.
    Ready,
    /// Something has to be repaired; the message says what.
    Failed,
    /// It is being deleted.
    Terminating,
    /// It is scaled to zero.
    Stopped,
}

impl Phase {
    /// The word of the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
            Self::Stopped => "Stopped",
        }
    }
}

/// The status of a workload of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The conditions.
    pub conditions: Option<Vec<Condition>>,
    /// The message about the phase.
    pub message: String,
    /// The generation that this describes.
    pub observed_generation: Option<i64>,
    /// The state in one word.
    pub phase: Phase,
    /// The number of proxy pods that serve.
    pub ready: i32,
    /// Where clients inside the cluster reach it; none while nothing is there to reach.
    pub url: Option<String>,
    /// The hash of each configuration that is in force, by the field that asks for it.
    pub hashes: Vec<(&'static str, String)>,
}

impl Report {
    /// The hash of the configuration that is in force for this field.
    pub fn hash(&self, field: &str) -> Option<String> {
        self.hashes.iter().find(|(of, _)| *of == field).map(|(_, hash)| hash.clone())
    }
}

/// The last status of a workload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Previous<'a> {
    /// The conditions.
    pub conditions: Option<&'a Vec<Condition>>,
    /// The state.
    pub phase: Option<Phase>,
    /// The message.
    pub message: Option<&'a str>,
    /// The generation that it described.
    pub observed_generation: Option<i64>,
}

/// The state of a workload by its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The state in one word.
    pub phase: Phase,
    /// The message about it.
    pub message: String,
    /// The number of pods that serve.
    pub ready: i32,
}

/// The input for the state of a workload.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The name of the workload in messages.
    pub noun: &'static str,
    /// The message about a pod that will never serve, before the reason.
    pub failure: String,
    /// The desired number of proxies.
    pub replicas: Option<i32>,
    /// The proxy's pods.
    pub pods: &'a [&'a Pod],
    /// The kind of what runs behind the proxy, while it does not exist.
    pub missing_backend: Option<&'static str>,
    /// The verdict on its pods, where it exists.
    pub backend: Option<&'a Backend>,
    /// The last status; none where its Deployment is new.
    pub previous: Option<Previous<'a>>,
}

enum PodState {
    Serving,
    Starting,
    Broken(String),
}

/// The pods that serve.
pub fn serving<'a>(pods: &[&'a Pod]) -> Vec<&'a Pod> {
    living(pods).filter(|pod| matches!(pod_state(pod), PodState::Serving)).collect()
}

/// The pods that serve until they are gone: those of their calls that are open go on, and where no other pod serves,
/// new ones come.
pub fn ending<'a>(pods: &[&'a Pod]) -> Vec<&'a Pod> {
    let ending = pods.iter().copied().filter(|pod| pod.metadata.deletion_timestamp.is_some());
    ending.filter(|pod| matches!(pod_state(pod), PodState::Serving)).collect()
}

/// The number of pods that serve.
pub fn ready(pods: &[&Pod]) -> i32 {
    i32::try_from(serving(pods).len()).unwrap_or(i32::MAX)
}

/// Whether a pod may come to serve.
pub fn start(pods: &[&Pod]) -> bool {
    living(pods).any(|pod| matches!(pod_state(pod), PodState::Starting))
}

/// Why pods that do not serve never will, where some are like that: each reason once.
pub fn broken(pods: &[&Pod]) -> Option<String> {
    let reasons: BTreeSet<String> = living(pods)
        .filter_map(|pod| match pod_state(pod) {
            PodState::Broken(reason) => Some(reason),
            PodState::Serving | PodState::Starting => None,
        })
        .collect();
    let reasons: Vec<String> = reasons.into_iter().collect();
    if reasons.is_empty() { None } else { Some(reasons.join(", ")) }
}

/// The state of a workload whose children are as they should be.
pub fn state(observed: &Observed<'_>) -> State {
    let Observed { noun, replicas, pods, missing_backend, backend, previous, .. } = *observed;
    let ready = ready(pods);
    let say = |phase, message: String| State { phase, message, ready };
    if replicas == Some(0) {
        return say(Phase::Stopped, format!("{noun} is stopped (scaled to zero)"));
    }
    if let Some(backend) = backend.filter(|backend| backend.outlook == Outlook::Fails) {
        return say(Phase::Failed, backend.message.clone());
    }
    if ready > 0 {
        return match missing_backend {
            None if backend.is_some_and(|backend| backend.outlook == Outlook::Starts) => {
                say(Phase::Pending, format!("{noun} is starting"))
            }
            None => say(Phase::Ready, format!("{noun} is running")),
            Some(kind) => say(Phase::Pending, format!("{noun} proxy is running; the workload {kind} is being created")),
        };
    }
    let failed = format!("{}: ", observed.failure);
    if let Some(reason) = broken(pods) {
        return say(Phase::Failed, failed + &reason);
    }
    if living(pods).next().is_some() {
        return say(Phase::Pending, format!("{noun} is starting"));
    }
    // A pod that failed is replaced by one that may fail too: between the two there is none.
    match previous.and_then(|previous| Some((previous.phase?, previous.message?))) {
        Some((Phase::Failed, message)) if message.starts_with(&failed) => say(Phase::Failed, message.to_owned()),
        _ => say(Phase::Pending, format!("{noun} is being created")),
    }
}

/// A terminating pod counts as nothing.
fn living<'a>(pods: &[&'a Pod]) -> impl Iterator<Item = &'a Pod> {
    pods.iter().copied().filter(|pod| pod.metadata.deletion_timestamp.is_none())
}

fn pod_state(pod: &Pod) -> PodState {
    let Some(status) = &pod.status else { return PodState::Starting };
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    for container in containers {
        let state = container.state.as_ref();
        if let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) {
            let reason = waiting.reason.as_deref().unwrap_or_default();
            if ["CrashLoopBackOff", "CreateContainerError", "InvalidImageName"].contains(&reason) {
                return PodState::Broken(reason.to_owned());
            }
        }
        if let Some(ended) = state.and_then(|state| state.terminated.as_ref())
            && ended.exit_code != 0
        {
            return PodState::Broken(ended.reason.clone().unwrap_or_else(|| format!("exit code {}", ended.exit_code)));
        }
    }
    match status.phase.as_deref() {
        Some("Running") if containers.iter().all(|container| container.ready) => PodState::Serving,
        Some("Succeeded") => PodState::Serving,
        Some("Failed") => PodState::Broken(status.reason.clone().unwrap_or_else(|| "Failed".to_owned())),
        _ => PodState::Starting,
    }
}
