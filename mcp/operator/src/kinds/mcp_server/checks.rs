//! The checks of an MCPServer before anything is rendered, for its conditions.

use mcp_api::{
    names::{condition, reason},
    v1beta1::{MCPServer, MCPServerSpec, Transport},
};
use mcp_plan::{
    problem::sentences,
    reference::{Content, Data, Reference},
    workload::pod_template::Template,
};
use portcullis::controller::ConditionStatus;

use super::{backend, rules};
use crate::workload::{self, Findings};

/// Condition: the spec keeps the rules. Present only while it does not.
const SPEC_VALID: &str = "SpecValid";
/// Condition: the Secrets for the MCP server exist. Present only while one does not.
pub(super) const SECRET_REFS_VALIDATED: &str = "SecretRefsValidated";
/// Condition: the proxy's limit of request bodies is less than the spec's (`True` is the warning). Present only while it is.
pub(super) const BODY_LIMIT_CAPPED: &str = "RequestBodySizeCapped";

pub(super) fn check(server: &MCPServer, data: &Data, findings: &mut Findings<'_>) {
    let spec = &server.spec;
    let problems = rules::problems(server);
    if !problems.is_empty() {
        findings.block(SPEC_VALID, "InvalidSpec", sentences(&problems));
    }
    let template = backend::pod_template(spec);
    let notes: Vec<_> = template.iter().flatten().flat_map(Template::notes).collect();
    workload::checks::pod_template(template, &notes, findings);
    check_replicas(server, findings);
    check_secrets(spec, data, findings);
    workload::checks::ignored_provider(spec.authz_config.as_ref(), findings);
    if let Some(bytes) = rules::body_limit_above_bound(spec) {
        let message = format!("spec.maxRequestBodySize: {}; until then that bound holds", rules::above_bound(bytes));
        findings.conditions.set(BODY_LIMIT_CAPPED, ConditionStatus::True, "AboveBound", message);
    }
    workload::checks::unsupported(server, &unsupported(spec), findings);
}

/// The fields that are set and change nothing in this version. None of them guards anything.
pub(super) fn unsupported(spec: &MCPServerSpec) -> Vec<&'static str> {
    spec.group_ref.iter().map(|_| "spec.groupRef").collect()
}

/// The Secrets of the MCP server's environment.
pub(super) fn secrets(spec: &MCPServerSpec) -> impl Iterator<Item = Reference> {
    let each = spec.secrets.iter().flatten().enumerate();
    each.map(|(at, it)| Reference::to_secret(format!("spec.secrets[{at}]"), &it.name).with_key(&it.key))
}

fn check_replicas(server: &MCPServer, findings: &mut Findings<'_>) {
    if let Some(replicas) = server.spec.replicas.filter(|it| *it > 1 && server.spec.transport == Transport::Stdio) {
        let message = format!(
            "spec.replicas is {replicas}; a stdio server is one process, which has one proxy: its sessions cannot be shared"
        );
        findings.conditions.set(condition::STDIO_REPLICA_CAPPED, ConditionStatus::True, reason::STDIO_CAPPED, message);
    }
}

fn check_secrets(spec: &MCPServerSpec, data: &Data, findings: &mut Findings<'_>) {
    let [missing, _] = data.faults(secrets(spec).filter_map(|reference| reference.value(Content::Bytes)));
    if !missing.is_empty() {
        let message = format!("the MCP server's pods wait for what does not exist: {}", sentences(&missing));
        findings.conditions.set(SECRET_REFS_VALIDATED, ConditionStatus::False, "SecretNotFound", message);
    }
}
