//! The rules of a VirtualMCPServer that its schema cannot say.

use std::collections::BTreeSet;

use mcp_api::v1beta1::{
    VirtualMCPServerSpec,
    virtual_server::{
        BackendAuth, BackendAuthType, IncomingAuthType,
        config::{Aggregation, ConflictResolution},
    },
};
use mcp_plan::problem::Problem;

use crate::config::LoginTerms;

pub(super) fn problems(spec: &VirtualMCPServerSpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    // An object without a spec is admitted, and its group has no name.
    if spec.group_ref.name.is_empty() {
        problems.push(Problem::new("spec.groupRef", "is missing; name the MCPGroup whose servers are offered"));
    }
    problems.extend(incoming(spec));
    for (field, auth) in outgoing(spec) {
        problems.extend(backend(&field, auth));
    }
    let aggregation = spec.config.as_ref().and_then(|config| config.aggregation.as_ref());
    problems.extend(aggregation.into_iter().flat_map(aggregated));
    problems
}

/// The fields of `spec.config` that the rest of the spec overwrites.
pub(super) fn overwritten(spec: &VirtualMCPServerSpec) -> Vec<String> {
    let Some(config) = &spec.config else { return Vec::new() };
    let group = config.group_ref.as_ref().is_some_and(|group| *group != spec.group_ref.name);
    let fields = [
        ("groupRef", "groupRef", group),
        ("incomingAuth", "incomingAuth", config.incoming_auth.is_some()),
        ("outgoingAuth", "outgoingAuth", config.outgoing_auth.is_some()),
        ("sessionStorage", "sessionStorage", config.session_storage.is_some()),
        ("telemetry", "telemetryConfigRef", config.telemetry.is_some()),
    ];
    let set = fields.iter().filter(|(_, _, set)| *set);
    set.map(|(field, by, _)| format!("spec.config.{field} has no effect; set spec.{by}")).collect()
}

fn incoming(spec: &VirtualMCPServerSpec) -> Vec<Problem> {
    let field = "spec.incomingAuth.oidcConfigRef";
    match (&spec.incoming_auth.oidc_config_ref, spec.incoming_auth.kind) {
        (None, IncomingAuthType::Anonymous) => Vec::new(),
        (None, IncomingAuthType::Oidc) => vec![Problem::new(field, "is missing; name the MCPOIDCConfig of callers")],
        (Some(_), IncomingAuthType::Anonymous) => {
            let message =
                "would check nobody, because spec.incomingAuth.type is anonymous; set that to oidc, or remove this";
            vec![Problem::new(field, message)]
        }
        (Some(reference), IncomingAuthType::Oidc) => LoginTerms::from(reference).problems(field),
    }
}

fn outgoing(spec: &VirtualMCPServerSpec) -> Vec<(String, &BackendAuth)> {
    let Some(outgoing) = &spec.outgoing_auth else { return Vec::new() };
    let default = outgoing.default.iter().map(|auth| ("spec.outgoingAuth.default".to_owned(), auth));
    let backends = outgoing.backends.iter().flatten();
    default.chain(backends.map(|(name, auth)| (format!("spec.outgoingAuth.backends[{name}]"), auth))).collect()
}

fn backend(field: &str, auth: &BackendAuth) -> Option<Problem> {
    let named = auth.external_auth_config_ref.as_ref().is_some_and(|it| !it.name.is_empty());
    let message = match (auth.kind, named) {
        (BackendAuthType::ExternalAuthConfigRef, false) => "is missing; name the MCPExternalAuthConfig",
        (BackendAuthType::Discovered, true) => {
            "has no effect with type discovered; set type to externalAuthConfigRef, or remove this"
        }
        _ => return None,
    };
    Some(Problem::new(format!("{field}.externalAuthConfigRef"), message))
}

fn aggregated(aggregation: &Aggregation) -> Vec<Problem> {
    let field = "spec.config.aggregation";
    let mut problems = Vec::new();
    let order = aggregation.conflict_resolution_config.as_ref().and_then(|it| it.priority_order.as_ref());
    let tools = aggregation.tools.as_deref().unwrap_or_default();
    match aggregation.conflict_resolution {
        ConflictResolution::Priority if order.is_none_or(Vec::is_empty) => {
            let message = "is empty; name the servers in their order, or resolve conflicts in another way";
            problems.push(Problem::new(format!("{field}.conflictResolutionConfig.priorityOrder"), message));
        }
        ConflictResolution::Manual if tools.is_empty() => {
            let message = "is empty; give tools names of their own, or resolve conflicts in another way";
            problems.push(Problem::new(format!("{field}.tools"), message));
        }
        _ => {}
    }
    let mut named = BTreeSet::new();
    for (at, tools) in tools.iter().enumerate().filter(|(_, tools)| !named.insert(&*tools.workload)) {
        let message = format!("{:?} has an entry already; say in one what is offered of it", tools.workload);
        problems.push(Problem::new(format!("{field}.tools[{at}].workload"), message));
    }
    problems
}
