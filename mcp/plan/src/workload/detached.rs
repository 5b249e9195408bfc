//! MCP servers in pods that no proxy can reach again: their standard input has ended, and they keep running.
//!
//! A proxy attaches to its stdio server's container, whose input ends with the attachment (`stdinOnce`). The kubelet
//! restarts a server that ends then. If it keeps running, the proxy reports that by its exit status, and its pod has to
//! be replaced.

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

/// Whether the exit status of a proxy's container says that the server behind it keeps running.
pub fn reports(ended: &ContainerStateTerminated) -> bool {
    ended.exit_code == i32::from(SERVER_STAYS)
}

/// The last time at which a proxy reported that the server behind it keeps running.
pub fn reported_at(proxies: &[&Pod]) -> Option<Time> {
    let statuses = proxies.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_deref()).flatten();
    let states = statuses.flat_map(|container| [&container.state, &container.last_state]);
    let ended = states.filter_map(|state| state.as_ref()?.terminated.as_ref());
    ended.filter(|ended| reports(ended)).filter_map(|ended| ended.finished_at.clone()).max()
}

/// Whether this is the reported server: its container has run since before the report.
pub fn is_detached(server: &Pod, container: &str, reported: &Time) -> bool {
    let statuses = server.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let state = statuses.iter().find(|status| status.name == container).and_then(|status| status.state.as_ref());
    let started = state.and_then(|state| state.running.as_ref()?.started_at.as_ref());
    server.metadata.deletion_timestamp.is_none() && started.is_some_and(|started| started < reported)
}
