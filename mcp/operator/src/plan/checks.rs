//! What is checked of a server before anything is rendered. Each check says what it finds as a condition; what keeps the
//! server from being rendered is a [`Block`] as well.

use mcp_api::{
    names::{condition, reason},
    v1beta1::{PermissionProfileType, SecretKeyRef, Transport},
};
use mcp_runconfig::PermissionProfile;

use portcullis::controller::Conditions;

use super::{
    ServerInputs,
    gate::{self, Gate},
    metadata::Server,
    rules,
};

/// Condition: every guard that the spec asks for is enforced. Present only while that is not so.
const GUARDS_ENFORCED: &str = "GuardsEnforced";
/// Condition: the spec keeps the rules. Present only while it does not.
const SPEC_VALID: &str = "SpecValid";
/// Condition: the permission profile can be read. Present only while it cannot.
const PERMISSION_PROFILE_VALIDATED: &str = "PermissionProfileValidated";
/// Condition: the Secrets for the MCP server exist. Present only while one does not.
pub(super) const SECRET_REFS_VALIDATED: &str = "SecretRefsValidated";
/// Condition: fields without effect are set (`True` is the warning). Present only while they are.
pub(super) const UNSUPPORTED_FIELDS: &str = "UnsupportedFields";
/// Condition: the proxy cannot speak what is asked for (`True` is the warning). Present only while that is so.
pub(super) const TRANSPORT_UNSUPPORTED: &str = "TransportUnsupported";

/// What keeps a server from being rendered.
pub(super) struct Block {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The gate that the spec asks for, and whether it can be put in place.
pub(super) fn gate_of(inputs: &ServerInputs<'_>, conditions: &mut Conditions<'_>, blocks: &mut Vec<Block>) -> Gate {
    let Some(reference) = &inputs.server.spec.webhook_config_ref else { return Gate::Open };
    let gate = Gate::of(&reference.name, inputs.webhook_config, inputs.secrets);
    match &gate {
        Gate::Open => {}
        Gate::Ready(gate) => {
            let message = format!("MCPWebhookConfig {:?} is enforced", gate.config);
            conditions.set(condition::WEBHOOK_CONFIG_VALIDATED, true, "WebhookConfigValid", message);
        }
        Gate::Broken(gate) => {
            conditions.set(condition::WEBHOOK_CONFIG_VALIDATED, false, gate.reason, gate.message.clone());
            blocks.push(Block { reason: gate.reason, message: gate.message.clone() });
        }
    }
    gate
}

/// Whether the spec asks for a guard that this version does not have.
pub(super) fn guards(server: &Server<'_>, conditions: &mut Conditions<'_>, blocks: &mut Vec<Block>) -> bool {
    let unbuilt = rules::unbuilt_guards(server.spec);
    if unbuilt.is_empty() {
        return false;
    }
    let message = format!(
        "{} cannot be enforced by this version, so the server gets no proxy; remove it to run without that guard",
        unbuilt.join(", ")
    );
    conditions.set(GUARDS_ENFORCED, false, "GuardNotBuilt", message.clone());
    // Said first: nothing else about the server matters more.
    blocks.insert(0, Block { reason: "GuardNotBuilt", message });
    true
}

/// Whether the spec keeps the rules.
pub(super) fn check_spec(inputs: &ServerInputs<'_>, conditions: &mut Conditions<'_>, blocks: &mut Vec<Block>) {
    let spec = &inputs.server.spec;
    let problems: Vec<_> = rules::check_server(inputs.server)
        .into_iter()
        .filter(|it| !it.field.starts_with("spec.podTemplateSpec"))
        .collect();
    if !problems.is_empty() {
        let message = rules::sentences(&problems, ToString::to_string);
        conditions.set(SPEC_VALID, false, "InvalidSpec", message.clone());
        blocks.push(Block { reason: "InvalidSpec", message });
    }
    if spec.pod_template_spec.is_some() {
        let problems = rules::pod_template_problems(spec);
        if problems.is_empty() {
            conditions.set(condition::POD_TEMPLATE_VALID, true, reason::POD_TEMPLATE_VALID, "PodTemplateSpec is valid");
        } else {
            let message = rules::sentences(&problems, ToString::to_string);
            conditions.set(condition::POD_TEMPLATE_VALID, false, reason::POD_TEMPLATE_INVALID, message.clone());
            blocks.push(Block { reason: reason::POD_TEMPLATE_INVALID, message });
        }
    }
}

/// The permission profile, read from its ConfigMap where it is in one.
pub(super) fn permission_profile(
    inputs: &ServerInputs<'_>,
    conditions: &mut Conditions<'_>,
    blocks: &mut Vec<Block>,
) -> Option<PermissionProfile> {
    let Some(wanted) = &inputs.server.spec.permission_profile else { return Some(PermissionProfile::network()) };
    if wanted.kind == PermissionProfileType::Builtin {
        return Some(if wanted.name == "none" { PermissionProfile::none() } else { PermissionProfile::network() });
    }
    let key = wanted.key.as_deref().unwrap_or_default();
    let document = inputs.config_maps.get(&wanted.name).and_then(|data| data.get(key));
    let (reason, message) = match document.map(|document| PermissionProfile::parse(document.as_bytes())) {
        Some(Ok(profile)) => return Some(profile),
        Some(Err(error)) => {
            ("PermissionProfileInvalid", format!("the permission profile {}/{key} is not valid: {error}", wanted.name))
        }
        None => ("PermissionProfileNotFound", format!("the permission profile {}/{key} does not exist", wanted.name)),
    };
    conditions.set(PERMISSION_PROFILE_VALIDATED, false, reason, message.clone());
    blocks.push(Block { reason, message });
    None
}

/// What the server's author should know and what keeps nothing from running.
pub(super) fn warn(inputs: &ServerInputs<'_>, server: &Server<'_>, conditions: &mut Conditions<'_>) {
    let spec = server.spec;
    let ignored = rules::fields_without_effect(spec);
    if !ignored.is_empty() {
        let message = format!("{} has no effect in this version", ignored.join(", "));
        conditions.set(UNSUPPORTED_FIELDS, true, "FieldsHaveNoEffect", message);
    }
    if let Some(what) = rules::transport_not_built(spec) {
        let message = format!("the proxy of this version does not speak {what}; its pods will not become ready");
        conditions.set(TRANSPORT_UNSUPPORTED, true, "TransportNotBuilt", message);
    }
    let replicas = spec.replicas.unwrap_or(1);
    if spec.transport == Transport::Stdio && replicas > 1 {
        let message = format!("spec.replicas is {replicas}; a stdio server has one proxy");
        conditions.set(condition::STDIO_REPLICA_CAPPED, true, reason::STDIO_CAPPED, message);
    } else if replicas > 1 {
        let message = "spec.replicas is more than 1 and sessions are not shared across replicas";
        conditions.set(condition::SESSION_STORAGE_WARNING, true, reason::SESSION_STORAGE_MISSING, message);
    }
    let wanted: Vec<_> = spec
        .secrets
        .iter()
        .flatten()
        .map(|secret| SecretKeyRef { name: secret.name.clone(), key: secret.key.clone() })
        .collect();
    let missing = gate::missing_keys(wanted.iter(), inputs.secrets);
    if !missing.is_empty() {
        let message = format!("the MCP server's pods wait for what does not exist: {}", missing.join(", "));
        conditions.set(SECRET_REFS_VALIDATED, false, "SecretNotFound", message);
    }
}
