//! The part of a proxy's pod that its gate rests on.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::PodSpec;
use mcp_plan::guards::ProxyContainer;
use serde_json::{Value, json};

/// As the operator makes it.
fn asked() -> Value {
    json!({
        "containers": [{
            "name": "toolhive", "image": "ghcr.io/team/mcp-runner:1.0", "command": ["/mcp-runner"], "args": ["run", "x:1"],
            "terminationMessagePath": "/dev/termination-log",
            "env": [
                {"name": "RUST_LOG", "value": "info"},
                {"name": "EMPTY"},
                {"name": "TOOLHIVE_RUNCONFIG_CHECKSUM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['sum']"}}},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ],
            "volumeMounts": [{"name": "runconfig", "mountPath": "/etc/runconfig", "readOnly": true}],
        }],
        "dnsPolicy": "ClusterFirst",
        "volumes": [{"name": "runconfig", "configMap": {"name": "web-runconfig"}}],
    })
}

fn container(pod: &Value) -> ProxyContainer {
    let pod: PodSpec = serde_json::from_value(pod.clone()).unwrap();
    ProxyContainer::of(&pod).unwrap()
}

/// The field in which a pod after the change is not what was asked for.
fn difference(change: impl FnOnce(&mut Value)) -> Option<Cow<'static, str>> {
    let mut pod = asked();
    change(&mut pod);
    let mirrors = ["mirror.local".to_owned()];
    container(&asked()).first_difference(&container(&pod), &mirrors)
}

fn add(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    }
}

#[test]
fn a_pod_as_clusters_complete_it_is_the_one_that_was_asked_for() {
    let completed = difference(|pod| {
        *pod = json!({
            "containers": [
                {"name": "istio-proxy", "image": "istio:1", "args": ["proxy"]},
                {
                    "name": "toolhive", "image": "mirror.local/ghcr.io/team/mcp-runner:1.0", "imagePullPolicy": "IfNotPresent",
                    "command": ["/mcp-runner"], "args": ["run", "x:1"],
                    "env": [
                        {"name": "AWS_ROLE_ARN", "value": "arn"},
                        {"name": "RUST_LOG", "value": "info"},
                        {"name": "EMPTY", "value": ""},
                        {"name": "TOOLHIVE_RUNCONFIG_CHECKSUM", "valueFrom": {"fieldRef": {
                            "apiVersion": "v1", "fieldPath": "metadata.annotations['sum']"}}},
                        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                        {"name": "SSL_CERT_FILE", "value": "/unread"},
                    ],
                    "volumeMounts": [
                        {"name": "vault", "mountPath": "/vault/secrets"},
                        {"name": "runconfig", "mountPath": "/etc/runconfig", "readOnly": true},
                        {"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
                        {"name": "aws", "mountPath": "/var/run/secrets/eks.amazonaws.com/serviceaccount", "readOnly": true},
                    ],
                    "resources": {"limits": {"cpu": "1"}}, "terminationMessagePath": "/dev/termination-log",
                    "livenessProbe": {"httpGet": {"path": "/app-health/toolhive/livez", "port": 15020}},
                },
            ],
            "initContainers": [{"name": "vault", "image": "vault:1"}],
            "ephemeralContainers": [{"name": "debugger", "image": "busybox:1"}, {"name": "other", "targetContainerName": "vault"}],
            "shareProcessNamespace": false, "hostIPC": false, "hostAliases": [], "dnsPolicy": "ClusterFirst",
            "volumes": [
                {"name": "runconfig", "configMap": {"name": "web-runconfig", "defaultMode": 420}},
                {"name": "vault", "emptyDir": {"medium": "Memory"}},
                {"name": "aws", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "sts"}}]}},
                {"name": "kube-api-access-x", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"configMap": {"name": "openshift-service-ca.crt", "items": [{"key": "service-ca.crt", "path": "service-ca.crt"}]}},
                    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
                ]}},
            ],
        });
    });
    assert_eq!(completed, None);
}

#[test]
fn a_pod_with_another_program_or_other_files_is_another_one() {
    type Change = fn(&mut Value, &mut Value);
    let cases: Vec<(&str, &str, Change)> = vec![
        ("image \"ghcr.io/team/mcp-runner:evil\"", "another image", |own, _| {
            own["image"] = json!("ghcr.io/team/mcp-runner:evil");
        }),
        ("image \"evil.example/team/mcp-runner:1.0\"", "another registry", |own, _| {
            own["image"] = json!("evil.example/team/mcp-runner:1.0");
        }),
        ("image \"\"", "no image", |own, _| own["image"] = json!("")),
        ("command", "another program", |own, _| own["command"] = json!(["/own/proxy"])),
        ("command", "the image's program", |own, _| own["command"] = Value::Null),
        ("args", "another option", |own, _| own["args"] = json!(["run", "--backend=http://evil"])),
        ("workingDir", "another directory", |own, _| own["workingDir"] = json!("/own")),
        ("envFrom", "variables of a ConfigMap", |own, _| own["envFrom"] = json!([{"configMapRef": {"name": "c"}}])),
        ("lifecycle", "a hook", |own, _| own["lifecycle"] = json!({"postStart": {"exec": {"command": ["/own/x"]}}})),
        ("env", "another value", |own, _| own["env"][0]["value"] = json!("trace")),
        ("env", "a value in place of a Secret's", |own, _| own["env"][3] = json!({"name": "TOKEN", "value": "own"})),
        ("env", "the checksum", |own, _| {
            own["env"][2] = json!({"name": "TOOLHIVE_RUNCONFIG_CHECKSUM", "value": "own"});
        }),
        ("env", "a second value, which counts", |own, _| {
            add(&mut own["env"], json!({"name": "RUST_LOG", "value": "own"}));
        }),
        ("env", "a variable less", |own, _| own["env"] = json!([own["env"][0], own["env"][2], own["env"][3]])),
        ("env", "a secret of ours", |own, _| {
            add(&mut own["env"], json!({"name": "TOOLHIVE_OIDC_CLIENT_SECRET", "value": "own"}));
        }),
        ("env", "another API", |own, _| {
            add(&mut own["env"], json!({"name": "KUBERNETES_SERVICE_HOST", "value": "192.0.2.1"}));
        }),
        ("volumeMounts", "no RunConfig", |own, _| own["volumeMounts"] = json!([])),
        ("volumeMounts", "another volume there", |own, _| own["volumeMounts"][0]["name"] = json!("own")),
        ("volumeMounts", "a part of it", |own, _| own["volumeMounts"][0]["subPath"] = json!("own")),
        ("volumeMounts", "over the program", |own, _| {
            add(&mut own["volumeMounts"], json!({"name": "own", "mountPath": "/mcp-runner"}));
        }),
        ("volumeMounts", "over everything", |own, _| {
            add(&mut own["volumeMounts"], json!({"name": "own", "mountPath": "/"}));
        }),
        ("volumeMounts", "over the root certificates", |own, _| {
            add(
                &mut own["volumeMounts"],
                json!({"name": "own", "mountPath": "/etc/ssl/certs/ca-certificates.crt", "subPath": "c"}),
            );
        }),
        ("volumeMounts", "below our directory", |own, _| {
            add(
                &mut own["volumeMounts"],
                json!({"name": "own", "mountPath": "/etc/runconfig/runconfig.json", "subPath": "c"}),
            );
        }),
        ("volumeMounts", "over the account", |own, _| {
            add(&mut own["volumeMounts"], json!({"name": "own", "mountPath": mcp_runconfig::paths::ACCOUNT}));
        }),
        ("volumeMounts", "above the account", |own, _| {
            add(&mut own["volumeMounts"], json!({"name": "own", "mountPath": "/run/secrets"}));
        }),
        ("volumeMounts", "another ConfigMap", |_, pod| pod["volumes"][0]["configMap"]["name"] = json!("own")),
        ("volumeMounts", "another key of it", |_, pod| {
            pod["volumes"][0]["configMap"]["items"] = json!([{"key": "own", "path": "runconfig.json"}]);
        }),
        ("stdin", "an open input", |own, _| own["stdin"] = json!(true)),
        ("tty", "a terminal", |own, _| own["tty"] = json!(true)),
        ("terminationMessagePath", "a file over the program", |own, _| {
            own["terminationMessagePath"] = json!("/mcp-runner");
        }),
        ("volumeDevices", "a device over the root certificates", |own, _| {
            own["volumeDevices"] = json!([{"name": "own", "devicePath": "/etc/ssl/certs/ca-certificates.crt"}]);
        }),
        ("probes", "a program of somebody else beside the proxy", |own, _| {
            own["livenessProbe"] = json!({"exec": {"command": ["/own/x"]}});
        }),
        ("hostname", "a name that leads to the pod", |_, pod| pod["hostname"] = json!("idp")),
        ("subdomain", "the rest of such a name", |_, pod| pod["subdomain"] = json!("example")),
        ("setHostnameAsFQDN", "such a name in whole", |_, pod| pod["setHostnameAsFQDN"] = json!(true)),
        ("hostIPC", "memory of the node", |_, pod| pod["hostIPC"] = json!(true)),
        ("hostAliases", "an address of a name", |_, pod| {
            pod["hostAliases"] = json!([{"ip": "192.0.2.1", "hostnames": ["idp.example.com"]}]);
        }),
        ("dnsConfig", "another search domain", |_, pod| pod["dnsConfig"] = json!({"searches": ["evil.example"]})),
        ("dnsPolicy", "names of the node", |_, pod| pod["dnsPolicy"] = json!("Default")),
        ("ephemeralContainers", "a debugger of the proxy", |_, pod| {
            pod["ephemeralContainers"] = json!([{"name": "a"}, {"name": "b", "targetContainerName": "toolhive"}]);
        }),
        ("hostPID", "processes of the node", |_, pod| pod["hostPID"] = json!(true)),
        ("shareProcessNamespace", "processes of the pod", |_, pod| pod["shareProcessNamespace"] = json!(true)),
    ];
    for (field, case, change) in cases {
        let found = difference(|pod| {
            add(&mut pod["volumes"], json!({"name": "own", "emptyDir": {}}));
            let mut own = pod["containers"][0].clone();
            change(&mut own, pod);
            pod["containers"][0] = own;
        });
        assert_eq!(found.as_deref(), Some(field), "{case}");
    }
    let nameless: PodSpec = serde_json::from_value(json!({"containers": [{"name": "other", "image": "i"}]})).unwrap();
    assert_eq!(ProxyContainer::of(&nameless), None);
}

/// The token of a pod's ServiceAccount and the CA beside it count as the cluster's where each file is one of the cluster's.
#[test]
fn a_volume_at_the_account_with_a_forged_file_is_another_one() {
    let token = json!({"serviceAccountToken": {"path": "token"}});
    let roots = |config_map: &str, key: &str, path: &str| json!({"configMap": {"name": config_map, "items": [{"key": key, "path": path}]}});
    let own = roots("kube-root-ca.crt", "ca.crt", "ca.crt");
    let annotation = json!({"path": "ca.crt", "fieldRef": {"fieldPath": "metadata.annotations['own']"}});
    let account = json!({"name": "own", "mountPath": mcp_runconfig::paths::ACCOUNT});
    let part = json!({"name": "own", "mountPath": mcp_runconfig::paths::ACCOUNT, "subPath": "x"});
    let cases = [
        ("the cluster's", vec![token.clone(), own.clone()], &account, None),
        ("another ConfigMap", vec![token.clone(), roots("own", "c", "ca.crt")], &account, Some("volumeMounts")),
        (
            "a ConfigMap that only some clusters make",
            vec![token.clone(), roots("openshift-service-ca.crt", "own", "ca.crt")],
            &account,
            Some("volumeMounts"),
        ),
        (
            "another key",
            vec![token.clone(), roots("kube-root-ca.crt", "own", "ca.crt")],
            &account,
            Some("volumeMounts"),
        ),
        (
            "every key",
            vec![token.clone(), json!({"configMap": {"name": "kube-root-ca.crt"}})],
            &account,
            Some("volumeMounts"),
        ),
        (
            "an annotation",
            vec![token.clone(), json!({"downwardAPI": {"items": [annotation]}})],
            &account,
            Some("volumeMounts"),
        ),
        ("a Secret", vec![token.clone(), json!({"secret": {"name": "own"}})], &account, Some("volumeMounts")),
        (
            "the token of another audience",
            vec![json!({"serviceAccountToken": {"path": "token", "audience": "own"}}), own.clone()],
            &account,
            Some("volumeMounts"),
        ),
        ("a part of it", vec![token, own], &part, Some("volumeMounts")),
    ];
    for (case, sources, mount, expected) in cases {
        let found = difference(|pod| {
            add(&mut pod["volumes"], json!({"name": "own", "projected": {"sources": sources}}));
            add(&mut pod["containers"][0]["volumeMounts"], mount.clone());
        });
        assert_eq!(found.as_deref(), expected, "{case}");
    }
}
