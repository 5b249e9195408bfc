//! The state of a server that may run, read from its pods (toolhive-operator §2.3).

use k8s_openapi::api::core::v1::Pod;
use mcp_api::v1beta1::Phase;
use mcp_runconfig::ProxyMode;

use super::{metadata::Server, names, proxy, runconfig};

/// What a server's pods say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) message: String,
    pub(super) ready: i32,
}

enum PodState {
    Serving,
    Starting,
    Broken(String),
}

/// Where clients inside the cluster reach the server.
pub(super) fn url(server: &Server<'_>) -> String {
    let path = match runconfig::proxy_mode(server) {
        ProxyMode::Sse => format!("/sse#{}", server.name),
        ProxyMode::StreamableHttp => "/mcp".to_owned(),
    };
    let (service, namespace, port) = (names::proxy_service(server.name), server.namespace, server.spec.proxy_port);
    format!("http://{service}.{namespace}.svc.cluster.local:{port}{path}")
}

/// How many of the proxy's pods serve.
pub(super) fn serving(pods: &[&Pod]) -> i32 {
    let serving = living(pods).filter(|pod| matches!(pod_state(pod), PodState::Serving)).count();
    i32::try_from(serving).unwrap_or(i32::MAX)
}

/// The state of a server whose children are as they should be.
pub(super) fn state(server: &Server<'_>, pods: &[&Pod], workload_exists: bool) -> State {
    let ready = serving(pods);
    let say = |phase, message: &str| State { phase, message: message.to_owned(), ready };
    if proxy::replicas(server) == Some(0) {
        return say(Phase::Stopped, "MCP server is stopped (scaled to zero)");
    }
    if ready > 0 && workload_exists {
        return say(Phase::Ready, "MCP server is running");
    }
    if ready > 0 {
        return say(Phase::Pending, "MCP server proxy is running; the workload StatefulSet is being created");
    }
    let states: Vec<PodState> = living(pods).map(pod_state).collect();
    let broken = states.iter().find_map(|state| match state {
        PodState::Broken(reason) => Some(reason),
        PodState::Serving | PodState::Starting => None,
    });
    match broken {
        Some(reason) => say(Phase::Failed, &format!("MCP server pod failed: {reason}")),
        None if states.is_empty() => say(Phase::Pending, "MCP server is being created"),
        None => say(Phase::Pending, "MCP server is starting"),
    }
}

/// A terminating pod counts as nothing.
fn living<'a>(pods: &'a [&'a Pod]) -> impl Iterator<Item = &'a Pod> {
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
