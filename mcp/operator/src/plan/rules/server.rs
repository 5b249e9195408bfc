//! Rules of MCPServer.

use std::collections::BTreeMap;

use mcp_api::v1beta1::{MCPServer, MCPServerSpec, PermissionProfileType, ResourceList};

use super::{Problem, metadata};
use crate::plan::{environment, names, pod_template, quantity};

/// Every rule the server breaks; with one of them it can never run.
pub fn check_server(server: &MCPServer) -> Vec<Problem> {
    let mut problems = name_problems(server.metadata.name.as_deref().unwrap_or_default());
    problems.extend(spec_problems(&server.spec));
    problems.extend(pod_template_problems(&server.spec));
    problems
}

/// Whether `spec.podTemplateSpec` can be merged.
pub fn pod_template_problems(spec: &MCPServerSpec) -> Vec<Problem> {
    spec.pod_template_spec.iter().filter_map(|template| pod_template::decode(template).err()).collect()
}

/// Every rule that the rest of the spec breaks.
pub fn spec_problems(spec: &MCPServerSpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    if spec.image.is_empty() || spec.image.contains(char::is_whitespace) {
        problems.push(Problem::new("spec.image", "is not the name of an image; write one such as example.com/mcp:1.0"));
    }
    environment_problems(spec, &mut problems);
    volume_problems(spec, &mut problems);
    resource_problems(spec, &mut problems);
    profile_problems(spec, &mut problems);
    metadata::metadata_problems(spec, &mut problems);
    problems
}

pub(in crate::plan) fn name_problems(name: &str) -> Vec<Problem> {
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
            problems.push(Problem::new(
                field,
                format!("{name:?} cannot name an environment variable; use letters, digits and _"),
            ));
        } else if let Some(other) = taken.insert(name, field.clone()) {
            problems.push(Problem::new(field, format!("{name:?} is already set by {other}; drop one of them")));
        }
    }
    for (at, secret) in spec.secrets.iter().flatten().enumerate() {
        if secret.name.is_empty() || secret.key.is_empty() {
            problems.push(Problem::new(format!("spec.secrets[{at}]"), "names no Secret or no key of it; set both"));
        }
    }
    let proxy = spec.resource_overrides.as_ref().and_then(|all| all.proxy_deployment.as_ref());
    for (at, var) in proxy.and_then(|proxy| proxy.env.as_ref()).into_iter().flatten().enumerate() {
        if !is_variable(&var.name) {
            let field = format!("spec.resourceOverrides.proxyDeployment.env[{at}].name");
            problems.push(Problem::new(
                field,
                format!("{:?} cannot name an environment variable; use letters, digits and _", var.name),
            ));
        }
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

fn resource_problems(spec: &MCPServerSpec, problems: &mut Vec<Problem>) {
    let Some(resources) = &spec.resources else { return };
    let mut amounts = |kind: &str, list: Option<&ResourceList>| {
        let amount = |name: &str, text: Option<&String>, problems: &mut Vec<Problem>| {
            let text = text?;
            let read = quantity::parse(text)
                .and_then(|amount| if amount < 0 { Err(format!("{text:?} is negative")) } else { Ok(amount) });
            read.map_err(|message| problems.push(Problem::new(format!("spec.resources.{kind}.{name}"), message))).ok()
        };
        let list = list.cloned().unwrap_or_default();
        [amount("cpu", list.cpu.as_ref(), problems), amount("memory", list.memory.as_ref(), problems)]
    };
    let requests = amounts("requests", resources.requests.as_ref());
    let limits = amounts("limits", resources.limits.as_ref());
    for (name, (request, limit)) in ["cpu", "memory"].into_iter().zip(requests.into_iter().zip(limits)) {
        if request.zip(limit).is_some_and(|(request, limit)| request > limit) {
            let message = format!("is more than spec.resources.limits.{name}; lower it or raise the limit");
            problems.push(Problem::new(format!("spec.resources.requests.{name}"), message));
        }
    }
}

fn profile_problems(spec: &MCPServerSpec, problems: &mut Vec<Problem>) {
    let Some(profile) = &spec.permission_profile else { return };
    match profile.kind {
        PermissionProfileType::Builtin if !["none", "network"].contains(&profile.name.as_str()) => {
            let message = format!("{:?} is not a built-in profile; use \"none\" or \"network\"", profile.name);
            problems.push(Problem::new("spec.permissionProfile.name", message));
        }
        PermissionProfileType::ConfigMap if profile.name.is_empty() => {
            problems.push(Problem::new("spec.permissionProfile.name", "is empty; name the ConfigMap"));
        }
        PermissionProfileType::ConfigMap if !profile.key.as_deref().is_some_and(is_file_name) => {
            problems.push(Problem::new(
                "spec.permissionProfile.key",
                "is missing; name the ConfigMap's key that holds the profile",
            ));
        }
        _ => {}
    }
}

pub(super) fn is_dns_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

/// What Kubernetes takes: printable ASCII without `=`.
fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

/// A key of a ConfigMap, which becomes a file name.
fn is_file_name(key: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !key.is_empty() && key != "." && !key.starts_with("..") && key.bytes().all(allowed)
}
