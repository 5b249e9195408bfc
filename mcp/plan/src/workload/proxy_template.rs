//! The user's `podTemplateSpec` over the pod of a proxy: as over any pod ([`pod_template`]), but for what the gate
//! rests on. A field has an effect where the tables here have it; the process, its environment, its files and the
//! annotations that tell of guards stay the operator's.

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec};
use mcp_api::names::annotation;
use mcp_runconfig::environment::is_operators;
use mcp_runconfig::paths::{ACCOUNT, hides_proxy, is_below};
use serde_json::Value;

use super::{overrides, pod_template};
use crate::problem::Problem;

pub use crate::guards::CONTAINER;

/// The fields of a template's metadata that have an effect.
const METADATA: [&str; 2] = ["annotations", "labels"];

/// The fields of a template's pod that have an effect.
const POD: [&str; 20] = [
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "hostUsers",
    "imagePullSecrets",
    "initContainers",
    "nodeSelector",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "securityContext",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
];

/// The fields of the proxy's own container that have an effect. Those of other containers all have.
const OWN: [&str; 9] = [
    "env",
    "imagePullPolicy",
    "livenessProbe",
    "name",
    "readinessProbe",
    "resources",
    "securityContext",
    "startupProbe",
    "volumeMounts",
];

/// The probes of a container.
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// The fields of the proxy's probes that have an effect. A probe asks the proxy over HTTP: it runs no program in its
/// container.
const PROBE: [&str; 7] = [
    "failureThreshold",
    "httpGet",
    "initialDelaySeconds",
    "periodSeconds",
    "successThreshold",
    "terminationGracePeriodSeconds",
    "timeoutSeconds",
];

/// The fields of such a question that have an effect. With a `host`, the kubelet would ask another one than the pod.
const HTTP_GET: [&str; 4] = ["httpHeaders", "path", "port", "scheme"];

/// Puts the user's template over the generated pod.
pub fn merge(generated: &mut PodTemplateSpec, user: &PodTemplateSpec) {
    let (mut user, _) = sift(user);
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

/// The rules of proxies that a template breaks: it sets what would reach into the process.
pub fn problems(user: &PodTemplateSpec) -> Vec<Problem> {
    let problem = |path: String, message| Problem::new(format!("{}.spec.{path}", pod_template::FIELD), message);
    let shared = user.spec.iter().flat_map(|spec| {
        let fields = [("hostPID", spec.host_pid), ("shareProcessNamespace", spec.share_process_namespace)];
        fields.into_iter().filter(|(_, set)| *set == Some(true))
    });
    let shared = shared.map(|(field, _)| {
        problem(field.to_owned(), "would let other processes reach into the proxy's; remove it".to_owned())
    });
    let in_container = own(user).flat_map(|(at, container)| {
        let variables = container.env.iter().flatten().enumerate().filter_map(move |(nth, variable)| {
            Some((format!("containers[{at}].env[{nth}].name"), overrides::reserved(&variable.name)?))
        });
        let mounts = container.volume_mounts.iter().flatten().enumerate();
        let mounts = mounts.filter(|(_, mount)| hides_proxy(&mount.mount_path)).map(move |(nth, mount)| {
            let message = format!(
                "{:?} would hide the proxy's program, its root certificates or files of the operator; mount it elsewhere",
                mount.mount_path
            );
            (format!("containers[{at}].volumeMounts[{nth}].mountPath"), message)
        });
        variables.chain(mounts)
    });
    shared.chain(in_container.map(|(path, message)| problem(path, message))).collect()
}

/// The fields of a template that [`merge`] leaves without effect.
pub fn kept(user: &PodTemplateSpec) -> Vec<String> {
    sift(user).1
}

/// The part of a template that has an effect, and the fields that have none.
fn sift(user: &PodTemplateSpec) -> (PodTemplateSpec, Vec<String>) {
    let mut template = serde_json::to_value(user).unwrap_or_default();
    let mut without = Vec::new();
    let mut retain = |value: &mut Value, fields: &[&str], path: &str| {
        let Some(members) = value.as_object_mut() else { return };
        members.retain(|field, _| {
            let has_effect = fields.contains(&&**field);
            if !has_effect {
                without.push(format!("{}.{path}.{field}", pod_template::FIELD));
            }
            has_effect
        });
    };
    if let Some(metadata) = template.get_mut("metadata") {
        retain(metadata, &METADATA, "metadata");
    }
    if let Some(pod) = template.get_mut("spec") {
        retain(pod, &POD, "spec");
        let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
        for (at, container) in containers.into_iter().flatten().enumerate().filter(|(_, it)| it["name"] == CONTAINER) {
            let path = format!("spec.containers[{at}]");
            retain(container, &OWN, &path);
            for probe in PROBES {
                let Some(fields) = container.get_mut(probe) else { continue };
                retain(fields, &PROBE, &format!("{path}.{probe}"));
                if let Some(fields) = fields.get_mut("httpGet") {
                    retain(fields, &HTTP_GET, &format!("{path}.{probe}.httpGet"));
                }
            }
        }
    }
    (serde_json::from_value(template).unwrap_or_default(), without)
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

/// The settings of the template for the proxy's container, with their paths.
fn own(user: &PodTemplateSpec) -> impl Iterator<Item = (usize, &Container)> {
    let containers = user.spec.iter().flat_map(|spec| spec.containers.iter().enumerate());
    containers.filter(|(_, container)| container.name == CONTAINER)
}

fn keep(own: PodSpec, merged: &mut PodSpec) {
    for volume in own.volumes.into_iter().flatten() {
        put(merged.volumes.get_or_insert_default(), volume, |it| it.name.clone());
    }
    // Files of the ServiceAccount that a guard reads cannot be withheld or replaced by others.
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
    let (variables, own_variables) = (merged.env.get_or_insert_default(), own.env.unwrap_or_default());
    let is_own = |name: &str| own_variables.iter().any(|own| own.name == name);
    variables.retain(|variable| !is_operators(&variable.name) || is_own(&variable.name));
    for variable in own_variables {
        put(variables, variable, |it: &EnvVar| it.name.clone());
    }
    let mounts = merged.volume_mounts.get_or_insert_default();
    let files = own.volume_mounts.unwrap_or_default();
    // Admission refuses what hides files that the gate rests on; here it must not matter whether that was asked.
    mounts.retain(|mount| {
        let mut ours = files.iter().map(|own| &*own.mount_path).chain(account);
        !hides_proxy(&mount.mount_path) && !ours.any(|own| is_below(&mount.mount_path, own))
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
