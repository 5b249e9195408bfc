//! What rolls pods, and what must not (MISSION R1, R2, M3).

use std::collections::BTreeSet;

use mcp_plan::{digest::digest, workload::ChildKind};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::pem;
use super::world::{Plan, World, checksum, child, config, deployment, run_config, stateful_set};

const CHECKSUM: &str = "toolhive.stacklok.dev/runconfig-checksum";

fn template(plan: &Plan) -> Value {
    deployment(plan)["spec"]["template"].clone()
}

// MISSION R2.
#[test]
fn the_checksum_survives_pod_template_overrides_and_cannot_be_replaced() {
    let plan = World::of(json!({"image": "x:1", "resourceOverrides": {"proxyDeployment": {
        "podTemplateMetadataOverrides": {
            "annotations": {"vault.hashicorp.com/agent-inject": "true", CHECKSUM: "mine"},
            "labels": {"sidecar": "vault", "app": "mine", "toolhive-name": "other"},
        },
        "annotations": {"toolhive.stacklok.dev/webhook-config": "kept: no gate is asked for"},
    }}}))
    .plan();
    let metadata = &template(&plan)["metadata"];
    assert_eq!(checksum(&plan).len(), 64);
    assert_eq!(metadata["annotations"]["vault.hashicorp.com/agent-inject"], "true");
    assert_eq!(metadata["annotations"].as_object().unwrap().len(), 2);
    assert_eq!(metadata["labels"]["sidecar"], "vault");
    let selector = deployment(&plan)["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert_eq!(selector.len(), 5);
    for (key, value) in selector {
        assert_eq!(metadata["labels"][key], *value, "the selector still selects the pods");
    }
}

// MISSION R2.
#[test]
fn deployment_level_annotations_and_labels_stay_off_the_pods() {
    let plan = World::of(json!({"image": "x:1", "resourceOverrides": {"proxyDeployment": {
        "annotations": {"team": "core", "linkerd.io/inject": "enabled"}, "labels": {"tier": "gold", "toolhive": "no"},
    }}}))
    .plan();
    let metadata = &deployment(&plan)["metadata"];
    assert_eq!(metadata["annotations"], json!({"team": "core", "linkerd.io/inject": "enabled"}));
    assert_eq!((&metadata["labels"]["tier"], &metadata["labels"]["toolhive"]), (&json!("gold"), &json!("true")));
    let pods = &template(&plan)["metadata"];
    assert_eq!(pods["annotations"].as_object().unwrap().keys().collect::<Vec<_>>(), [CHECKSUM]);
    assert!(pods["labels"].get("tier").is_none());
}

// MISSION R1.
#[test]
fn the_checksum_is_that_of_the_document_and_stands_on_config_map_and_pods_alike() {
    let plan = World::gated().plan();
    let map = child(&plan, ChildKind::ConfigMap, "fetch-runconfig").unwrap();
    assert_eq!(map["metadata"]["annotations"]["toolhive.stacklok.dev/content-checksum"], checksum(&plan));
    assert_eq!(digest(run_config(&plan).as_bytes()), checksum(&plan));
}

// MISSION R1, M3.
#[test]
fn an_edit_of_anything_the_proxy_reads_rolls_it() {
    let base = json!({"image": "x:1", "transport": "streamable-http", "webhookConfigRef": {"name": "gates"}});
    let gates = |webhook: Value| config("gates", json!({"validating": [webhook]}));
    let plan = |change: &Value, webhook: &Value| {
        let mut spec = base.clone();
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let mut world = World::of(spec);
        world.has(gates(webhook.clone()));
        world.secret("s", "k", &pem::authority());
        checksum(&world.plan()).to_owned()
    };
    let webhook = json!({"name": "a", "url": "https://a/"});
    let mut seen: BTreeSet<String> = [plan(&json!({}), &webhook)].into();
    let edits = [
        json!({"image": "x:2"}),
        json!({"args": ["-v"]}),
        json!({"env": [{"name": "A", "value": "1"}]}),
        json!({"proxyPort": 9000}),
        json!({"mcpPort": 9001}),
        json!({"endpointPrefix": "/p"}),
        json!({"trustProxyHeaders": true}),
        json!({"backendReplicas": 2}),
        json!({"maxRequestBodySize": 1}),
        json!({"proxyReadTimeout": "1m"}),
        json!({"volumes": [{"name": "d", "hostPath": "/a", "mountPath": "/b"}]}),
    ];
    for edit in edits {
        assert!(seen.insert(plan(&edit, &webhook)), "{edit} rolls the proxy");
    }
    let edits = [
        json!({"name": "b", "url": "https://a/"}),
        json!({"name": "a", "url": "https://b/"}),
        json!({"name": "a", "url": "https://a/", "timeout": "5s"}),
        json!({"name": "a", "url": "https://a/", "failurePolicy": "ignore"}),
        json!({"name": "a", "url": "https://a/", "hmacSecretRef": {"name": "s", "key": "k"}}),
        json!({"name": "a", "url": "https://a/", "tlsConfig": {"insecureSkipVerify": true}}),
        json!({"name": "a", "url": "https://a/", "tlsConfig": {"caSecretRef": {"name": "s", "key": "k"}}}),
    ];
    for edit in edits {
        assert!(seen.insert(plan(&json!({}), &edit)), "{edit} rolls the proxy");
    }
}

#[test]
fn an_edit_that_changes_nothing_for_a_pod_rolls_nothing() {
    let spec = json!({"image": "x:1", "transport": "streamable-http"});
    let before = World::of(spec.clone()).plan();
    for change in [
        json!({"replicas": 3}),
        json!({"sessionAffinity": "None"}),
        json!({"groupRef": {"name": "g"}}),
        json!({"resourceOverrides": {"proxyService": {"annotations": {"a": "b"}}}}),
    ] {
        let mut spec = spec.clone();
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let mut world = World::of(spec);
        world.workload.metadata.generation = Some(99);
        let after = world.plan();
        assert_eq!(template(&before), template(&after), "{change}");
        assert_eq!(stateful_set(&before), stateful_set(&after), "{change}");
    }
}

// MISSION M3: a webhook's Secret reaches the running proxy through its directory mount.
#[test]
fn a_webhook_secrets_new_value_changes_no_child() {
    let mut world = World::gated();
    world.has(config(
        "gates",
        json!({"validating": [{"name": "p", "url": "https://p/", "hmacSecretRef": {"name": "s", "key": "k"}}]}),
    ));
    world.secret("s", "k", "old");
    let before = world.plan();
    world.secret("s", "k", "new");
    assert_eq!(before.children, world.plan().children);

    let pod = &template(&before)["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().all(|mount| mount.get("subPath").is_none()), "a subPath mount is never refreshed");
    let path = serde_json::from_str::<Value>(run_config(&before)).unwrap()["validating_webhooks"][0]["hmac_secret_ref"]
        .as_str()
        .unwrap()
        .to_owned();
    let mount = mounts.iter().find(|mount| path == format!("{}/hmac", mount["mountPath"].as_str().unwrap())).unwrap();
    let volume = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == mount["name"]).unwrap();
    assert_eq!(volume["secret"], json!({"secretName": "s", "items": [{"key": "k", "path": "hmac"}]}));
}

#[test]
fn an_environment_secrets_new_value_rolls_the_mcp_server_and_not_its_proxy() {
    let mut world = World::of(json!({"image": "x:1", "transport": "streamable-http",
        "secrets": [{"name": "token", "key": "t", "targetEnvName": "TOKEN"}]}));
    world.secret("token", "t", "old");
    world.secret("token", "other", "1");
    let before = world.plan();
    world.secret("token", "other", "2");
    assert_eq!(before.children, world.plan().children, "another key is nobody's business");
    world.secret("token", "t", "new");
    let after = world.plan();
    assert_ne!(stateful_set(&before)["spec"]["template"], stateful_set(&after)["spec"]["template"]);
    assert_eq!(template(&before), template(&after));
    assert!(
        !serde_json::to_string(&after.children.iter().map(|c| &c.object).collect::<Vec<_>>()).unwrap().contains("new")
    );
}

#[test]
fn the_same_inputs_make_the_same_bytes() {
    let mut world = World::of(json!({"image": "x:1", "transport": "sse",
        "env": [{"name": "Z", "value": "1"}, {"name": "A", "value": "2"}, {"name": "M", "value": ""}],
        "secrets": [{"name": "b", "key": "b"}, {"name": "a", "key": "a"}]}));
    let first = world.plan();
    assert_eq!(first.children, world.plan().children);
    let names: Vec<_> = stateful_set(&first)["spec"]["template"]["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|var| var["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(names.is_sorted(), "{names:?}");
    // Order in the manifest means nothing: the list is a map by name.
    world.workload.spec.env.as_mut().unwrap().reverse();
    world.workload.spec.secrets.as_mut().unwrap().reverse();
    assert_eq!(first.children, world.plan().children);
}

proptest! {
    // MISSION R1: any change of a byte of the RunConfig changes the annotation.
    #[test]
    fn two_run_configs_have_one_checksum_only_if_they_are_one(
        image in "[a-z]{1,3}", args in prop::collection::vec("[a-c]{0,2}", 0..3), value in "[ab]{0,2}",
        port in 1..4_i32, prefix in "[/ab]{0,2}", webhook in "[ab]{1,2}", ignore: bool,
        other_image in "[a-z]{1,3}", other_args in prop::collection::vec("[a-c]{0,2}", 0..3), other_value in "[ab]{0,2}",
        other_port in 1..4_i32, other_prefix in "[/ab]{0,2}", other_webhook in "[ab]{1,2}", other_ignore: bool,
    ) {
        let plan = |image: &str, args: &[String], value: &str, port, prefix: &str, webhook: &str, ignore| {
            let mut world = World::of(json!({"image": image, "args": args, "proxyPort": port, "endpointPrefix": prefix,
                "transport": "streamable-http", "env": [{"name": "V", "value": value}],
                "webhookConfigRef": {"name": "gates"}}));
            let policy = if ignore { "ignore" } else { "fail" };
            world.has(config("gates", json!({"mutating": [
                {"name": webhook, "url": "https://w/", "failurePolicy": policy}]})));
            let plan = world.plan();
            (run_config(&plan).to_owned(), checksum(&plan).to_owned())
        };
        let one = plan(&image, &args, &value, port, &prefix, &webhook, ignore);
        let two = plan(&other_image, &other_args, &other_value, other_port, &other_prefix, &other_webhook, other_ignore);
        prop_assert_eq!(one.0 == two.0, one.1 == two.1);
    }

    #[test]
    fn a_flipped_byte_of_a_run_config_changes_its_checksum(at: prop::sample::Index, bit in 0..8_u32) {
        let plan = World::gated().plan();
        let mut document = run_config(&plan).as_bytes().to_vec();
        let at = at.index(document.len());
        document[at] ^= 1 << bit;
        prop_assert_ne!(digest(&document), checksum(&plan));
    }
}
