//! The user's template over the pods of a proxy.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use mcp_plan::workload::proxy_template::{kept, merge, problems};
use serde_json::{Value, json};

fn generated() -> PodTemplateSpec {
    let probe = json!({"httpGet": {"path": "/health", "port": "http"}});
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
                "livenessProbe": probe, "readinessProbe": probe, "startupProbe": probe,
            }],
            "volumes": [{"name": "runconfig", "configMap": {"name": "web-runconfig"}}],
        },
    }))
    .unwrap()
}

fn merged(user: Value) -> Value {
    let mut template = generated();
    merge(&mut template, &serde_json::from_value(user).unwrap());
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
        merge(&mut template, &serde_json::from_value(user).unwrap());
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

/// The path of the innermost field of a probe, whose fields have one each, as far as it is the probe's own.
fn without_effect(probe: &Value) -> String {
    match probe.as_object().and_then(|fields| fields.iter().next()) {
        Some((field, member)) if field == "httpGet" => format!(".{field}{}", without_effect(member)),
        Some((field, _)) => format!(".{field}"),
        None => String::new(),
    }
}

/// Splits a template into the fields with an effect on a proxy and those without.
#[test]
fn a_field_outside_of_the_table_has_no_effect_and_is_named() {
    let without = [
        json!({"metadata": {"name": "n"}}),
        json!({"metadata": {"finalizers": ["f.example/f"]}}),
        json!({"spec": {"hostAliases": [{"ip": "192.0.2.1", "hostnames": ["idp.example.com"]}]}}),
        json!({"spec": {"hostNetwork": true}}),
        json!({"spec": {"hostIPC": true}}),
        json!({"spec": {"hostPID": true}}),
        json!({"spec": {"shareProcessNamespace": true}}),
        json!({"spec": {"dnsPolicy": "None"}}),
        json!({"spec": {"dnsConfig": {"nameservers": ["192.0.2.1"]}}}),
        json!({"spec": {"enableServiceLinks": true}}),
        json!({"spec": {"restartPolicy": "Never"}}),
        json!({"spec": {"activeDeadlineSeconds": 1}}),
        json!({"spec": {"nodeName": "a"}}),
        json!({"spec": {"hostname": "a"}}),
        json!({"spec": {"ephemeralContainers": [{"name": "debug", "targetContainerName": "toolhive"}]}}),
        json!({"spec": {"serviceAccount": "other"}}),
        json!({"toolhive": {"image": "no"}}),
        json!({"toolhive": {"command": ["sh"]}}),
        json!({"toolhive": {"args": ["run"]}}),
        json!({"toolhive": {"workingDir": "/srv"}}),
        json!({"toolhive": {"envFrom": [{"secretRef": {"name": "s"}}]}}),
        json!({"toolhive": {"lifecycle": {"postStart": {"exec": {"command": ["/own/sh"]}}}}}),
        json!({"toolhive": {"ports": [{"containerPort": 9}]}}),
        json!({"toolhive": {"stdin": true}}),
        json!({"toolhive": {"terminationMessagePath": "/mcp-runner"}}),
        json!({"toolhive": {"volumeDevices": [{"name": "disk", "devicePath": "/mcp-runner"}]}}),
        json!({"toolhive": {"restartPolicy": "Always"}}),
        json!({"toolhive": {"livenessProbe": {"exec": {"command": ["/own/sh"]}}}}),
        json!({"toolhive": {"readinessProbe": {"tcpSocket": {"port": 9}}}}),
        json!({"toolhive": {"startupProbe": {"grpc": {"port": 9}}}}),
        json!({"toolhive": {"livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": "http"}}}}),
    ];
    let with = [
        json!({"metadata": {"labels": {"team": "a"}}}),
        json!({"metadata": {"annotations": {"team": "a"}}}),
        json!({"spec": {"affinity": {"nodeAffinity": {}}}}),
        json!({"spec": {"automountServiceAccountToken": true}}),
        json!({"spec": {"initContainers": [{"name": "i", "image": "i:1", "command": ["sh"]}]}}),
        json!({"spec": {"imagePullSecrets": [{"name": "s"}]}}),
        json!({"spec": {"nodeSelector": {"disk": "ssd"}}}),
        json!({"spec": {"priorityClassName": "high"}}),
        json!({"spec": {"runtimeClassName": "gvisor"}}),
        json!({"spec": {"schedulerName": "own"}}),
        json!({"spec": {"securityContext": {"fsGroup": 7}}}),
        json!({"spec": {"serviceAccountName": "cloud"}}),
        json!({"spec": {"terminationGracePeriodSeconds": 7}}),
        json!({"spec": {"tolerations": [{"key": "mcp"}]}}),
        json!({"spec": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}}),
        json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
        json!({"toolhive": {"env": [{"name": "RUST_LOG", "value": "debug"}]}}),
        json!({"toolhive": {"imagePullPolicy": "Always"}}),
        json!({"toolhive": {"livenessProbe": {"periodSeconds": 7}}}),
        json!({"toolhive": {"readinessProbe": {"periodSeconds": 7}}}),
        json!({"toolhive": {"startupProbe": {"periodSeconds": 7}}}),
        json!({"toolhive": {"livenessProbe": {"httpGet": {"path": "/own", "port": "http"}}}}),
        json!({"toolhive": {"resources": {"limits": {"cpu": "1"}}}}),
        json!({"toolhive": {"securityContext": {"runAsUser": 7}}}),
        json!({"toolhive": {"volumeMounts": [{"name": "v", "mountPath": "/var/cache/own"}]}}),
        json!({"sidecar": {"image": "s:1", "command": ["sh"], "lifecycle": {}, "ports": [{"containerPort": 9}]}}),
    ];
    let own = serde_json::to_value(generated()).unwrap();
    for (template, has_effect) in without.map(|it| (it, false)).into_iter().chain(with.map(|it| (it, true))) {
        let mut user = json!({"spec": {"containers": []}});
        let (part, fields) = template.as_object().unwrap().iter().next().unwrap();
        let path = match &**part {
            "metadata" | "spec" => {
                for (field, value) in fields.as_object().unwrap() {
                    user[part][field] = value.clone();
                }
                part.clone()
            }
            name => {
                let mut container = fields.clone();
                container["name"] = json!(name);
                user["spec"]["containers"] = json!([container]);
                "spec.containers[0]".to_owned()
            }
        };
        let field = fields.as_object().unwrap().keys().next().unwrap();
        let below = if field.ends_with("Probe") { without_effect(&fields[field]) } else { String::new() };
        let named = if has_effect { vec![] } else { vec![format!("spec.podTemplateSpec.{path}.{field}{below}")] };
        assert_eq!(kept(&serde_json::from_value(user.clone()).unwrap()), named, "{template}");
        assert_eq!(merged(user) != own, has_effect, "{template}");
    }
}

#[test]
fn a_template_that_reaches_into_the_proxys_process_is_refused() {
    let mount = |name: &str, path: &str| {
        let mount = json!({"name": "v", "mountPath": path});
        json!({"spec": {"containers": [{"name": name, "volumeMounts": [{"name": "w", "mountPath": "/fine"}, mount]}]}})
    };
    let over = "spec.containers[0].volumeMounts[1].mountPath";
    let refused = [
        "/",
        "/mcp-runner",
        "//mcp-runner/",
        "/etc",
        "/etc/ssl",
        "/etc/ssl/certs",
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki",
        "/etc/toolhive",
        "/etc/toolhive/webhooks/own",
        "/etc/runconfig",
        "/config",
        "/config/certs/own",
        "/a/../etc",
    ];
    for path in refused {
        let found = problems(&serde_json::from_value(mount("toolhive", path)).unwrap());
        let fields: Vec<_> = found.iter().map(|problem| problem.field.clone()).collect();
        assert_eq!(fields, [format!("spec.podTemplateSpec.{over}")], "{path}");
        assert_eq!(
            problems(&serde_json::from_value(mount("sidecar", path)).unwrap()),
            [],
            "{path}: a sidecar's files are its own"
        );
        let kept = merged(mount("toolhive", path));
        let mounts = kept["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
        assert_eq!(mounts.len(), 2, "{path} is not mounted, asked or not: {mounts:?}");
    }
    for path in ["/etc/mine", "/etc/ssl2", "/mcp-runner2", "/tmp", "/vault/secrets", "/var/run/secrets/cloud", "/data"]
    {
        assert_eq!(problems(&serde_json::from_value(mount("toolhive", path)).unwrap()), [], "{path}");
    }
    for field in ["hostPID", "shareProcessNamespace"] {
        for (value, count) in [(true, 1), (false, 0)] {
            let user = serde_json::from_value(json!({"spec": {"containers": [], field: value}})).unwrap();
            let found: Vec<_> = problems(&user).iter().map(|problem| problem.field.clone()).collect();
            assert_eq!(found, vec![format!("spec.podTemplateSpec.spec.{field}"); count], "{field}: {value}");
        }
    }
}
