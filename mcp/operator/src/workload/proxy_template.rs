//! The user's `podTemplateSpec` over the pod of a proxy: as over any pod ([`pod_template`]), except for what the gate rests
//! on. The process, its environment, its files and the annotations that tell of guards stay the operator's.

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec, VolumeMount};
use mcp_api::names::annotation;

use super::pod_template;

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

/// The fields of a template that [`merge`] leaves without effect because the operator sets them.
pub fn kept(user: &PodTemplateSpec) -> Vec<String> {
    let containers = user.spec.iter().flat_map(|spec| spec.containers.iter().enumerate());
    let own = containers.filter(|(_, container)| container.name == CONTAINER);
    let fields = own.flat_map(|(at, container)| {
        let fields = [
            ("image", container.image.is_some()),
            ("command", container.command.is_some()),
            ("args", container.args.is_some()),
        ];
        let set = fields.into_iter().filter(|(_, set)| *set);
        set.map(move |(field, _)| format!("{}.spec.containers[{at}].{field}", pod_template::FIELD))
    });
    fields.collect()
}

fn keep(own: PodSpec, merged: &mut PodSpec) {
    for volume in own.volumes.into_iter().flatten() {
        put(merged.volumes.get_or_insert_default(), volume, |it| it.name.clone());
    }
    for container in own.containers {
        if let Some(merged) = merged.containers.iter_mut().find(|merged| merged.name == container.name) {
            keep_container(container, merged);
        }
    }
}

fn keep_container(own: Container, merged: &mut Container) {
    (merged.image, merged.command, merged.args) = (own.image, own.command, own.args);
    merged.working_dir = own.working_dir;
    for variable in own.env.into_iter().flatten() {
        put(merged.env.get_or_insert_default(), variable, |it: &EnvVar| it.name.clone());
    }
    for port in own.ports.into_iter().flatten() {
        put(merged.ports.get_or_insert_default(), port, |it| it.container_port);
    }
    let mounts = merged.volume_mounts.get_or_insert_default();
    let files = own.volume_mounts.unwrap_or_default();
    // What is mounted at or below a directory of ours hides its files.
    mounts.retain(|mount| !files.iter().any(|own| components(mount).starts_with(&components(own))));
    mounts.splice(0..0, files);
}

/// Replaces the entry with the same key, or adds this one.
fn put<T, K: PartialEq>(list: &mut Vec<T>, item: T, key: impl Fn(&T) -> K) {
    match list.iter_mut().find(|listed| key(listed) == key(&item)) {
        Some(listed) => *listed = item,
        None => list.push(item),
    }
}

/// The directories of a mount's path, however it is spelled.
fn components(mount: &VolumeMount) -> Vec<&str> {
    let mut path = Vec::new();
    for part in mount.mount_path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = path.pop(),
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn generated() -> PodTemplateSpec {
        serde_json::from_value(json!({
            "metadata": {
                "labels": {"app": "own"},
                "annotations": {"toolhive.stacklok.dev/runconfig-checksum": "sum", "own": "yes"},
            },
            "spec": {
                "serviceAccountName": "runner",
                "containers": [{
                    "name": "toolhive", "image": "runner:1", "args": ["run"],
                    "env": [{"name": "TOOLHIVE_RUNCONFIG_CHECKSUM", "value": "sum"}, {"name": "HOME", "value": "/tmp"}],
                    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                    "volumeMounts": [{"name": "runconfig", "mountPath": "/etc/runconfig", "readOnly": true}],
                }],
                "volumes": [{"name": "runconfig", "configMap": {"name": "web-runconfig"}}],
            },
        }))
        .unwrap()
    }

    fn merged(user: Value) -> Value {
        let mut template = generated();
        merge(&mut template, serde_json::from_value(user).unwrap());
        serde_json::to_value(template).unwrap()
    }

    #[test]
    fn a_template_adds_to_the_pod_and_to_the_proxys_container() {
        let merged = merged(json!({
            "metadata": {"labels": {"team": "a"}, "annotations": {"vault.hashicorp.com/agent-inject": "true"}},
            "spec": {
                "priorityClassName": "high", "serviceAccountName": "cloud",
                "containers": [
                    {"name": "toolhive", "resources": {"limits": {"memory": "1Gi"}},
                     "env": [{"name": "RUST_LOG", "value": "debug"}],
                     "volumeMounts": [{"name": "tmp", "mountPath": "/scratch"}]},
                    {"name": "sidecar", "image": "sidecar:1"},
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            },
        }));
        let (metadata, pod) = (&merged["metadata"], &merged["spec"]);
        assert_eq!(metadata["labels"], json!({"app": "own", "team": "a"}));
        assert_eq!(metadata["annotations"]["vault.hashicorp.com/agent-inject"], "true");
        assert_eq!(metadata["annotations"]["toolhive.stacklok.dev/runconfig-checksum"], "sum");
        assert_eq!((&pod["priorityClassName"], &pod["serviceAccountName"]), (&json!("high"), &json!("cloud")));
        let [proxy, sidecar] = [0, 1].map(|at| &pod["containers"][at]);
        assert_eq!((&proxy["image"], &proxy["resources"]["limits"]["memory"]), (&json!("runner:1"), &json!("1Gi")));
        assert_eq!(proxy["env"].as_array().unwrap().len(), 3);
        assert_eq!(sidecar["image"], "sidecar:1");
        let paths: Vec<_> = proxy["volumeMounts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mount| mount["mountPath"].as_str().unwrap())
            .collect();
        assert_eq!(paths, ["/etc/runconfig", "/scratch"]);
        assert_eq!(pod["volumes"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_the_gate_rests_on_stays_as_it_was_made() {
        let own = serde_json::to_value(generated()).unwrap();
        let container = |change: Value| {
            let mut container = json!({"name": "toolhive"});
            container.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            json!({"spec": {"containers": [container]}})
        };
        let mount = |path: &str| container(json!({"volumeMounts": [{"name": "runconfig", "mountPath": path}]}));
        let cases = [
            container(json!({"image": "evil:1"})),
            container(json!({"command": ["sh"], "args": ["-c", "true"], "workingDir": "/"})),
            container(json!({"env": [{"name": "TOOLHIVE_RUNCONFIG_CHECKSUM", "value": "other"}]})),
            container(json!({"env": [{"name": "HOME", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]})),
            container(json!({"ports": [{"name": "other", "containerPort": 8080, "protocol": "TCP"}]})),
            mount("/etc/runconfig"),
            mount("/etc/runconfig/"),
            mount("/etc/runconfig/runconfig.json"),
            mount("//etc/./x/../runconfig"),
            json!({"spec": {"containers": [], "volumes": [{"name": "runconfig", "hostPath": {"path": "/srv"}}]}}),
            json!({"spec": {"containers": []}, "metadata": {"annotations": {
                "toolhive.stacklok.dev/runconfig-checksum": "forged", "own": "no",
                "toolhive.stacklok.dev/guards": "forged", "toolhive.stacklok.dev/webhook-config": "forged",
            }}}),
        ];
        for user in cases {
            assert_eq!(merged(user.clone()), own, "{user}");
        }
    }

    #[test]
    fn fields_that_stay_the_operators_are_named() {
        let user = json!({"spec": {"containers": [
            {"name": "sidecar", "image": "fine"},
            {"name": "toolhive", "image": "no", "args": [], "resources": {}},
        ]}});
        let named = kept(&serde_json::from_value(user).unwrap());
        assert_eq!(
            named,
            ["spec.podTemplateSpec.spec.containers[1].image", "spec.podTemplateSpec.spec.containers[1].args"]
        );
    }
}
