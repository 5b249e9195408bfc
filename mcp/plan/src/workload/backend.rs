//! The state of the MCP server behind a proxy, read from the server's own pods.
//!
//! A crash loop changes a pod several times a minute. The verdict changes only when the server begins to fail, and when it has outlived its
//! last failure: until then a running container that ended before counts as failing, with the same words.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

use mcp_api::names::label;

use super::proxy_template::CONTAINER;

/// Condition: the MCP server behind the proxy runs, as far as its pods and the proxy know.
pub const BACKEND_READY: &str = "BackendReady";

/// A proxy has to run for this long until it is said that its server does not answer: a kubelet asks whether it is ready every five seconds.
const ASKED: Duration = Duration::from_secs(7);
/// A container that was started again has to run for at least this long.
const SETTLED: Duration = Duration::from_secs(8);
/// A kubelet forgets earlier ends of a container that has run for so long. It is also the longest time that a container has to run.
const FORGOTTEN: Duration = Duration::from_mins(10);
/// A container that ended by itself and without an error after so long did what it was asked to: a stdio server ends with its input.
const WORKED: Duration = Duration::from_secs(30);

/// The state of a server, and whether it is likely to change by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// At least one pod runs and is ready.
    Runs,
    /// No pod runs yet, and nothing is known to be wrong.
    Starts,
    /// No pod runs, and somebody has to repair something.
    Fails,
}

/// The verdict on the pods of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The state.
    pub outlook: Outlook,
    /// One word for it.
    pub reason: String,
    /// A sentence for the author, which ends with the command that shows more.
    pub message: String,
    /// After this time the verdict may differ although no pod has changed.
    pub again: Option<Duration>,
}

/// The proxies in front of a server, where none of them is ready.
#[derive(Clone, Copy, Debug)]
pub struct Unready<'a> {
    /// Their pods.
    pub pods: &'a [&'a Pod],
    /// Whether one of them may come to serve.
    pub start: bool,
    /// The port on which they ask the server, where they ask over the network.
    pub port: Option<i32>,
    /// Whether they are ready only once a Redis has answered them.
    pub redis: bool,
}

impl Backend {
    /// Others' reasons become one of a condition, which is one word.
    fn new(outlook: Outlook, reason: &str, message: String) -> Self {
        let is_word = !reason.is_empty() && reason.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let reason = if is_word { reason } else { "PodFailed" };
        Self { outlook, reason: reason.to_owned(), message, again: None }
    }
}

/// Judges the pods of the StatefulSet of this name, which the Deployment of its proxies has too. Pods that are being deleted, and those of others,
/// count as nothing. A proxy that runs is not ready because the server does not answer it, or its Redis, which its pod does not tell apart.
pub fn judge(
    namespace: &str,
    stateful_set: &str,
    pods: &[&Pod],
    proxies: Option<Unready<'_>>,
    now: Timestamp,
) -> Backend {
    let own = pods.iter().filter(|pod| is_own(pod, stateful_set) && pod.metadata.deletion_timestamp.is_none());
    let mut each: Vec<(&str, Backend)> =
        own.map(|pod| (pod.metadata.name.as_deref().unwrap_or_default(), of_pod(namespace, pod, now))).collect();
    each.sort_by_key(|(name, _)| *name);
    let asked = proxies.and_then(|proxies| Some((proxies, proxies.asked_for(now)?)));
    let rest = asked.map(|(_, asked)| ASKED.saturating_sub(asked)).filter(|rest| !rest.is_zero());
    let again = each.iter().filter_map(|(_, pod)| pod.again).chain(rest).min();
    let running: Vec<&str> =
        each.iter().filter(|(_, pod)| pod.outlook == Outlook::Runs).map(|(name, _)| *name).collect();
    let failing = each.iter().find(|(_, pod)| pod.outlook == Outlook::Fails).map(|(_, pod)| pod);
    let starting = || {
        let which = format!("-n {namespace} -l {}={stateful_set}", label::TOOLHIVE_BASENAME);
        let message = format!("the MCP server has not answered yet: kubectl describe statefulset,pod {which}");
        Backend::new(Outlook::Starts, "Starting", message)
    };
    let verdict = match (&*running, failing) {
        ([], Some(failing)) => failing.clone(),
        ([], None) => starting(),
        ([pod, ..], _) if asked.is_some() && rest.is_none() => {
            let port = asked.and_then(|(proxies, _)| proxies.port).map(|port| format!(" on port {port}"));
            let silent = format!("the MCP server does not answer{}", port.unwrap_or_default());
            let message = if asked.is_some_and(|(proxies, _)| proxies.redis) {
                format!(
                    "no proxy is ready: {silent}, or Redis does not answer the proxy: kubectl logs -n {namespace} deployment/{stateful_set}"
                )
            } else {
                format!("{silent}: kubectl logs -n {namespace} {pod}")
            };
            Backend::new(Outlook::Fails, "NotAnswering", message)
        }
        _ if proxies.is_some_and(|proxies| proxies.start) => starting(),
        (running, failing) => {
            let is_or_are = if running.len() == 1 { "pod runs" } else { "pods run" };
            let rest = failing.map(|failing| format!("; {}", failing.message)).unwrap_or_default();
            Backend::new(Outlook::Runs, "PodsRun", format!("{is_or_are}: {}{rest}", running.join(", ")))
        }
    };
    Backend { again, ..verdict }
}

/// Whether the pod runs, as far as it says itself.
pub fn runs(pod: &Pod, now: Timestamp) -> bool {
    of_pod("", pod, now).outlook == Outlook::Runs
}

impl Unready<'_> {
    /// For how long a proxy has asked in vain, if one has.
    fn asked_for(&self, now: Timestamp) -> Option<Duration> {
        self.pods.iter().filter_map(|pod| asks_since(pod)).map(|since| elapsed(since, now)).max()
    }
}

/// The time since when a proxy has run and asked in vain.
fn asks_since(proxy: &Pod) -> Option<Timestamp> {
    let statuses = proxy.status.as_ref()?.container_statuses.as_deref()?;
    let container = statuses.iter().find(|container| container.name == CONTAINER)?;
    let is_asking = proxy.metadata.deletion_timestamp.is_none() && !container.ready && container.started == Some(true);
    let running = container.state.as_ref()?.running.as_ref().filter(|_| is_asking)?;
    running.started_at.as_ref().map(|Time(since)| *since)
}

/// Whether the StatefulSet of this name controls the pod.
pub fn is_own(pod: &Pod, stateful_set: &str) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|it| it.controller == Some(true) && it.kind == "StatefulSet" && it.name == stateful_set)
}

fn of_pod(namespace: &str, pod: &Pod, now: Timestamp) -> Backend {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let describe = format!("kubectl describe pod -n {namespace} {name}");
    // A server that starts is told of in one way, whichever pod it waits for.
    let starting = || Backend::new(Outlook::Starts, "Starting", String::new());
    let Some(status) = &pod.status else { return starting() };
    if status.phase.as_deref() == Some("Failed") {
        let reason = status.reason.as_deref().unwrap_or("PodFailed");
        return Backend::new(Outlook::Fails, reason, format!("pod {name} has failed ({reason}): {describe}"));
    }
    if is_unschedulable(status) {
        let message = format!("no node can run pod {name} (Unschedulable): {describe}");
        return Backend::new(Outlook::Fails, "Unschedulable", message);
    }
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let before = status.init_container_statuses.as_deref().unwrap_or_default();
    for (container, is_first) in before.iter().map(|it| (it, true)).chain(containers.iter().map(|it| (it, false))) {
        let Some(failure) = failure(container, is_first, now) else { continue };
        let Failure { reason, what, has_log, again } = failure;
        let container = &container.name;
        let next =
            if has_log { format!("kubectl logs -n {namespace} {name} -c {container} --previous") } else { describe };
        let message = format!("container {container} of pod {name} {what} ({reason}): {next}");
        return Backend { again, ..Backend::new(Outlook::Fails, &reason, message) };
    }
    let is_ready = !containers.is_empty() && containers.iter().all(|container| container.ready);
    if status.phase.as_deref() == Some("Running") && is_ready {
        return Backend::new(Outlook::Runs, "PodsRun", format!("pod runs: {name}"));
    }
    starting()
}

fn is_unschedulable(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions
        .any(|it| it.type_ == "PodScheduled" && it.status == "False" && it.reason.as_deref() == Some("Unschedulable"))
}

/// Why a container does not run.
struct Failure {
    reason: String,
    what: String,
    /// Whether the log of the container's last run says more than its events.
    has_log: bool,
    again: Option<Duration>,
}

/// Why the container does not run, if something is wrong with it. One that runs before the others may end without an error.
fn failure(container: &ContainerStatus, is_first: bool, now: Timestamp) -> Option<Failure> {
    let state = container.state.as_ref()?;
    let fails = |reason: &str, what: String| Failure { reason: reason.to_owned(), what, has_log: false, again: None };
    let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    if let Some(waiting) = &state.waiting {
        return match waiting.reason.as_deref().unwrap_or_default() {
            "" | "ContainerCreating" | "PodInitializing" => None,
            // The two take turns.
            "ErrImagePull" | "ImagePullBackOff" => {
                Some(fails("ErrImagePull", format!("cannot pull image {}", container.image)))
            }
            reason @ ("InvalidImageName"
            | "ErrImageNeverPull"
            | "ImageInspectError"
            | "RegistryUnavailable"
            | "SignatureValidationFailed") => Some(fails(reason, format!("cannot use image {}", container.image))),
            "CrashLoopBackOff" => Some(ended(last)),
            "RunContainerError" => Some(fails("StartError", "cannot be started".to_owned())),
            reason => {
                // Names the Secret or ConfigMap that is missing, and nothing that changes.
                let config = waiting.message.as_deref().filter(|_| reason == "CreateContainerConfigError");
                let why = config.map(|message| format!(": {message}")).unwrap_or_default();
                Some(fails(reason, format!("cannot be made{why}")))
            }
        };
    }
    if let Some(end) = &state.terminated {
        let is_done = is_first && end.exit_code == 0;
        let is_wrong = !is_done && !has_to_run(container.restart_count, end).is_zero();
        return is_wrong.then(|| ended(Some(end)));
    }
    let (running, last) = (state.running.as_ref()?, last?);
    let runs = running.started_at.as_ref().map_or(Duration::ZERO, |Time(since)| elapsed(*since, now));
    let rest = has_to_run(container.restart_count, last).saturating_sub(runs);
    (!rest.is_zero()).then(|| Failure { again: Some(rest), ..ended(Some(last)) })
}

/// Returns for how long a container has to run after it ended like this, until it counts as running.
fn has_to_run(restarts: i32, end: &ContainerStateTerminated) -> Duration {
    let ran = match (&end.started_at, &end.finished_at) {
        (Some(Time(from)), Some(Time(to))) => elapsed(*from, *to),
        _ => Duration::ZERO,
    };
    let worked = end.exit_code == 0 && (ran >= WORKED || restarts <= 1);
    if restarts == 0 || worked || ran >= FORGOTTEN {
        Duration::ZERO
    } else if restarts == 1 {
        SETTLED
    } else {
        (2 * ran).clamp(SETTLED, FORGOTTEN)
    }
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// The failure of a container that ends again and again.
fn ended(end: Option<&ContainerStateTerminated>) -> Failure {
    let (reason, what, has_log) = match end.map(|end| (end.reason.as_deref().unwrap_or_default(), end.exit_code)) {
        Some(("OOMKilled", _)) => ("OOMKilled", "was killed at the limit of its memory".to_owned(), false),
        Some(("StartError" | "ContainerCannotRun", _)) => ("StartError", "cannot be started".to_owned(), false),
        Some((_, code)) => ("CrashLoopBackOff", format!("ends with exit code {code}"), true),
        None => ("CrashLoopBackOff", "ends".to_owned(), true),
    };
    Failure { reason: reason.to_owned(), what, has_log, again: None }
}
