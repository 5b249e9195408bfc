//! What is checked of an MCPServer before anything is rendered, and said in its conditions.

use mcp_api::{
    names::{condition, reason},
    v1beta1::{MCPServer, MCPServerSpec, SessionStorageProvider, Transport},
};

use super::{fields, rules};
use crate::{
    problem::sentences,
    reference::{Data, Source},
    workload::{Findings, pod_template},
};

/// Condition: the spec keeps the rules. Present only while it does not.
const SPEC_VALID: &str = "SpecValid";
/// Condition: the Secrets for the MCP server exist. Present only while one does not.
pub(super) const SECRET_REFS_VALIDATED: &str = "SecretRefsValidated";
/// Condition: fields without effect are set (`True` is the warning). Present only while they are.
pub(super) const UNSUPPORTED_FIELDS: &str = "UnsupportedFields";
/// Condition: the proxy cannot speak what is asked for (`True` is the warning). Present only while that is so.
pub(super) const TRANSPORT_UNSUPPORTED: &str = "TransportUnsupported";
/// Condition: replicas share their sessions as asked. Present only while they cannot.
const SESSION_STORAGE_READY: &str = "SessionStorageReady";

pub(super) fn check(server: &MCPServer, data: &Data, findings: &mut Findings<'_>) {
    let spec = &server.spec;
    let problems = rules::problems(server);
    if !problems.is_empty() {
        findings.block(SPEC_VALID, "InvalidSpec", sentences(&problems));
    }
    check_pod_template(spec, findings);
    check_sessions(spec, findings);
    check_secrets(spec, data, findings);

    let ignored = fields::fields_without_effect(spec);
    if !ignored.is_empty() {
        let message = format!("{} has no effect in this version", ignored.join(", "));
        findings.conditions.set(UNSUPPORTED_FIELDS, true, "FieldsHaveNoEffect", message);
    }
    if let Some(what) = fields::transport_not_built(spec) {
        let message = format!("the proxy of this version does not speak {what}; its pods will not become ready");
        findings.conditions.set(TRANSPORT_UNSUPPORTED, true, "TransportNotBuilt", message);
    }
}

fn check_pod_template(spec: &MCPServerSpec, findings: &mut Findings<'_>) {
    let Some(template) = &spec.pod_template_spec else { return };
    match pod_template::decode(template) {
        Ok(template) => {
            let message = if template.ignored.is_empty() {
                "PodTemplateSpec is valid".to_owned()
            } else {
                format!("PodTemplateSpec is valid; {}", ignored_fields(&template.ignored))
            };
            findings.conditions.set(condition::POD_TEMPLATE_VALID, true, reason::POD_TEMPLATE_VALID, message);
        }
        Err(problem) => {
            findings.block(condition::POD_TEMPLATE_VALID, reason::POD_TEMPLATE_INVALID, problem.to_string());
        }
    }
}

/// What to say of members of a pod template that this version does not know.
pub(super) fn ignored_fields(fields: &[String]) -> String {
    const SAID: usize = 10;
    let more = if fields.len() > SAID { ", ..." } else { "" };
    let said = &fields[..fields.len().min(SAID)];
    format!("{}{more} is not a field of a pod that this version knows, and has no effect", said.join(", "))
}

fn check_sessions(spec: &MCPServerSpec, findings: &mut Findings<'_>) {
    let replicas = spec.replicas.unwrap_or(1);
    if replicas <= 1 {
        return;
    }
    if spec.transport == Transport::Stdio {
        let message = format!("spec.replicas is {replicas}; a stdio server has one proxy");
        findings.conditions.set(condition::STDIO_REPLICA_CAPPED, true, reason::STDIO_CAPPED, message);
    } else if spec.session_storage.as_ref().is_some_and(|it| it.provider == SessionStorageProvider::Redis) {
        let message = format!(
            "spec.sessionStorage: the proxy of this version keeps no sessions in Redis, which {replicas} replicas need; set \
             spec.replicas to 1, or remove spec.sessionStorage to run without shared sessions"
        );
        findings.block(SESSION_STORAGE_READY, "SessionStorageNotBuilt", message);
    } else {
        let message = "spec.replicas is more than 1 and sessions are not shared across replicas";
        findings.conditions.set(condition::SESSION_STORAGE_WARNING, true, reason::SESSION_STORAGE_MISSING, message);
    }
}

fn check_secrets(spec: &MCPServerSpec, data: &Data, findings: &mut Findings<'_>) {
    let wanted = spec.secrets.iter().flatten();
    let missing = data.missing(wanted.map(|secret| (Source::Secret(secret.name.clone()), secret.key.clone())));
    if !missing.is_empty() {
        let message = format!("the MCP server's pods wait for what does not exist: {}", missing.join(", "));
        findings.conditions.set(SECRET_REFS_VALIDATED, false, "SecretNotFound", message);
    }
}
