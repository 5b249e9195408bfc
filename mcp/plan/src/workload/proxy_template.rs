//! The user's `podTemplateSpec` over the pod of a proxy: as over any pod ([`pod_template`]), except for what the gate rests
//! on. The process, its environment, its files and the annotations that tell of guards stay the operator's.

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec};
use mcp_api::names::annotation;
use mcp_runconfig::paths::{ACCOUNT, is_below};

use super::{overrides, pod_template};
use crate::problem::Problem;

/// Name of the proxy's container.
pub const CONTAINER: &str = "toolhive";

/// Puts the user's template over the generated pod.
pub fn merge(generated: &mut PodTemplateSpec, mut user: PodTemplateSpec) {
    if let Some(annotations) = user.metadata.as_mut().and_then(|metadata| metadata.annotations.as_mut()) {
        // Written by a user, these would tell a later plan of guards that the pods do not have.
        annotations.retain(|key, _| !annotation::TELL_GUARDS.contains(&&**key));
    }
    let own = generated.spec.clone();
    pod_template::merge(generated, user);
    if let (Some(own), Some(merged)) = (own, &mut generated.spec) {
        keep(own, merged);
    }
}

/// The rules of proxies that a template breaks.
pub fn problems(user: &PodTemplateSpec) -> Vec<Problem> {
    let variables = own(user).flat_map(|(at, container)| {
        let variables = container.env.iter().flatten().enumerate();
        variables.map(move |(nth, variable)| (format!("containers[{at}].env[{nth}].name"), &variable.name))
    });
    let problem = |(path, name): (String, &String)| {
        Some(Problem::new(format!("{}.spec.{path}", pod_template::FIELD), overrides::reserved(name)?))
    };
    variables.filter_map(problem).collect()
}

/// The fields of a template that [`merge`] leaves without effect because the operator sets them.
pub fn kept(user: &PodTemplateSpec) -> Vec<String> {
    let fields = own(user).flat_map(|(at, container)| {
        let fields = [
            ("image", container.image.is_some()),
            ("command", container.command.is_some()),
            ("args", container.args.is_some()),
            ("workingDir", container.working_dir.is_some()),
            ("envFrom", container.env_from.is_some()),
        ];
        let set = fields.into_iter().filter(|(_, set)| *set);
        set.map(move |(field, _)| format!("{}.spec.containers[{at}].{field}", pod_template::FIELD))
    });
    let links = user.spec.iter().filter(|spec| spec.enable_service_links == Some(true));
    links.map(|_| format!("{}.spec.enableServiceLinks", pod_template::FIELD)).chain(fields).collect()
}

/// A sentence for each variable of the proxy's container in a template that has no effect.
pub fn variable_notes(user: &PodTemplateSpec) -> Vec<String> {
    let notes = own(user).flat_map(|(at, container)| {
        let field = format!("{}.spec.containers[{at}].env", pod_template::FIELD);
        let variables = container.env.iter().flatten();
        variables.filter_map(move |variable| overrides::variable_note(&field, &variable.name))
    });
    notes.collect()
}

/// What the template says of the proxy's container, and where.
fn own(user: &PodTemplateSpec) -> impl Iterator<Item = (usize, &Container)> {
    let containers = user.spec.iter().flat_map(|spec| spec.containers.iter().enumerate());
    containers.filter(|(_, container)| container.name == CONTAINER)
}

fn keep(own: PodSpec, merged: &mut PodSpec) {
    for volume in own.volumes.into_iter().flatten() {
        put(merged.volumes.get_or_insert_default(), volume, |it| it.name.clone());
    }
    // What a guard reads as files of the ServiceAccount is nobody else's to withhold or to bring.
    merged.enable_service_links = own.enable_service_links;
    let account = if own.automount_service_account_token == Some(true) { Some(ACCOUNT) } else { None };
    if account.is_some() {
        merged.automount_service_account_token = Some(true);
    }
    for container in own.containers {
        if let Some(merged) = merged.containers.iter_mut().find(|merged| merged.name == container.name) {
            keep_container(container, account, merged);
        }
    }
}

fn keep_container(own: Container, account: Option<&str>, merged: &mut Container) {
    (merged.image, merged.command, merged.args) = (own.image, own.command, own.args);
    // What a ConfigMap or a Secret would set cannot be judged when the template is.
    (merged.working_dir, merged.env_from) = (own.working_dir, own.env_from);
    for variable in own.env.into_iter().flatten() {
        put(merged.env.get_or_insert_default(), variable, |it: &EnvVar| it.name.clone());
    }
    for port in own.ports.into_iter().flatten() {
        put(merged.ports.get_or_insert_default(), port, |it| it.container_port);
    }
    let mounts = merged.volume_mounts.get_or_insert_default();
    let files = own.volume_mounts.unwrap_or_default();
    // What is mounted at or below a directory of ours hides its files.
    mounts.retain(|mount| {
        let mut ours = files.iter().map(|own| &*own.mount_path).chain(account);
        !ours.any(|own| is_below(&mount.mount_path, own))
    });
    mounts.splice(0..0, files);
}

/// Replaces the entry with the same key, or adds this one.
fn put<T, K: PartialEq>(list: &mut Vec<T>, item: T, key: impl Fn(&T) -> K) {
    match list.iter_mut().find(|listed| key(listed) == key(&item)) {
        Some(listed) => *listed = item,
        None => list.push(item),
    }
}
