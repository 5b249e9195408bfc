//! The user's template over the pods of a proxy.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use mcp_plan::workload::proxy_template::{kept, merge};
use serde_json::{Value, json};

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
    let paths: Vec<_> =
        proxy["volumeMounts"].as_array().unwrap().iter().map(|mount| mount["mountPath"].as_str().unwrap()).collect();
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
        container(json!({"envFrom": [{"configMapRef": {"name": "mine"}}]})),
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

/// A guard that reads the token of the pod's ServiceAccount would keep the proxy from starting, or trust another cluster.
#[test]
fn where_a_guard_needs_the_account_a_template_neither_withholds_nor_replaces_it() {
    const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let merged = |automount: Option<bool>, user: Value| {
        let mut template = generated();
        template.spec.as_mut().unwrap().automount_service_account_token = automount;
        merge(&mut template, serde_json::from_value(user).unwrap());
        serde_json::to_value(template).unwrap()["spec"].clone()
    };
    let user = |automount: bool, path: &str| {
        let mount = json!({"name": "mine", "mountPath": path});
        json!({"spec": {"automountServiceAccountToken": automount, "containers": [
            {"name": "toolhive", "volumeMounts": [mount]}, {"name": "sidecar", "image": "s:1", "volumeMounts": [mount]},
        ]}})
    };
    let mounts = |pod: &Value, at: usize| pod["containers"][at]["volumeMounts"].as_array().unwrap().len();
    let paths = [
        ACCOUNT.to_owned(),
        format!("{ACCOUNT}/"),
        format!("{ACCOUNT}/token"),
        ACCOUNT.replace("/var/run", "/run"),
        ACCOUNT.replace("/var/run", "/var/lib/../run/."),
    ];
    for path in paths {
        let pod = merged(Some(true), user(false, &path));
        assert_eq!((&pod["automountServiceAccountToken"], mounts(&pod, 0)), (&json!(true), 1), "{path}");
        assert_eq!(mounts(&pod, 1), 1, "{path}: what a sidecar reads is its author's");
        // Where no guard needs it, the pod's account is its author's too.
        for (own, wanted) in [(Some(false), true), (None, false)] {
            let pod = merged(own, user(wanted, &path));
            assert_eq!((&pod["automountServiceAccountToken"], mounts(&pod, 0)), (&json!(wanted), 2), "{path}");
        }
    }
    assert_eq!(mounts(&merged(Some(true), user(false, "/var/run/secrets/mine")), 0), 2);
}

#[test]
fn fields_that_stay_the_operators_are_named() {
    let user = json!({"spec": {"containers": [
        {"name": "sidecar", "image": "fine"},
        {"name": "toolhive", "image": "no", "args": [], "workingDir": "/srv", "resources": {}, "envFrom": []},
    ]}});
    let named = kept(&serde_json::from_value(user).unwrap());
    let fields = ["image", "args", "workingDir", "envFrom"];
    assert_eq!(named, fields.map(|field| format!("spec.podTemplateSpec.spec.containers[1].{field}")));
}
