//! The part of a proxy's pod that its gate rests on: which program runs, on what, and who else reaches it.

use std::{borrow::Cow, collections::BTreeMap};

use aws_lc_rs::digest::{SHA256, digest};
use k8s_openapi::api::core::v1::{EnvVar, PodSpec, Volume, VolumeProjection};
use mcp_runconfig::{
    environment::{KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT, is_operators},
    paths::{hides_account, hides_proxy, is_of_account},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::image;

/// Name of the proxy's container.
pub const CONTAINER: &str = "toolhive";

/// The fields of the proxy's container that are the operator's alone, beside variables and mounts.
pub const OWN_FIELDS: [&str; 9] = [
    "command",
    "args",
    "workingDir",
    "envFrom",
    "lifecycle",
    "stdin",
    "tty",
    "terminationMessagePath",
    "volumeDevices",
];

/// The fields of its pod that are the operator's alone: they let other processes reach into the proxy's, or tell it where
/// names lead.
pub const POD_FIELDS: [&str; 9] = [
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "hostAliases",
    "dnsConfig",
    "dnsPolicy",
    "hostname",
    "subdomain",
    "setHostnameAsFQDN",
];

/// Longest part of an image's name that a message shows, in characters.
const SHOWN: usize = 200;

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
            let is_whole = mount.sub_path.is_none() && mount.sub_path_expr.is_none();
            let is_account = is_whole && is_of_account(&mount.mount_path) && volume.is_some_and(is_account);
            let matters = hides_proxy(&mount.mount_path) || hides_account(&mount.mount_path);
            (matters && !is_account).then(|| of(&(mount, volume)))
        });
        let mut mounts: Vec<_> = mounts.collect();
        mounts.sort_unstable();
        // A debugger that names the proxy's container is in its process namespace.
        let mut debuggers = pod.ephemeral_containers.iter().flatten();
        let is_debugged = debuggers.any(|it| it.target_container_name.as_deref() == Some(CONTAINER));
        let [command, args, working_dir, env_from, lifecycle, stdin, tty, message_path, devices] = OWN_FIELDS;
        let [host_pid, host_ipc, shared, aliases, dns_config, dns_policy, hostname, subdomain, fqdn] = POD_FIELDS;
        // Service meshes ask other ports than ours, and that runs no program.
        let probes = [&container.startup_probe, &container.liveness_probe, &container.readiness_probe];
        let commands = probes.map(|probe| probe.as_ref().and_then(|probe| probe.exec.as_ref()));
        let fields = [
            (command, of(&container.command)),
            (args, of(&container.args)),
            (working_dir, of(&container.working_dir)),
            (env_from, of(&container.env_from)),
            (lifecycle, of(&container.lifecycle)),
            (stdin, of(&container.stdin)),
            (tty, of(&container.tty)),
            (message_path, of(&container.termination_message_path)),
            (devices, of(&container.volume_devices)),
            ("probes", of(&commands)),
            ("env", of(&own)),
            ("volumeMounts", of(&mounts)),
            (host_pid, of(&pod.host_pid)),
            (host_ipc, of(&pod.host_ipc)),
            (shared, of(&pod.share_process_namespace)),
            (aliases, of(&pod.host_aliases)),
            (dns_config, of(&pod.dns_config)),
            (dns_policy, of(&pod.dns_policy)),
            (hostname, of(&pod.hostname)),
            (subdomain, of(&pod.subdomain)),
            (fqdn, of(&pod.set_hostname_as_fqdn)),
            ("ephemeralContainers", of(&is_debugged)),
        ];
        let mut variables: Vec<_> = others.iter().map(of).collect();
        variables.sort_unstable();
        Some(Self { image: container.image.as_deref()?.into(), fields: fields.into(), variables: variables.into() })
    }

    /// The field in which `found`, a pod's, is not what was asked for; none where it is. An image may come from `mirrors`.
    pub fn first_difference(&self, found: &Self, mirrors: &[String]) -> Option<Cow<'static, str>> {
        if !image::is_same(&self.image, &found.image, mirrors) {
            let image: String = found.image.chars().take(SHOWN).collect();
            return Some(format!("image {image:?}").into());
        }
        let fields = self.fields.iter().zip(&found.fields).find(|(asked, found)| asked != found);
        let has = |variable| found.variables.binary_search(variable).is_ok();
        let field = fields.map(|((field, _), _)| *field);
        field.or_else(|| (!self.variables.iter().all(has)).then_some("env")).map(Cow::from)
    }
}

/// Whether this is the volume that the cluster mounts for a pod's ServiceAccount, file by file.
fn is_account(volume: &Volume) -> bool {
    let Some(projected) = &volume.projected else { return false };
    let mut sources = projected.sources.iter().flatten().peekable();
    sources.peek().is_some() && sources.all(is_of_cluster)
}

/// Whether the cluster projects this, under the name that it has. Any other ConfigMap, name or field of the pod may be somebody's
/// `ca.crt`.
fn is_of_cluster(source: &VolumeProjection) -> bool {
    let key =
        |config_map: &str, key: &str| json!({"configMap": {"name": config_map, "items": [{"key": key, "path": key}]}});
    let namespace = json!([{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]);
    let known = [
        json!({"serviceAccountToken": {"path": "token"}}),
        key("kube-root-ca.crt", "ca.crt"),
        key("openshift-service-ca.crt", "service-ca.crt"),
        json!({"downwardAPI": {"items": namespace}}),
    ];
    let mut source = serde_json::to_value(source).unwrap_or_default();
    without_defaults(&mut source);
    if let Some(token) = source.get_mut("serviceAccountToken").and_then(Value::as_object_mut) {
        token.remove("expirationSeconds");
    }
    known.contains(&source)
}

/// The digest of a value as its author wrote it.
fn of(value: &impl Serialize) -> Digest {
    let mut value =
        Value::Object([(String::new(), serde_json::to_value(value).unwrap_or_default())].into_iter().collect());
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
