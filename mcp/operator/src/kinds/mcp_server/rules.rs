//! Rules of MCPServer that its schema cannot say.

use std::{collections::BTreeMap, time::Duration};

use mcp_api::v1beta1::{MCPServer, MCPServerSpec, Transport};
use mcp_plan::{
    additions::Additions,
    authorization, image,
    problem::Problem,
    rate_limits,
    reference::incomplete_key,
    session_storage,
    workload::{
        overrides::{self, is_dns_label, is_variable, variable_message},
        quantity,
    },
};
use mcp_runconfig::{chain::MAX_BODY_LIMIT, duration};

use super::{environment, names};
use crate::config::LoginTerms;

/// Every rule that the server breaks, `spec.podTemplateSpec` aside.
pub(super) fn problems(server: &MCPServer) -> Vec<Problem> {
    let mut problems = name_problems(server.metadata.name.as_deref().unwrap_or_default());
    let spec = &server.spec;
    // It is an argument of the proxy: no option is a reference.
    if !image::is_reference(&spec.image) {
        problems.push(Problem::new("spec.image", "is not the name of an image; write one such as example.com/mcp:1.0"));
    }
    let no_paths = (spec.transport == Transport::Stdio).then_some("a server behind a pipe serves MCP alone");
    problems.extend(Additions::of(server.metadata.annotations.as_ref()).problems(no_paths));
    environment_problems(spec, &mut problems);
    volume_problems(spec, &mut problems);
    let login = spec.oidc_config_ref.as_ref().map(LoginTerms::from);
    problems.extend(login.iter().flat_map(|login| login.problems("spec.oidcConfigRef")));
    problems.extend(spec.resources.iter().flat_map(quantity::problems));
    problems.extend(spec.resource_overrides.iter().flat_map(overrides::problems));
    if let Some(Err(message)) = spec.proxy_read_timeout.as_deref().map(read_timeout) {
        problems.push(Problem::new("spec.proxyReadTimeout", message));
    }
    problems
}

/// The rules that only a change can break, and the first version.
pub(super) fn change_problems(old: Option<&MCPServerSpec>, new: &MCPServerSpec) -> Vec<Problem> {
    let stored = old.and_then(|old| old.max_request_body_size);
    let above = body_limit_above_bound(new).filter(|_| stored != new.max_request_body_size);
    let above = above.map(|bytes| Problem::new("spec.maxRequestBodySize", above_bound(bytes)));
    let policies = old.and_then(|old| old.authz_config.as_ref());
    let policies = authorization::change_problems(policies, new.authz_config.as_ref(), None);
    let limits = old.and_then(|old| old.rate_limiting.as_ref());
    let limits = rate_limits::change_problems(limits, new.rate_limiting.as_ref());
    let sessions = old.and_then(|old| old.session_storage.as_ref());
    let sessions = session_storage::change_problems(sessions, new.session_storage.as_ref());
    above.into_iter().chain(policies).chain(limits).chain(sessions).collect()
}

/// `spec.maxRequestBodySize` where it is more than a proxy reads.
pub(super) fn body_limit_above_bound(spec: &MCPServerSpec) -> Option<u64> {
    let bytes = u64::try_from(spec.max_request_body_size?).ok()?;
    (bytes > MAX_BODY_LIMIT).then_some(bytes)
}

/// The sentence about such a limit.
pub(super) fn above_bound(bytes: u64) -> String {
    format!("{bytes} is more than a proxy reads of a body; write at most {MAX_BODY_LIMIT} (256 MiB)")
}

/// `spec.proxyReadTimeout`.
pub(super) fn read_timeout(text: &str) -> Result<Duration, String> {
    let nanos = duration::parse(text).map_err(|error| error.to_string())?;
    let nanos = u64::try_from(nanos).map_err(|_| format!("{text:?} is negative; write a duration such as \"30s\""))?;
    Ok(Duration::from_nanos(nanos))
}

fn name_problems(name: &str) -> Vec<Problem> {
    let fits = name.len() <= names::MAX_SERVER_NAME && is_dns_label(name);
    if fits {
        return Vec::new();
    }
    let message = format!(
        "{name:?} cannot name this server's Services; use at most {} lower-case letters, digits and dashes",
        names::MAX_SERVER_NAME
    );
    vec![Problem::new("metadata.name", message)]
}

fn environment_problems(spec: &MCPServerSpec, problems: &mut Vec<Problem>) {
    let mut taken = BTreeMap::new();
    let plain = spec.env.iter().flatten().enumerate();
    let plain = plain.map(|(at, var)| (format!("spec.env[{at}].name"), var.name.as_str()));
    let secret = spec.secrets.iter().flatten().enumerate();
    let secret = secret.map(|(at, var)| (format!("spec.secrets[{at}].targetEnvName"), environment::target(var)));
    for (field, name) in plain.chain(secret) {
        if !is_variable(name) {
            problems.push(Problem::new(field, variable_message(name)));
        } else if let Some(other) = taken.insert(name, field.clone()) {
            problems.push(Problem::new(field, format!("{name:?} is already set by {other}; drop one of them")));
        }
    }
    for (at, secret) in spec.secrets.iter().flatten().enumerate() {
        let incomplete = incomplete_key(&secret.name, &secret.key);
        problems.extend(incomplete.map(|message| Problem::new(format!("spec.secrets[{at}]"), message)));
    }
}

fn volume_problems(spec: &MCPServerSpec, problems: &mut Vec<Problem>) {
    let mut taken = BTreeMap::new();
    for (at, volume) in spec.volumes.iter().flatten().enumerate() {
        let field = |name: &str| format!("spec.volumes[{at}].{name}");
        if volume.name.len() > 63 || !is_dns_label(&volume.name) {
            problems.push(Problem::new(
                field("name"),
                format!("{:?} cannot name a volume; use lower-case letters, digits and dashes", volume.name),
            ));
        }
        for (name, path) in [("hostPath", &volume.host_path), ("mountPath", &volume.mount_path)] {
            // The RunConfig writes a volume as HOST:CONTAINER[:ro].
            if !path.starts_with('/') || path.contains(':') {
                problems.push(Problem::new(field(name), format!("{path:?} is not an absolute path without a colon")));
            }
        }
        // A container's mounts are kept by their paths.
        if let Some(other) = taken.insert(volume.mount_path.as_str(), at) {
            let message =
                format!("{:?} is already where spec.volumes[{other}] goes; choose another", volume.mount_path);
            problems.push(Problem::new(field("mountPath"), message));
        }
    }
}
