//! The part of a proxy's pod that its gate rests on: which program runs, on what, and who else reaches it.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use k8s_openapi::api::core::v1::{EnvVar, PodSpec, Volume};
use mcp_runconfig::{
    environment::{KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT, is_operators},
    paths::{hides_proxy, is_of_account},
};
use serde::Serialize;
use serde_json::Value;

use crate::image;

/// Name of the proxy's container.
pub const CONTAINER: &str = "toolhive";

/// The fields of the proxy's container that are the operator's alone, beside variables and mounts.
pub const OWN_FIELDS: [&str; 5] = ["command", "args", "workingDir", "envFrom", "lifecycle"];

/// The fields of its pod that let other containers reach into the proxy's.
pub const SHARED_FIELDS: [&str; 2] = ["hostPID", "shareProcessNamespace"];

/// ConfigMaps that clusters mount beside the token of a pod's ServiceAccount.
const CLUSTER_ROOTS: [&str; 2] = ["kube-root-ca.crt", "openshift-service-ca.crt"];

/// Enough of SHA-256 that nobody finds another value for it.
type Digest = [u8; 16];

/// Digests of the part of a proxy's pod that its gate rests on. Containers, variables and mounts beside that are no part of
/// it: service meshes, secret injectors and clouds add them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyContainer {
    image: Box<str>,
    /// A digest of each field, which is equal for two that are the same.
    fields: Box<[(&'static str, Digest)]>,
    /// A digest of each other variable, sorted. Another container may have more of them.
    variables: Box<[Digest]>,
}

/// Whether the variable of a proxy is the operator's alone, set or not.
pub fn is_own_variable(name: &str) -> bool {
    is_operators(name) || [KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT].contains(&name)
}

impl ProxyContainer {
    /// Reads the pod's; none where the pod has no such container.
    pub fn of(pod: &PodSpec) -> Option<Self> {
        let container = pod.containers.iter().find(|container| container.name == CONTAINER)?;
        // The last counts where a name comes twice.
        let variables: BTreeMap<&str, &EnvVar> =
            container.env.iter().flatten().map(|variable| (&*variable.name, variable)).collect();
        let (own, others): (Vec<_>, Vec<_>) =
            variables.into_values().partition(|variable| is_own_variable(&variable.name));
        let volumes: BTreeMap<&str, &Volume> =
            pod.volumes.iter().flatten().map(|volume| (&*volume.name, volume)).collect();
        let mounts = container.volume_mounts.iter().flatten().filter_map(|mount| {
            let volume = volumes.get(&*mount.name).copied();
            let is_token = is_of_account(&mount.mount_path) && volume.is_some_and(is_token);
            let matters = hides_proxy(&mount.mount_path) || is_of_account(&mount.mount_path);
            (matters && !is_token).then(|| of(&(mount, volume)))
        });
        let mut mounts: Vec<_> = mounts.collect();
        mounts.sort_unstable();
        let [command, args, working_dir, env_from, lifecycle] = OWN_FIELDS;
        let fields = [
            (command, of(&container.command)),
            (args, of(&container.args)),
            (working_dir, of(&container.working_dir)),
            (env_from, of(&container.env_from)),
            (lifecycle, of(&container.lifecycle)),
            ("env", of(&own)),
            ("volumeMounts", of(&mounts)),
            (SHARED_FIELDS[0], of(&(pod.host_pid == Some(true)))),
            (SHARED_FIELDS[1], of(&(pod.share_process_namespace == Some(true)))),
        ];
        let mut variables: Vec<_> = others.iter().map(of).collect();
        variables.sort_unstable();
        Some(Self { image: container.image.as_deref()?.into(), fields: fields.into(), variables: variables.into() })
    }

    /// The field in which `found`, a pod's, is not what was asked for; none where it is.
    pub fn first_difference(&self, found: &Self) -> Option<&'static str> {
        if !image::is_same(&self.image, &found.image) {
            return Some("image");
        }
        let fields = self.fields.iter().zip(&found.fields).find(|(asked, found)| asked != found);
        let has = |variable| found.variables.binary_search(variable).is_ok();
        fields.map(|((field, _), _)| *field).or_else(|| (!self.variables.iter().all(has)).then_some("env"))
    }
}

/// Whether the cluster mounts this volume, and nobody else's files are in it: the token of the pod's ServiceAccount.
fn is_token(volume: &Volume) -> bool {
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let (mut has_token, mut is_clean) = (false, true);
    for source in sources {
        has_token |= source.service_account_token.is_some();
        is_clean &= source.secret.is_none()
            && source.cluster_trust_bundle.is_none()
            && source.config_map.as_ref().is_none_or(|map| CLUSTER_ROOTS.contains(&&*map.name));
    }
    has_token && is_clean
}

/// The digest of a value as its author wrote it.
fn of(value: &impl Serialize) -> Digest {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    without_defaults(&mut value);
    let mut short = Digest::default();
    short.copy_from_slice(&digest(&SHA256, value.to_string().as_bytes()).as_ref()[..16]);
    short
}

/// Takes out what the API server adds: the same was asked for with and without it.
fn without_defaults(value: &mut Value) {
    match value {
        Value::Object(members) => members.retain(|field, member| {
            without_defaults(member);
            let is_empty = member.as_array().is_some_and(Vec::is_empty) || *member == "" || *member == false;
            !member.is_null() && !is_empty && !matches!(&**field, "apiVersion" | "defaultMode" | "divisor")
        }),
        Value::Array(items) => items.iter_mut().for_each(without_defaults),
        _ => {}
    }
}
