//! What we make of ToolHive's inputs, compared leaf by leaf with what ToolHive's operator and runner made of them
//! (snapshot e25de16c on a real API server; RunConfigs those of v0.63.0). Every difference that is meant stands in [`DIFFERENCES`] with its reason;
//! an entry that nothing needs any more fails the test, as does a difference that no entry names.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use mcp_api::{
    v1alpha1::MCPWebhookConfig,
    v1beta1::{
        MCPAuthzConfig, MCPExternalAuthConfig, MCPOIDCConfig, MCPRemoteProxy, MCPServer, MCPTelemetryConfig,
        MCPToolConfig, VirtualMCPServer,
    },
};
use mcp_operator::{
    config::{ConfigInputs, ConfigKind, erased, plan_config},
    workload::{Inputs, Workload, plan_workload},
};
use mcp_plan::{
    config::{Config, Configs},
    digest::DigestKey,
    reference::{Data, Entry, Referrer},
    settings::Settings,
    workload::ChildKind,
};
use mcp_runconfig::chain;
use serde_json::Value;

use crate::support::{CRDS, pem};

const CASES: [&str; 12] = [
    "01-minimal",
    "02-streamable",
    "03-sse-secrets-volumes",
    "04-overrides",
    "05-webhooks",
    "06-oidc",
    "07-remote",
    "08-audit-authz-telemetry",
    "09-external-auth",
    "10-remote-observed",
    "11-authz",
    "12-rate-limits",
];

/// Cases that lie in the namespace of another, and refer to what that one brings.
const BESIDE: [(&str, &str); 2] = [("07-remote", "06-oidc"), ("08-audit-authz-telemetry", "06-oidc")];

type ReadConfig = fn(&Value) -> Arc<dyn Config>;
type PlanOne = fn(&Value, &Configs, &Data) -> Planned;

/// The kinds of configurations, each with what reads one.
const CONFIGS: [(&str, ReadConfig); 6] = [
    ("MCPAuthzConfig", config::<MCPAuthzConfig>),
    ("MCPExternalAuthConfig", config::<MCPExternalAuthConfig>),
    ("MCPOIDCConfig", config::<MCPOIDCConfig>),
    ("MCPTelemetryConfig", config::<MCPTelemetryConfig>),
    ("MCPToolConfig", config::<MCPToolConfig>),
    ("MCPWebhookConfig", config::<MCPWebhookConfig>),
];

/// The kinds of workloads, each with what plans one.
const WORKLOADS: [(&str, PlanOne); 3] = [
    ("MCPRemoteProxy", plan::<MCPRemoteProxy>),
    ("MCPServer", plan::<MCPServer>),
    ("VirtualMCPServer", plan::<VirtualMCPServer>),
];

/// Workloads that get no proxy, and a part of what their status says. ToolHive makes none of it, either.
const UNMADE: [(&str, &str); 1] = [("aws-server", "requires a remote URL: SigV4 signing")];

/// Leaves that ToolHive's objects have because the API server filled them in; we do not own them.
const DEFAULTS: [&str; 28] = [
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
    "MCPRemoteProxy/*: status.observedGeneration = 1",
    "MCPRemoteProxy/*: status.phase = \"Pending\"",
];

/// `- ` is a leaf that only ToolHive has, `+ ` one that only we have. A changed leaf is one of each.
const DIFFERENCES: [(&str, &str); 68] = [
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
    ("+ ServiceAccount/*-sa: automountServiceAccountToken = false", TOKEN),
    ("- ServiceAccount/*: imagePullSecrets[*].name = *", PULL_SECRETS),
    ("+ StatefulSet/*: spec.template.spec.imagePullSecrets[*].name = *", PULL_SECRETS),
    ("+ *: spec.template.spec.enableServiceLinks = false", SERVICE_LINKS),
    ("+ Deployment/oidc-cluster: spec.template.spec.automountServiceAccountToken = true", ACCOUNT),
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
    ("+ Deployment/*: spec.template.metadata.annotations[toolhive.stacklok.dev/guards] = *", GATE),
    ("+ Deployment/*: spec.template.spec.containers[toolhive].env[TOOLHIVE_RUNCONFIG_CHECKSUM].*", DOCUMENT),
    ("+ NetworkPolicy/mcp-*: *", SIDE_DOOR),
    ("+ *: spec.template.metadata.annotations[toolhive.stacklok.dev/secrets-checksum] = *", SECRETS),
    ("- MCP*: status.*ConfigHash = *", CONFIG_HASH),
    ("+ MCP*: status.*ConfigHash = *", CONFIG_HASH),
    ("+ StatefulSet/oidc-*: *", RUNNER_DID_NOT_RUN),
    ("+ Service/mcp-oidc-*: *", RUNNER_DID_NOT_RUN),
    ("- ConfigMap/*-authz-inline: *", UNREAD_POLICIES),
    ("- Deployment/*: spec.template.spec.containers[toolhive].volumeMounts[/etc/toolhive/authz].*", UNREAD_POLICIES),
    ("- Deployment/*: spec.template.spec.volumes[authz-config].*", UNREAD_POLICIES),
    ("+ StatefulSet/full: *", RUNNER_DID_NOT_RUN),
    ("+ Service/mcp-full*: *", RUNNER_DID_NOT_RUN),
    ("+ StatefulSet/limited: *", RUNNER_DID_NOT_RUN),
    ("+ Service/mcp-limited*: *", RUNNER_DID_NOT_RUN),
    ("+ StatefulSet/ex-*: *", RUNNER_DID_NOT_RUN),
    ("+ Service/mcp-ex-*: *", RUNNER_DID_NOT_RUN),
    (
        "+ Deployment/ex-*: spec.template.spec.containers[toolhive].env[PORTCULLIS_TOKEN_EXCHANGE_CLIENT_SECRET_FILE].*",
        ROTATION,
    ),
    (
        "+ Deployment/ex-*: spec.template.spec.containers[toolhive].volumeMounts[/etc/toolhive/token-exchange].*",
        ROTATION,
    ),
    ("+ Deployment/ex-*: spec.template.spec.volumes[token-exchange-client].*", ROTATION),
    ("+ StatefulSet/inject-server: *", RUNNER_DID_NOT_RUN),
    ("+ Service/mcp-inject-server*: *", RUNNER_DID_NOT_RUN),
    ("+ StatefulSet/authz-*: *", RUNNER_DID_NOT_RUN),
    ("+ Service/mcp-authz-*: *", RUNNER_DID_NOT_RUN),
    ("+ StatefulSet/stdio-observed: *", RUNNER_DID_NOT_RUN),
    ("- RunConfig:*ResourceURL = *", RESOURCE),
    ("+ RunConfig:*ResourceURL = *", RESOURCE),
    ("+ Deployment/observed: spec.template.spec.containers[toolhive].env[*OTEL_*", TELEMETRY),
    (
        "- Deployment/*: spec.template.spec.containers[toolhive].volumeMounts[/etc/toolhive/session-redis-tls/*",
        DIRECTORIES,
    ),
    (
        "+ Deployment/*: spec.template.spec.containers[toolhive].volumeMounts[/etc/toolhive/session-redis-tls]*",
        DIRECTORIES,
    ),
    ("- Deployment/*: spec.template.spec.volumes[session-redis-tls-ca].secret.defaultMode = 256", AUTHORITIES),
    ("- Deployment/remote: metadata.annotations[toolhive.stacklok.io/podtemplatespec-hash] = *", TEMPLATE_HASH),
    ("+ Deployment/*: spec.strategy.type = \"Recreate\"", ONE_OWNER),
    ("+ StatefulSet/*: spec.template.spec.containers[mcp].stdinOnce = true", ONE_OWNER),
    ("- Deployment/*: spec.template.spec.containers[toolhive].readinessProbe.httpGet.path = \"/health\"", READY),
    ("+ Deployment/*: spec.template.spec.containers[toolhive].readinessProbe.httpGet.path = \"/readyz\"", READY),
    ("- Deployment/*: spec.template.spec.containers[toolhive].readinessProbe.initialDelaySeconds = 5", STARTED),
];

const GENERATION: &str = "it fences outdated runners off the workload; here the operator owns the workload, and an edit \
     that changes nothing for a pod rolls nothing";
const WORKLOAD: &str = "the operator makes StatefulSet and Services itself: the runner needs no pod patch to make them";
const RUNNER_DID_NOT_RUN: &str = "upstream's runner was not run for this case; the operator needs none to make these";
const LEAST_PRIVILEGE: &str = "a proxy creates no workload: a stdio server's may attach to its own pod, others may nothing \
     and get neither Role nor token";
const TOKEN: &str = "an MCP server gets a token of the Kubernetes API where its template asks for one";
const SERVICE_LINKS: &str = "a Service of the namespace sets no variable of a proxy, and tells no server of itself";
const PULL_SECRETS: &str = "the list of an account is atomic, and OpenShift's controller writes it: the pods name them";
const ACCOUNT: &str = "the login reads the token of the ServiceAccount, which may say that it is not mounted";
const CHECKSUM: &str = "ours is the SHA-256 of the document itself; upstream's covers labels and annotations too";
const DIRECTORIES: &str =
    "a subPath mount never sees a rotated Secret; the files have the same paths in a directory mount";
const TELEMETRY: &str = "the proxies of both kinds tell of themselves, and send the headers of a collector";
const AUTHORITIES: &str = "authorities are no secret";
const VOLUMES: &str = "spec.volumes is for the MCP server's container; upstream mounts it into the proxy alone";
const SELECTOR: &str = "`app` alone also selects every proxy pod when a server is called mcpserver";
const GATE: &str = "tells which guards the running proxy has, the older versions of this operator too";
const DOCUMENT: &str = "a container that starts anew in an old pod does not run on a newer document";
const SIDE_DOOR: &str = "nothing but its proxy reaches the MCP server";
const SECRETS: &str = "a changed Secret rolls the pods that take it as environment";
const ROTATION: &str = "a client's secret is read from a file for each exchange, so a rotated one needs no new pods; the \
     variable of upstream's is there too, for a runner that reads it";
const RESOURCE: &str =
    "the default names the Service that there is; clients compare it with the address that they called";
const TEMPLATE_HASH: &str =
    "a changed template is a changed document, which is applied as it is: nothing is compared by a hash";
const ONE_OWNER: &str = "two proxies of a stdio server would read each other's answers: one goes before the next comes, and takes the server's process with it";
const READY: &str =
    "a proxy is ready while a call is likely to be answered; `/health` of upstream's says that it lives";
const STARTED: &str = "its startup probe has told that it runs: the sooner it is asked, the sooner the status knows";
const UNREAD_POLICIES: &str =
    "the policies are in the RunConfig; upstream puts them into a ConfigMap and a mount as well, which no runner reads";
const CONFIG_HASH: &str = "hash values are opaque";

#[test]
fn children_are_upstreams_but_for_the_differences_that_are_meant() {
    let mut differences = BTreeSet::new();
    for case in CASES {
        let (theirs, ours) = (theirs(case), ours(case));
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
    let all: BTreeSet<String> = CASES.iter().flat_map(|case| theirs(case)).collect();
    let unused: Vec<_> = DEFAULTS.iter().filter(|default| !all.iter().any(|leaf| matches(default, leaf))).collect();
    assert!(unused.is_empty(), "{unused:#?}");
}

#[test]
fn run_configs_are_upstreams_to_the_byte_but_for_the_generation_and_the_name_of_the_service() {
    let mut members = BTreeSet::new();
    for case in CASES {
        for (name, planned) in &cluster(case) {
            let unmade = UNMADE.iter().find(|(unmade, _)| unmade == name);
            if let Some((_, why)) = unmade {
                let said = planned.status["message"].as_str().unwrap();
                assert!(planned.run_config.is_none() && said.contains(why), "{case}/{name}: {said}");
                continue;
            }
            let document = planned.run_config.as_deref().unwrap_or_else(|| panic!("{case}/{name} gets no proxy"));
            assert_eq!(document, upstream(case, name, planned), "{case}/{name}");
            let document: Value = serde_json::from_str(document).unwrap();
            members.extend(document.as_object().unwrap().keys().cloned());
        }
    }
    for member in [
        "audit_config",
        "authz_config",
        "telemetry_config",
        "tools_filter",
        "tools_override",
        "oidc_config",
        "rate_limit_config",
        "remote_auth_config",
        "scaling_config",
        "token_exchange_config",
    ] {
        assert!(members.contains(member), "no case has {member}");
    }
}

#[test]
fn variables_and_files_of_telemetry_are_upstreams_and_remote_proxies_have_the_variables_too() {
    let (mut theirs, mut ours) = (BTreeSet::new(), BTreeSet::new());
    for case in ["08-audit-authz-telemetry", "10-remote-observed"] {
        let planned = cluster(case);
        let is_planned = |object: &&Value| planned.contains_key(object["metadata"]["name"].as_str().unwrap());
        documents(&file(case, "objects.yaml")).iter().filter(is_planned).for_each(|it| collect(it, &mut theirs));
        planned.values().flat_map(|planned| &planned.children).for_each(|child| collect(child, &mut ours));
    }
    let of_telemetry = |leaf: &&String| {
        let leaf = leaf.to_lowercase();
        leaf.contains("otel") && !leaf.contains("defaultmode") && !leaf.contains("annotations")
    };
    let only = |these: &BTreeSet<String>, those: &BTreeSet<String>| -> Vec<String> {
        these.difference(those).filter(of_telemetry).cloned().collect()
    };
    assert!(theirs.iter().filter(of_telemetry).count() > 8, "{theirs:?}");
    assert_eq!(only(&theirs, &ours), [""; 0]);
    let env = "Deployment/observed: spec.template.spec.containers[toolhive].env";
    let expected = [
        format!("{env}[OTEL_RESOURCE_ATTRIBUTES].name = \"OTEL_RESOURCE_ATTRIBUTES\""),
        format!("{env}[OTEL_RESOURCE_ATTRIBUTES].value = \"service.name=observed-svc,service.namespace=golden\""),
        format!("{env}[TOOLHIVE_OTEL_HEADER_AUTHORIZATION].name = \"TOOLHIVE_OTEL_HEADER_AUTHORIZATION\""),
        format!("{env}[TOOLHIVE_OTEL_HEADER_AUTHORIZATION].valueFrom.secretKeyRef.key = \"token\""),
        format!("{env}[TOOLHIVE_OTEL_HEADER_AUTHORIZATION].valueFrom.secretKeyRef.name = \"otel-auth\""),
    ];
    assert_eq!(only(&ours, &theirs), expected);
}

#[test]
fn every_kind_of_the_api_is_read_here() {
    let here: BTreeSet<&str> =
        CONFIGS.iter().map(|(kind, _)| *kind).chain(WORKLOADS.iter().map(|(kind, _)| *kind)).collect();
    assert_eq!(here, CRDS.iter().map(|crd| &*crd.spec.names.kind).collect());
}

#[test]
fn a_valid_config_reports_what_upstream_reports() {
    let inputs = documents(&file("05-webhooks", "input.yaml"));
    let config = inputs.into_iter().find(|object| object["kind"] == "MCPWebhookConfig").unwrap();
    let config: MCPWebhookConfig = serde_json::from_value(config).unwrap();
    let referrer = Referrer { kind: "MCPServer".to_owned(), name: "gated".to_owned() };
    let plan =
        plan_config(&ConfigInputs { config: &config, referrers: &[referrer], settings: &settings(), now: now() });
    let condition = &plan.report.conditions.unwrap()[0];
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

/// What is planned for a workload.
struct Planned {
    kind: String,
    children: Vec<Value>,
    run_config: Option<String>,
    status: Value,
}

fn now() -> jiff::Timestamp {
    "2026-11-21T00:00:00Z".parse().unwrap()
}

fn settings() -> Settings {
    Settings {
        runner_image: "ghcr.io/stacklok/toolhive/proxyrunner:latest".into(),
        proxy_host: "0.0.0.0".into(),
        runner_middleware: chain::abilities(),
        ..Settings::default()
    }
}

/// The plans for the workloads of a case, by name, in a cluster that has its input.
fn cluster(case: &str) -> BTreeMap<String, Planned> {
    let inputs = documents(&file(case, "input.yaml"));
    let beside =
        BESIDE.iter().filter(|(of, _)| *of == case).flat_map(|(_, other)| documents(&file(other, "input.yaml")));
    let there: Vec<Value> = inputs.iter().cloned().chain(beside).collect();
    let (mut configs, mut data) = (Configs::new(), Data::default());
    for object in &there {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        match object["kind"].as_str().unwrap() {
            "ConfigMap" => _ = data.config_maps.insert(name, values(&object["data"])),
            "Secret" => _ = data.secrets.insert(name, values(&object["stringData"])),
            kind => {
                let known = CONFIGS.iter().find(|(known, _)| *known == kind);
                configs.extend(known.map(|(kind, read)| (((*kind).into(), name), read(object))));
            }
        }
    }
    let mut planned = BTreeMap::new();
    for object in &inputs {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let kind = object["kind"].as_str().unwrap();
        let config = CONFIGS.iter().map(|(kind, _)| *kind).chain(["Secret", "ConfigMap"]).any(|known| known == kind);
        match WORKLOADS.iter().find(|(known, _)| *known == kind) {
            Some((_, plan)) => _ = planned.insert(name, plan(object, &configs, &data)),
            None => assert!(config, "{case} has a {kind}, which nothing here plans"),
        }
    }
    planned
}

/// Upstream's document for a workload: without the generation, and with the name that the Service has here.
fn upstream(case: &str, name: &str, planned: &Planned) -> String {
    let upstream = file(case, &format!("{name}.runconfig.json")).replacen("  \"mcpserver_generation\": 1,\n", "", 1);
    // `http://SERVICE.golden.svc…`
    let service = planned.status["url"].as_str().and_then(|url| url.split(['/', '.']).nth(2)).unwrap();
    upstream.replace(&format!("//{name}.golden.svc"), &format!("//{service}.golden.svc"))
}

fn config<K: ConfigKind>(object: &Value) -> Arc<dyn Config> {
    erased(Arc::new(serde_json::from_value::<K>(object.clone()).unwrap()))
}

/// ToolHive looks at no value of a Secret or ConfigMap; here, what is called a certificate or a key has to be one.
fn values(written: &Value) -> BTreeMap<String, Entry> {
    let pair = pem::client();
    let real = |written: &str| match written {
        "CA" => pem::authority(),
        "CRT" => pair.cert_pem.clone(),
        "KEY" => pair.key_pem.clone(),
        other => other.to_owned(),
    };
    let key = DigestKey::new(b"the key of tests");
    let values = written.as_object().unwrap().iter();
    values.map(|(name, value)| (name.clone(), Entry::of_text(real(value.as_str().unwrap()).as_bytes(), &key))).collect()
}

fn plan<W: Workload>(object: &Value, configs: &Configs, data: &Data) -> Planned {
    let mut object = object.clone();
    object["metadata"]["uid"] = "u".into();
    object["metadata"]["generation"] = 1.into();
    let workload: W = serde_json::from_value(object).unwrap();
    let plan = plan_workload(&Inputs {
        workload: &workload,
        configs,
        unseen: false,
        data,
        unreadable: None,
        denied: None,
        deployment: None,
        children: &BTreeSet::new(),
        opened: &BTreeMap::new(),
        pods: &[],
        containers: &BTreeMap::new(),
        backend_pods: &[],
        reach: None,
        settings: &settings(),
        now: now(),
    });
    let document = plan.children.iter().find(|child| child.reference.kind == ChildKind::ConfigMap);
    let document = document.and_then(|map| map.object["data"]["runconfig.json"].as_str());
    Planned {
        kind: W::kind(&()).into_owned(),
        run_config: document.map(str::to_owned),
        children: plan.children.into_iter().map(|child| child.object).collect(),
        status: serde_json::to_value(W::status_of(plan.report)).unwrap(),
    }
}

fn ours(case: &str) -> BTreeSet<String> {
    let mut leaves = BTreeSet::new();
    for (name, Planned { kind, children, run_config, status }) in &cluster(case) {
        for child in children {
            collect(child, &mut leaves);
        }
        let Some(document) = run_config else { continue };
        flatten(&serde_json::from_str(document).unwrap(), "RunConfig:", &mut leaves);
        let hashes =
            ["authz", "externalAuth", "oidc", "telemetry", "tool", "webhook"].map(|kind| format!("{kind}ConfigHash"));
        for key in hashes.iter().map(String::as_str).chain(["url"]) {
            flatten(&status[key], &format!("{kind}/{name}: status.{key}"), &mut leaves);
        }
    }
    leaves
}

fn theirs(case: &str) -> BTreeSet<String> {
    let mut leaves = BTreeSet::new();
    let planned = cluster(case);
    for object in documents(&file(case, "objects.yaml")) {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        if UNMADE.iter().any(|(unmade, _)| *unmade == name || owner(&object) == Some(unmade)) {
            continue;
        }
        if planned.get(name).is_some_and(|planned| planned.kind == kind) {
            // Conditions are each operator's own words; url and hash are the contract.
            let mut status = object["status"].clone();
            for own in ["conditions", "message"] {
                status.as_object_mut().unwrap().remove(own);
            }
            flatten(&status, &format!("{kind}/{name}: status"), &mut leaves);
        } else if !kind.ends_with("Config") {
            collect(&object, &mut leaves);
        }
    }
    for name in planned.keys().filter(|name| UNMADE.iter().all(|(unmade, _)| unmade != name)) {
        let document = file(case, &format!("{name}.runconfig.json"));
        flatten(&serde_json::from_str(&document).unwrap(), "RunConfig:", &mut leaves);
    }
    leaves
}

/// The name of the workload that an object was made for.
fn owner(object: &Value) -> Option<&str> {
    object["metadata"]["ownerReferences"][0]["name"].as_str()
}

fn collect(object: &Value, leaves: &mut BTreeSet<String>) {
    let mut object = object.clone();
    if let Some(data) = object.get_mut("data") {
        *data = Value::Null; // compared as RunConfig
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
    let prefix = format!("{}/{}:", text("/kind"), text("/metadata/name"));
    for member in
        ["metadata", "spec", "rules", "roleRef", "subjects", "imagePullSecrets", "automountServiceAccountToken"]
    {
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
