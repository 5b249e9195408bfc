//! What we make of upstream's inputs, compared leaf by leaf with what upstream's operator and runner made of them
//! (snapshot e25de16c on a real API server). Every difference that is meant stands in [`DIFFERENCES`] with its reason;
//! an entry that nothing needs any more fails the test, as does a difference that no entry names.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail as tests do")]

#[path = "plan/world.rs"]
mod planning;

use std::collections::BTreeSet;

use mcp_operator::plan::{ConfigInputs, digest, plan_webhook_config};
use planning::World;
use serde_json::Value;

const CASES: [(&str, &str); 5] = [
    ("01-minimal", "minimal"),
    ("02-streamable", "streamable"),
    ("03-sse-secrets-volumes", "sse"),
    ("04-overrides", "overrides"),
    ("05-webhooks", "gated"),
];

/// Leaves that upstream's objects have because the API server filled them in; we do not own them.
const DEFAULTS: [&str; 26] = [
    "Deployment/*: spec.progressDeadlineSeconds = 600",
    "Deployment/*: spec.replicas = 1",
    "Deployment/*: spec.revisionHistoryLimit = 10",
    "Deployment/*: spec.strategy.*",
    "Deployment/*: spec.template.spec.containers[toolhive].imagePullPolicy = \"Always\"",
    "Deployment/*: spec.template.spec.containers[toolhive].*Probe.httpGet.scheme = \"HTTP\"",
    "Deployment/*: spec.template.spec.containers[toolhive].*Probe.successThreshold = 1",
    "*Set*: spec.template.spec.containers[mcp].imagePullPolicy = \"IfNotPresent\"",
    "*: spec.template.spec.containers[*].terminationMessagePath = *",
    "*: spec.template.spec.containers[*].terminationMessagePolicy = \"File\"",
    "*: spec.template.spec.dnsPolicy = \"ClusterFirst\"",
    "*: spec.template.spec.restartPolicy = \"Always\"",
    "*: spec.template.spec.schedulerName = \"default-scheduler\"",
    "*: spec.template.spec.serviceAccount = *",
    "*: spec.template.spec.volumes[*].*.defaultMode = 420",
    "StatefulSet/*: spec.persistentVolumeClaimRetentionPolicy.*",
    "StatefulSet/*: spec.podManagementPolicy = \"OrderedReady\"",
    "StatefulSet/*: spec.replicas = 1",
    "StatefulSet/*: spec.revisionHistoryLimit = 10",
    "StatefulSet/*: spec.template.spec.terminationGracePeriodSeconds = 30",
    "StatefulSet/*: spec.updateStrategy.*",
    "Service/*: spec.type = \"ClusterIP\"",
    "Service/mcp-*-proxy: spec.sessionAffinityConfig.clientIP.timeoutSeconds = 10800",
    "Service/mcp-*-headless: spec.sessionAffinity = \"None\"",
    "MCPServer/*: status.observedGeneration = 1",
    "MCPServer/*: status.phase = \"Pending\"",
];

/// `- ` is a leaf that only upstream has, `+ ` one that only we have. A changed leaf is one of each.
const DIFFERENCES: [(&str, &str); 29] = [
    ("- *: spec.template.metadata.annotations[toolhive.stacklok.dev/mcpserver-generation] = *", GENERATION),
    ("- *: spec.template.spec.containers[toolhive].env[THV_MCPSERVER_GENERATION].*", GENERATION),
    ("- RunConfig: mcpserver_generation = 1", GENERATION),
    ("- Deployment/*: spec.template.spec.containers[toolhive].args[1] = \"--k8s-pod-patch=*", WORKLOAD),
    ("- Deployment/*: spec.template.spec.containers[toolhive].args[2] = *", WORKLOAD),
    ("+ Deployment/*: spec.template.spec.containers[toolhive].args[1] = *", WORKLOAD),
    ("- Service/mcp-*: metadata.ownerReferences[StatefulSet] = *", WORKLOAD),
    ("+ Service/mcp-*: metadata.ownerReferences[MCPServer] = *", WORKLOAD),
    ("+ StatefulSet/gated: *", RUNNER_DID_NOT_RUN),
    ("+ Service/mcp-gated: *", RUNNER_DID_NOT_RUN),
    ("+ Service/mcp-gated-headless: *", RUNNER_DID_NOT_RUN),
    ("- Role/*: rules[*]*", LEAST_PRIVILEGE),
    ("+ Role/*: rules[*]*", LEAST_PRIVILEGE),
    ("- Role/*: metadata.*", LEAST_PRIVILEGE),
    ("- RoleBinding/*: *", LEAST_PRIVILEGE),
    ("+ Deployment/*: spec.template.spec.automountServiceAccountToken = false", LEAST_PRIVILEGE),
    ("- *[toolhive.stacklok.dev/runconfig-checksum] = *", CHECKSUM),
    ("+ *[toolhive.stacklok.dev/runconfig-checksum] = *", CHECKSUM),
    ("- *[toolhive.stacklok.dev/content-checksum] = *", CHECKSUM),
    ("+ *[toolhive.stacklok.dev/content-checksum] = *", CHECKSUM),
    ("- *: spec.template.spec.containers[toolhive].volumeMounts[/etc/toolhive/webhooks/*", DIRECTORIES),
    ("+ *: spec.template.spec.containers[toolhive].volumeMounts[/etc/toolhive/webhooks/*", DIRECTORIES),
    ("- Deployment/sse: spec.template.spec.*[*data]*", VOLUMES),
    ("+ StatefulSet/sse: spec.template.spec.*[*data]*", VOLUMES),
    ("+ Service/mcp-*: spec.selector[toolhive-basename] = *", SELECTOR),
    ("+ Deployment/gated: metadata.annotations[toolhive.stacklok.dev/webhook-config] = *", GATE),
    ("+ StatefulSet/sse: spec.template.metadata.annotations[toolhive.stacklok.dev/secrets-checksum] = *", SECRETS),
    ("- MCPServer/gated: status.webhookConfigHash = *", CONFIG_HASH),
    ("+ MCPServer/gated: status.webhookConfigHash = *", CONFIG_HASH),
];

const GENERATION: &str = "it fences outdated runners off the workload; here the operator owns the workload, and an edit \
     that changes nothing for a pod rolls nothing";
const WORKLOAD: &str = "the operator makes StatefulSet and Services itself: the runner needs no pod patch to make them";
const RUNNER_DID_NOT_RUN: &str = "upstream's runner was not run for this case; the operator needs none to make these";
const LEAST_PRIVILEGE: &str = "a proxy creates no workload: a stdio server's may attach to its own pod, others may nothing \
     and get neither Role nor token";
const CHECKSUM: &str = "ours is the SHA-256 of the document itself; upstream's covers labels and annotations too";
const DIRECTORIES: &str =
    "a subPath mount never sees a rotated Secret; the files have the same paths in a directory mount";
const VOLUMES: &str = "spec.volumes is for the MCP server's container; upstream mounts it into the proxy alone";
const SELECTOR: &str = "`app` alone also selects every proxy pod when a server is called mcpserver";
const GATE: &str = "tells which guard the running proxy has";
const SECRETS: &str = "a changed Secret rolls the pods that take it as environment";
const CONFIG_HASH: &str = "hash values are opaque";

#[test]
fn children_are_upstreams_but_for_the_differences_that_are_meant() {
    let mut differences = BTreeSet::new();
    for (case, name) in CASES {
        let theirs = theirs(case, name);
        let ours = ours(case, name);
        for leaf in theirs.difference(&ours) {
            if !DEFAULTS.iter().any(|default| matches(default, leaf)) {
                differences.insert(format!("- {leaf}"));
            }
        }
        differences.extend(ours.difference(&theirs).map(|leaf| format!("+ {leaf}")));
    }
    let unexplained: Vec<_> =
        differences.iter().filter(|leaf| !DIFFERENCES.iter().any(|(allowed, _)| matches(allowed, leaf))).collect();
    assert!(unexplained.is_empty(), "differences that nothing explains:\n{unexplained:#?}");
    let unused: Vec<_> =
        DIFFERENCES.iter().filter(|(allowed, _)| !differences.iter().any(|leaf| matches(allowed, leaf))).collect();
    assert!(unused.is_empty(), "explained differences that do not exist:\n{unused:#?}");
}

#[test]
fn every_default_that_is_left_to_the_api_server_is_one_it_set() {
    let all: BTreeSet<String> = CASES.iter().flat_map(|(case, name)| theirs(case, name)).collect();
    let unused: Vec<_> = DEFAULTS.iter().filter(|default| !all.iter().any(|leaf| matches(default, leaf))).collect();
    assert!(unused.is_empty(), "{unused:#?}");
}

#[test]
fn run_configs_are_upstreams_to_the_byte_but_for_the_generation() {
    for (case, name) in CASES {
        let upstream = file(case, &format!("{name}.runconfig.json"));
        let plan = world(case).plan();
        let map = planning::child(&plan, mcp_operator::plan::ChildKind::ConfigMap, &format!("{name}-runconfig"));
        let document = map.unwrap()["data"]["runconfig.json"].as_str().unwrap();
        assert_eq!(document, upstream.replacen("  \"mcpserver_generation\": 1,\n", "", 1), "{case}");
    }
}

#[test]
fn a_valid_webhook_config_reports_what_upstream_reports() {
    let world = world("05-webhooks");
    let plan = plan_webhook_config(&ConfigInputs {
        config: world.webhook_config.as_ref().unwrap(),
        referencing_servers: &["gated".to_owned()],
        now: world.now,
    });
    let condition = &plan.status.conditions.unwrap()[0];
    let theirs = documents(&file("05-webhooks", "objects.yaml"));
    let theirs = &theirs.iter().find(|object| object["kind"] == "MCPWebhookConfig").unwrap()["status"]["conditions"][0];
    assert_eq!(
        (&*condition.type_, &*condition.status, &*condition.reason, &*condition.message),
        ("Valid", "True", theirs["reason"].as_str().unwrap(), theirs["message"].as_str().unwrap())
    );
}

fn file(case: &str, name: &str) -> String {
    let path = format!("{}/tests/golden/{case}/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn documents(yaml: &str) -> Vec<Value> {
    yaml.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// The case's input as a cluster would show it.
fn world(case: &str) -> World {
    let inputs = documents(&file(case, "input.yaml"));
    let find = |kind: &str| inputs.iter().find(|object| object["kind"] == kind);
    let mut server = find("MCPServer").unwrap().clone();
    server["metadata"]["uid"] = "u".into();
    server["metadata"]["generation"] = 1.into();
    let mut world = World::around(server);
    world.webhook_config = find("MCPWebhookConfig").map(|config| serde_json::from_value(config.clone()).unwrap());
    for secret in inputs.iter().filter(|object| object["kind"] == "Secret") {
        let keys = secret["stringData"].as_object().unwrap();
        let digests = keys.iter().map(|(key, value)| (key.clone(), digest(value.to_string().as_bytes())));
        world.secrets.insert(secret["metadata"]["name"].as_str().unwrap().to_owned(), digests.collect());
    }
    world
}

fn ours(case: &str, name: &str) -> BTreeSet<String> {
    let world = world(case);
    let plan = world.plan();
    let mut leaves = BTreeSet::new();
    for child in &plan.children {
        collect(&child.object, &mut leaves);
    }
    let map = planning::child(&plan, mcp_operator::plan::ChildKind::ConfigMap, &format!("{name}-runconfig"));
    let document = map.unwrap()["data"]["runconfig.json"].as_str().unwrap();
    flatten(&serde_json::from_str(document).unwrap(), "RunConfig:", &mut leaves);
    let status = serde_json::to_value(&plan.status).unwrap();
    for key in ["url", "webhookConfigHash"] {
        flatten(&status[key], &format!("MCPServer/{name}: status.{key}"), &mut leaves);
    }
    leaves
}

fn theirs(case: &str, name: &str) -> BTreeSet<String> {
    let mut leaves = BTreeSet::new();
    for object in documents(&file(case, "objects.yaml")) {
        if object["kind"] == "MCPServer" {
            // Conditions are each operator's own words; url and hash are the contract.
            let mut status = object["status"].clone();
            for own in ["conditions", "message"] {
                status.as_object_mut().unwrap().remove(own);
            }
            flatten(&status, &format!("MCPServer/{name}: status"), &mut leaves);
        } else if object["kind"] != "MCPWebhookConfig" {
            collect(&object, &mut leaves);
        }
    }
    let document = file(case, &format!("{name}.runconfig.json"));
    flatten(&serde_json::from_str(&document).unwrap(), "RunConfig:", &mut leaves);
    leaves
}

fn collect(object: &Value, leaves: &mut BTreeSet<String>) {
    let mut object = object.clone();
    if let Some(data) = object.get_mut("data") {
        *data = Value::Null; // compared as RunConfig
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
    let prefix = format!("{}/{}:", text("/kind"), text("/metadata/name"));
    for member in ["metadata", "spec", "rules", "roleRef", "subjects", "imagePullSecrets"] {
        flatten(&object[member], &format!("{prefix} {member}"), leaves);
    }
}

/// One line per leaf. List entries go by their name (mounts by their path, owners by their kind), else by position.
fn flatten(value: &Value, path: &str, leaves: &mut BTreeSet<String>) {
    match value {
        Value::Null if path != "RunConfig:" => {}
        Value::Object(owner) if path.contains("ownerReferences") => {
            leaves.insert(format!("{path} = {}", owner["name"]));
        }
        Value::Object(members) => {
            for (key, member) in members {
                let path = match () {
                    () if path.ends_with(':') => format!("{path} {key}"),
                    () if key.contains('.') || path.ends_with("elector") => format!("{path}[{key}]"),
                    () => format!("{path}.{key}"),
                };
                flatten(member, &path, leaves);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                let key = ["mountPath", "name", "kind"].iter().find_map(|key| item.get(*key)?.as_str());
                let key = if path.ends_with("ownerReferences") { item["kind"].as_str() } else { key };
                flatten(item, &format!("{path}[{}]", key.map_or_else(|| at.to_string(), str::to_owned)), leaves);
            }
        }
        leaf => {
            leaves.insert(format!("{path} = {leaf}"));
        }
    }
}

/// Whether `text` fits `pattern`, in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
