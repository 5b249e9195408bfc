//! The MCP servers in pods that can never be spoken to again: their input has ended, and they go on.
//!
//! A proxy attaches to its stdio server's container, whose input ends with the attachment (`stdinOnce`). A server that ends then is
//! started anew by the kubelet. Of one that goes on, its proxy's exit status tells, and somebody has to replace its pod.

use k8s_openapi::{
    api::core::v1::{ContainerStateTerminated, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use mcp_runconfig::exit_status::SERVER_STAYS;

/// The container that a proxy attaches to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The pod.
    pub pod: String,
    /// The container in it.
    pub container: &'static str,
}

/// Whether a container ended with the word that the server behind its proxy stays.
pub fn tells(ended: &ContainerStateTerminated) -> bool {
    ended.exit_code == i32::from(SERVER_STAYS)
}

/// When a proxy told for the last time that the server behind it stays.
pub fn told_at(proxies: &[&Pod]) -> Option<Time> {
    let statuses = proxies.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_deref()).flatten();
    let states = statuses.flat_map(|container| [&container.state, &container.last_state]);
    let ended = states.filter_map(|state| state.as_ref()?.terminated.as_ref());
    ended.filter(|ended| tells(ended)).filter_map(|ended| ended.finished_at.clone()).max()
}

/// Whether this is the server that was told of: its container has run since before that.
pub fn is_deaf(server: &Pod, container: &str, told: &Time) -> bool {
    let statuses = server.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let state = statuses.iter().find(|status| status.name == container).and_then(|status| status.state.as_ref());
    let started = state.and_then(|state| state.running.as_ref()?.started_at.as_ref());
    server.metadata.deletion_timestamp.is_none() && started.is_some_and(|started| started < told)
}
