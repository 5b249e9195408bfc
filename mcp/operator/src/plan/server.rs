//! The plan of one MCPServer.

use std::collections::BTreeSet;

use kube::ResourceExt;
use mcp_api::{
    names::{condition, reason},
    v1alpha1::MCPWebhookConfig,
    v1beta1::{MCPServer, MCPServerStatus, PermissionProfileType, Phase},
};
use mcp_runconfig::PermissionProfile;
use portcullis::controller::{Conditions, fitting};

use super::{
    Child, ChildKind, ChildRef, EventType, Plan, PlannedEvent, References, ServerInputs, access, backend,
    checks::{self, Block},
    gate::Gate,
    guards::Guard,
    metadata::Server,
    names, pod_template, proxy, rules, runconfig,
    status::{self, State},
};

/// Everything the server refers to, with what the configuration it names refers to.
pub fn references(server: &MCPServer, webhook_config: Option<&MCPWebhookConfig>) -> References {
    let spec = &server.spec;
    let mut secrets: BTreeSet<String> = spec.secrets.iter().flatten().map(|secret| secret.name.clone()).collect();
    if let Some(config) = webhook_config {
        let lists = [("validating", &config.spec.validating), ("mutating", &config.spec.mutating)];
        for (kind, webhook) in lists.iter().flat_map(|(kind, list)| list.iter().flatten().map(move |w| (kind, w))) {
            let files = rules::translate(kind, webhook).map(|(_, files)| files).unwrap_or_default();
            secrets.extend(files.into_iter().map(|file| file.reference.name));
        }
    }
    let profile = spec.permission_profile.as_ref().filter(|it| it.kind == PermissionProfileType::ConfigMap);
    References {
        webhook_config: spec.webhook_config_ref.as_ref().map(|reference| reference.name.clone()),
        secrets,
        config_maps: profile.map(|profile| profile.name.clone()).into_iter().collect(),
    }
}

/// Decides what should become of one MCPServer.
///
/// A server whose guards cannot all be put in place, or whose spec breaks a rule, gets nothing new. What runs of it
/// already goes on only if it has the guard that the spec asks for now.
pub fn plan_server(inputs: &ServerInputs<'_>) -> Plan {
    let server = Server::of(inputs.server, inputs.settings);
    let object = inputs.server;
    let previous = object.status.clone().unwrap_or_default();
    let mut conditions = Conditions::after(previous.conditions.as_ref(), object.metadata.generation, inputs.now);
    if object.metadata.deletion_timestamp.is_some() {
        return deletion(inputs, &server, conditions);
    }

    let mut blocks = Vec::new();
    let gate = checks::gate_of(inputs, &mut conditions, &mut blocks);
    let unguarded = checks::guards(&server, &mut conditions, &mut blocks);
    checks::check_spec(inputs, &mut conditions, &mut blocks);
    let profile = checks::permission_profile(inputs, &mut conditions, &mut blocks);
    checks::warn(inputs, &server, &mut conditions);

    let guard = Guard::of(inputs.deployment, &gate);
    let (children, absent, state) = match (profile, blocks.first()) {
        (Some(profile), None) => {
            let (children, absent) = render(inputs, &server, &gate, guard, profile);
            (children, absent, status::state(&server, inputs.pods, inputs.stateful_set.is_some()))
        }
        (_, block) => {
            let keep = !unguarded && matches!(guard, Guard::Enforced);
            let absent = if keep { Vec::new() } else { all_that_runs(&server) };
            let message = block.map(|block| block.message.clone()).unwrap_or_default();
            let message = if keep { format!("{message}; what runs already is left as it is") } else { message };
            (Vec::new(), absent, State { phase: Phase::Failed, message, ready: status::serving(inputs.pods) })
        }
    };
    let ready = state.phase == Phase::Ready;
    let ready_reason = if ready { reason::READY } else { reason::NOT_READY };
    conditions.set(condition::READY, ready, ready_reason, state.message.clone());

    let mut events = events(&conditions, &previous, &state, blocks.first());
    if let Some(event) = removal_event(inputs, &absent) {
        events.push(event);
    }
    let runs = !children.is_empty() || (absent.is_empty() && inputs.deployment.is_some());
    let status = MCPServerStatus {
        conditions: conditions.into_list(),
        message: Some(fitting(state.message)),
        observed_generation: object.metadata.generation,
        phase: Some(state.phase),
        ready_replicas: Some(state.ready),
        url: runs.then(|| status::url(&server)),
        webhook_config_hash: match &gate {
            Gate::Ready(gate) => Some(gate.hash.clone()),
            Gate::Open | Gate::Broken(_) => None,
        },
        ..MCPServerStatus::default()
    };
    Plan { children, absent, status, events }
}

/// The children in the order of their needs, and what must not be beside them.
fn render(
    inputs: &ServerInputs<'_>,
    server: &Server<'_>,
    gate: &Gate,
    guard: Guard,
    profile: PermissionProfile,
) -> (Vec<Child>, Vec<ChildRef>) {
    let template = server.spec.pod_template_spec.as_ref().and_then(|template| pod_template::decode(template).ok());
    let run_config = runconfig::render(server, gate, profile);
    let mut children = access::accounts(server);
    children.extend(access::attach_permission(server));
    children.push(run_config.config_map(server));
    children.extend(backend::services(server));
    children.push(proxy::service(server));
    children.push(backend::stateful_set(server, template, inputs.secrets));
    // A rolling update keeps old pods until new ones are ready, however long that takes. Where the old ones lack the
    // guard that is asked for now, they have to go first; the next plan makes the Deployment anew.
    if guard != Guard::Missing {
        children.push(proxy::deployment(server, gate, &run_config.checksum));
    }
    let absent = all_children(server)
        .into_iter()
        .filter(|child| !children.iter().any(|wanted| wanted.reference == *child))
        .collect();
    (children, absent)
}

fn deletion(inputs: &ServerInputs<'_>, server: &Server<'_>, mut conditions: Conditions<'_>) -> Plan {
    let message = "MCP server is being deleted";
    conditions.set(condition::READY, false, reason::NOT_READY, message);
    let status = MCPServerStatus {
        conditions: conditions.into_list(),
        message: Some(message.to_owned()),
        observed_generation: inputs.server.metadata.generation,
        phase: Some(Phase::Terminating),
        ready_replicas: Some(status::serving(inputs.pods)),
        ..MCPServerStatus::default()
    };
    Plan { children: Vec::new(), absent: all_children(server), status, events: Vec::new() }
}

/// Everything that may be made for a server; what serves first, so that a guard that is missing is closed at once.
fn all_children(server: &Server<'_>) -> Vec<ChildRef> {
    let account = names::proxy_account(server.name);
    let mut children = all_that_runs(server);
    children.extend([
        ChildRef::new(ChildKind::ServiceAccount, account),
        ChildRef::new(ChildKind::ServiceAccount, names::workload_account(server.name)),
    ]);
    children
}

/// All but the ServiceAccounts, which run nothing and may carry others' annotations (a cloud identity).
fn all_that_runs(server: &Server<'_>) -> Vec<ChildRef> {
    let account = names::proxy_account(server.name);
    vec![
        ChildRef::new(ChildKind::Deployment, server.name),
        ChildRef::new(ChildKind::Service, names::proxy_service(server.name)),
        ChildRef::new(ChildKind::Service, names::backend_service(server.name)),
        ChildRef::new(ChildKind::Service, names::headless_service(server.name)),
        ChildRef::new(ChildKind::StatefulSet, server.name),
        ChildRef::new(ChildKind::ConfigMap, names::run_config(server.name)),
        ChildRef::new(ChildKind::RoleBinding, account.clone()),
        ChildRef::new(ChildKind::Role, account),
    ]
}

/// What the last status did not say: a new phase, a new failure, a new warning.
fn events(
    conditions: &Conditions<'_>,
    previous: &MCPServerStatus,
    state: &State,
    block: Option<&Block>,
) -> Vec<PlannedEvent> {
    let mut events = Vec::new();
    for new in conditions.news() {
        let event = match (new.type_.as_str(), new.status.as_str()) {
            (condition::READY, "True") => PlannedEvent::new(EventType::Normal, "Ready", &new.message),
            (condition::READY, _) if state.phase == Phase::Failed => {
                PlannedEvent::new(EventType::Warning, block.map_or("PodFailed", |block| block.reason), &new.message)
            }
            (condition::READY, _) if previous.phase != Some(state.phase) => {
                PlannedEvent::new(EventType::Normal, state.phase.as_str(), &new.message)
            }
            (
                condition::STDIO_REPLICA_CAPPED
                | condition::SESSION_STORAGE_WARNING
                | checks::UNSUPPORTED_FIELDS
                | checks::TRANSPORT_UNSUPPORTED
                | checks::SECRET_REFS_VALIDATED,
                _,
            ) => PlannedEvent::new(EventType::Warning, &new.reason, &new.message),
            _ => continue,
        };
        events.push(event);
    }
    events
}

/// A proxy that is taken away is worth an event of its own.
fn removal_event(inputs: &ServerInputs<'_>, absent: &[ChildRef]) -> Option<PlannedEvent> {
    let deployment = inputs.deployment.filter(|live| live.metadata.deletion_timestamp.is_none())?;
    let gone = ChildRef::new(ChildKind::Deployment, deployment.name_any());
    absent.contains(&gone).then(|| {
        let note = "the running proxy lacks a guard that the spec asks for and is removed";
        PlannedEvent::new(EventType::Warning, "ProxyRemoved", note)
    })
}
