use serde_json::{Value, json};

use super::{first_excess, first_missing};

/// Returns the fields that kube-apiserver 1.36 recorded for a server-side apply of `deployment()`.
fn recorded() -> Value {
    json!({
        "f:metadata": {
            "f:annotations": {"f:portcullis.dev/applied-digest": {}},
            "f:labels": {"f:app": {}},
            "f:ownerReferences": {"k:{\"uid\":\"u-1\"}": {}}
        },
        "f:spec": {
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {
                    "f:containers": {
                        "k:{\"name\":\"toolhive\"}": {
                            ".": {},
                            "f:args": {},
                            "f:env": {
                                "k:{\"name\":\"HOME\"}": {".": {}, "f:name": {}, "f:value": {}},
                                "k:{\"name\":\"KEY\"}": {".": {}, "f:name": {}, "f:valueFrom": {"f:secretKeyRef": {}}}
                            },
                            "f:image": {},
                            "f:name": {},
                            "f:ports": {
                                "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:name": {}}
                            },
                            "f:resources": {"f:limits": {"f:cpu": {}}},
                            "f:volumeMounts": {
                                "k:{\"mountPath\":\"/etc/runconfig\"}": {".": {}, "f:mountPath": {}, "f:name": {}}
                            }
                        }
                    },
                    "f:securityContext": {"f:runAsNonRoot": {}},
                    "f:volumes": {
                        "k:{\"name\":\"tmp\"}": {".": {}, "f:emptyDir": {}, "f:name": {}}
                    }
                }
            }
        }
    })
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "team",
            "annotations": {"portcullis.dev/applied-digest": "d"},
            "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "x/v1", "kind": "Y", "name": "z", "uid": "u-1", "controller": true}]
        },
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [{
                        "name": "toolhive", "image": "i", "args": ["run", "i"],
                        "env": [
                            {"name": "HOME", "value": "/tmp"},
                            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
                        ],
                        "ports": [{"name": "http", "containerPort": 8080}],
                        "resources": {"limits": {"cpu": "0.5"}},
                        "volumeMounts": [{"name": "runconfig", "mountPath": "/etc/runconfig"}]
                    }],
                    "securityContext": {"runAsNonRoot": true},
                    "volumes": [{"name": "tmp", "emptyDir": {}}]
                }
            }
        }
    })
}

/// `document` without the member at `pointer`.
fn without(mut document: Value, parent: &str, key: &str) -> Value {
    document.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
    document
}

#[test]
fn an_entry_holds_the_document_it_was_recorded_for() {
    assert_eq!(first_missing(&recorded(), &deployment()), None);
}

/// `held` without the node at `path`, and without the parents that it leaves empty: a set keeps no empty nodes.
fn take(held: &mut Value, path: &[&str]) {
    let members = held.as_object_mut().unwrap();
    let (first, rest) = path.split_first().unwrap();
    if !rest.is_empty() {
        take(members.get_mut(*first).unwrap(), rest);
    }
    if rest.is_empty() || members[*first].as_object().is_some_and(serde_json::Map::is_empty) {
        members.remove(*first).unwrap();
    }
}

#[test]
fn a_foreign_change_of_any_value_is_seen_by_the_path_it_took() {
    let pod = ["f:spec", "f:template", "f:spec"];
    let container = [&pod[..], &["f:containers", "k:{\"name\":\"toolhive\"}"]].concat();
    let cases: &[(&[&str], &[&str], &str)] = &[
        (&[], &["f:metadata", "f:labels", "f:app"], "metadata.labels"),
        (&[], &["f:metadata", "f:annotations"], "metadata.annotations"),
        (&[], &["f:metadata", "f:ownerReferences", "k:{\"uid\":\"u-1\"}"], "metadata.ownerReferences"),
        (&[], &["f:spec", "f:selector"], "spec.selector"),
        (&[], &["f:spec"], "spec"),
        (&container, &["f:image"], "spec.template.spec.containers[0].image"),
        (&container, &["f:args"], "spec.template.spec.containers[0].args"),
        (&container, &["f:env", "k:{\"name\":\"KEY\"}"], "spec.template.spec.containers[0].env[1]"),
        (&container, &["f:env", "k:{\"name\":\"HOME\"}", "f:value"], "spec.template.spec.containers[0].env[0].value"),
        (
            &container,
            &["f:env", "k:{\"name\":\"KEY\"}", "f:valueFrom", "f:secretKeyRef"],
            "spec.template.spec.containers[0].env[1].valueFrom",
        ),
        (&container, &["f:resources", "f:limits", "f:cpu"], "spec.template.spec.containers[0].resources"),
        (&pod, &["f:volumes", "k:{\"name\":\"tmp\"}", "f:emptyDir"], "spec.template.spec.volumes[0].emptyDir"),
        (&pod, &["f:securityContext", "f:runAsNonRoot"], "spec.template.spec.securityContext"),
        (&pod, &["f:containers"], "spec.template.spec.containers"),
    ];
    for (parent, path, missing) in cases {
        let mut held = recorded();
        take(&mut held, &[*parent, *path].concat());
        assert_eq!(first_missing(&held, &deployment()).as_deref(), Some(*missing), "{path:?} taken");
    }
}

#[test]
fn a_defaulted_list_key_is_found_under_the_completed_key() {
    let held = |ports: Value| json!({"f:spec": {"f:ports": ports}});
    let desired = json!({"spec": {"ports": [{"port": 80, "name": "http"}]}});
    let tcp = json!({".": {}, "f:port": {}, "f:name": {}});
    let cases = [
        (json!({"k:{\"port\":80,\"protocol\":\"TCP\"}": tcp}), None),
        // Ours is the TCP port; another manager's UDP port of the same number does not hide or replace it.
        (
            json!({"k:{\"port\":80,\"protocol\":\"TCP\"}": tcp, "k:{\"port\":80,\"protocol\":\"UDP\"}": {".": {}, "f:port": {}}}),
            None,
        ),
        (json!({"k:{\"port\":80,\"protocol\":\"UDP\"}": {".": {}, "f:port": {}}}), Some("spec.ports[0].name")),
        (json!({"k:{\"port\":81,\"protocol\":\"TCP\"}": tcp}), Some("spec.ports[0]")),
        (json!({"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}), Some("spec.ports[0].name")),
    ];
    for (ports, missing) in cases {
        assert_eq!(first_missing(&held(ports.clone()), &desired).as_deref(), missing, "{ports}");
    }
    // A stated key must agree.
    let stated = json!({"spec": {"ports": [{"port": 80, "protocol": "UDP"}]}});
    assert_eq!(
        first_missing(&held(json!({"k:{\"port\":80,\"protocol\":\"TCP\"}": tcp})), &stated).as_deref(),
        Some("spec.ports[0]")
    );
    // A key that shares no member with the element is not its key.
    let unrelated = json!({"spec": {"ports": [{"nodePort": 80}]}});
    assert!(first_missing(&held(json!({"k:{\"port\":80}": tcp})), &unrelated).is_some());
}

#[test]
fn sets_atomic_lists_and_empty_objects_are_held_as_recorded() {
    let cases = [
        (json!({"f:s": {"v:\"a\"": {}, "v:\"b\"": {}}}), json!({"s": ["a", "b"]}), None),
        (json!({"f:s": {"v:\"a\"": {}}}), json!({"s": ["a", "b"]}), Some("s[1]")),
        (json!({"f:s": {"v:1": {}}}), json!({"s": [1]}), None),
        (json!({"f:s": {"v:1": {}}}), json!({"s": ["1"]}), Some("s[0]")),
        (json!({"f:s": {"i:0": {}, "i:1": {}}}), json!({"s": ["a", "b"]}), None),
        (json!({"f:s": {"i:0": {}}}), json!({"s": ["a", "b"]}), Some("s[1]")),
        (json!({"f:s": {}}), json!({"s": ["a", {"b": 1}]}), None),
        (json!({"f:s": {}}), json!({"s": {"b": {"c": 1}}}), None),
        (json!({"f:s": {}}), json!({"s": {}}), None),
        (json!({}), json!({"s": {}}), Some("s")),
        (json!({}), json!({"s": []}), None),
        // A map whose members were all taken keeps only itself.
        (json!({"f:s": {".": {}}}), json!({"s": {"b": 1}}), Some("s.b")),
        (json!({"f:s": {".": {}, "f:b": {}}}), json!({"s": {"b": 1}}), None),
        // A key that is not what the format says never matches.
        (json!({"f:s": {"k:{oops": {}, "x": {}}}), json!({"s": [{"a": 1}]}), Some("s[0]")),
        (Value::Null, json!({"s": 1}), Some("s")),
    ];
    for (held, desired, missing) in cases {
        assert_eq!(first_missing(&held, &desired).as_deref(), missing, "{held} for {desired}");
    }
}

#[test]
fn addressing_members_are_not_expected_in_an_entry() {
    let desired = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}});
    assert_eq!(first_missing(&json!({}), &desired), None);
    let nested = json!({"spec": {"name": "a"}});
    assert_eq!(first_missing(&json!({"f:spec": {"f:x": {}}}), &nested).as_deref(), Some("spec.name"));
}

#[test]
fn what_we_hold_and_no_longer_state_is_excess() {
    let held = json!({"f:status": {
        "f:phase": {}, "f:hash": {},
        "f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:type": {}, "f:status": {}}},
        "f:names": {}
    }});
    let all = json!({"status": {
        "phase": "P", "hash": "h", "names": ["a"], "more": 1,
        "conditions": [{"type": "Ready", "status": "True", "reason": "R"}]
    }});
    assert_eq!(first_excess(&held, &all), None);
    assert_eq!(first_excess(&held, &without(all.clone(), "/status", "hash")).as_deref(), Some("status.hash"));
    assert_eq!(first_excess(&held, &without(all.clone(), "/status", "names")).as_deref(), Some("status.names"));
    let mut other = all;
    other["status"]["conditions"] = json!([{"type": "Valid", "status": "True"}]);
    assert_eq!(first_excess(&held, &other).as_deref(), Some("status.conditions[k:{\"type\":\"Ready\"}]"));
}

#[test]
fn excess_list_elements_are_found_by_key_value_or_index() {
    let port = |port: u16, protocol: &str| format!("k:{}", json!({"port": port, "protocol": protocol}));
    let (tcp, udp, other) = (port(80, "TCP"), port(80, "UDP"), port(81, "TCP"));
    let cases = [
        // The server fills in the key that an element leaves out.
        (json!({&tcp: {}}), json!([{"port": 80}]), None),
        (json!({&tcp: {}, &udp: {}}), json!([{"port": 80}]), None),
        (json!({&tcp: {}, &udp: {}}), json!([{"port": 80, "protocol": "TCP"}]), Some(&udp)),
        (json!({&tcp: {}, &other: {}}), json!([{"port": 80, "protocol": "TCP"}, {"port": 81}]), None),
        (json!({&tcp: {}}), json!([{"name": "x"}, {"port": 81}]), Some(&tcp)),
        (json!({"v:\"a\"": {}}), json!(["b", "a"]), None),
        (json!({"v:\"a\"": {}}), json!(["b"]), Some(&"v:\"a\"".to_owned())),
        (json!({"v:1": {}}), json!(["1"]), Some(&"v:1".to_owned())),
        (json!({"i:0": {}, "i:1": {}}), json!(["b"]), Some(&"i:1".to_owned())),
        (json!({"k:{oops": {}}), json!([{"a": 1}]), Some(&"k:{oops".to_owned())),
    ];
    for (held, desired, excess) in cases {
        let expected = excess.map(|key| format!("s[{key}]"));
        assert_eq!(first_excess(&json!({"f:s": held}), &json!({"s": desired})), expected, "{held} for {desired}");
    }
    // Deeper, in the element that the entry names.
    let held = json!({"f:s": {&tcp: {"f:port": {}, "f:gone": {}}}});
    let desired = json!({"s": [{"port": 81}, {"port": 80}]});
    assert_eq!(first_excess(&held, &desired).as_deref(), Some("s[1].gone"));
}

/// A server's author decides how long a list is: comparing each element with each would hold up every other server.
#[test]
fn a_list_of_thousands_is_compared_in_the_time_of_its_length() {
    let count = 30_000;
    let names = (0..count).map(|at| format!("V{at}"));
    let held: serde_json::Map<_, _> = names
        .clone()
        .map(|name| (format!("k:{}", json!({"name": name})), json!({".": {}, "f:name": {}, "f:value": {}})))
        .collect();
    let held = json!({"f:env": held});
    let env: Vec<Value> = names.map(|name| json!({"name": name, "value": "x"})).collect();
    let start = portcullis_testing::Stopwatch::start();
    assert_eq!(first_missing(&held, &json!({"env": env})), None);

    let ports: serde_json::Map<_, _> = (1..count)
        .map(|port| {
            (format!("k:{}", json!({"containerPort": port, "protocol": "TCP"})), json!({"f:containerPort": {}}))
        })
        .collect();
    let wanted: Vec<Value> = (1..=count).map(|port| json!({"containerPort": port})).collect();
    let missing = first_missing(&json!({"f:ports": ports}), &json!({"ports": wanted}));
    assert_eq!(missing, Some(format!("ports[{}]", count - 1)));

    let held: serde_json::Map<_, _> =
        (0..count).map(|name| (format!("k:{}", json!({"name": name, "type": "T"})), json!({"f:name": {}}))).collect();
    let stated: Vec<Value> = (0..count).rev().map(|name| json!({"name": name, "type": "T"})).collect();
    assert_eq!(first_excess(&json!({"f:s": held}), &json!({"s": stated})), None);
    let held: serde_json::Map<_, _> = (0..count).map(|value| (format!("v:\"{value}\""), json!({}))).collect();
    let set: Vec<String> = (0..count).rev().map(|value| value.to_string()).collect();
    assert_eq!(first_excess(&json!({"f:s": held.clone()}), &json!({"s": set})), None);
    assert_eq!(first_missing(&json!({"f:s": held}), &json!({"s": set})), None);
    // Comparing each element with each would take minutes, and nothing else does, even on a busy machine.
    assert!(start.elapsed() < std::time::Duration::from_mins(1), "{:?}", start.elapsed());
}
