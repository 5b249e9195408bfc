//! The plan of an MCPTelemetryConfig, and of workloads that refer to one: a setting, which rolls the proxy and takes nothing
//! down.

use std::collections::BTreeSet;

use mcp_api::v1beta1::{MCPRemoteProxy, MCPTelemetryConfig, ResourceOverrides};
use mcp_operator::{config::ConfigKind as _, subject::Subject as _, workload::Workload};
use mcp_plan::workload::ChildKind;
use serde_json::{Value, json};

use super::config_plan::{plan, says};
use super::pem;
use super::world::{World, checksum, condition, deployment, guards, is_absent, run_config, telemetry_config};

/// A configuration called `traces` with these members in its collector besides.
fn traces(change: Value) -> MCPTelemetryConfig {
    let mut collector = json!({"enabled": true, "endpoint": "https://otel:4318", "tracing": {"enabled": true}});
    collector.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    telemetry_config("traces", json!({"openTelemetry": collector}))
}

fn sensitive(names: &[&str]) -> Value {
    let header = |name: &&str| json!({"name": name, "secretKeyRef": {"name": "otel", "key": "token"}});
    names.iter().map(header).collect()
}

/// A server and a remote proxy that refer to it.
fn server(reference: Value) -> World {
    World::of(json!({"image": "x:1", "transport": "streamable-http", "telemetryConfigRef": reference}))
}

fn remote(reference: Value) -> World<MCPRemoteProxy> {
    World::around(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPRemoteProxy",
        "metadata": {"name": "fetch", "namespace": "team", "uid": "u-1", "generation": 3},
        "spec": {"remoteUrl": "https://mcp.example.com/mcp", "telemetryConfigRef": reference},
    }))
}

/// The member of the document, and the entry of the chain with what stands before it.
fn recorded<W: Workload>(world: &World<W>) -> (Value, Option<(String, Value)>)
where
    W::Status: Clone,
{
    let document: Value = serde_json::from_str(run_config(&world.plan())).unwrap();
    let chain = document["middleware_configs"].as_array().unwrap();
    let at = chain.iter().position(|entry| entry["type"] == "telemetry");
    let entry = at.map(|at| (chain[at - 1]["type"].as_str().unwrap().to_owned(), chain[at]["parameters"].clone()));
    (document["telemetry_config"].clone(), entry)
}

/// The variables of the proxy that begin with one of these.
fn variables(deployment: &Value) -> Vec<(String, Value)> {
    let all = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().iter();
    let all = all.map(|it| (it["name"].as_str().unwrap().to_owned(), it.clone()));
    all.filter(|(name, _)| ["OTEL_", "TOOLHIVE_OTEL_"].iter().any(|prefix| name.starts_with(prefix))).collect()
}

fn attributes(deployment: &Value) -> String {
    let found = variables(deployment).into_iter().find(|(name, _)| name == "OTEL_RESOURCE_ATTRIBUTES");
    found.expect("it is there").1["value"].as_str().unwrap().to_owned()
}

fn secrets_checksum(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["metadata"]["annotations"]["toolhive.stacklok.dev/secrets-checksum"]
}

#[test]
fn what_is_recorded_is_upstreams_member_and_entry() {
    let reference = json!({"name": "traces", "serviceName": "fetcher"});
    let off = json!({"serviceName": "fetcher", "tracingEnabled": false, "metricsEnabled": false, "useLegacyAttributes": false});
    let with = |more: Value| {
        let mut all = off.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let full = json!({"openTelemetry": {
        "enabled": true, "endpoint": "http://otel:4318", "insecure": true, "headers": {"x-tenant": "acme"},
        "resourceAttributes": {"team": "tools"}, "tracing": {"enabled": true, "samplingRate": "1.0"}, "metrics": {"enabled": true},
    }, "prometheus": {"enabled": true, "metricsOnTransportPort": false}});
    let full_document = json!({
        "endpoint": "otel:4318", "serviceName": "fetcher", "tracingEnabled": true, "metricsEnabled": true, "samplingRate": "1",
        "headers": {"x-tenant": "acme"}, "insecure": true, "enablePrometheusMetricsPath": true,
        "metricsOnTransportPort": false, "customAttributes": {"team": "tools"}, "useLegacyAttributes": true,
    });
    let rate = |text: &str| {
        json!({"openTelemetry": {
            "enabled": true, "endpoint": "otel:4317", "tracing": {"enabled": true, "samplingRate": text}, "useLegacyAttributes": false,
        }})
    };
    let rated = |text: &str| with(json!({"endpoint": "otel:4317", "tracingEnabled": true, "samplingRate": text}));
    for (spec, document, is_on) in [
        (full.clone(), full_document, true),
        (json!({}), off.clone(), false),
        (json!({"prometheus": {"enabled": true}}), with(json!({"enablePrometheusMetricsPath": true})), true),
        (json!({"openTelemetry": {"endpoint": "otel:4317", "tracing": {"enabled": true}}}), off.clone(), false),
        (rate("0"), rated("0"), true),
        (rate("1.000"), rated("1"), true),
        (rate("0.250"), rated("0.25"), true),
        (rate("0.0000000001"), rated("0.0000000001"), true),
    ] {
        let config = telemetry_config("traces", spec.clone());
        let (mut server, mut remote) = (server(reference.clone()), remote(reference.clone()));
        server.has(config.clone());
        remote.has(config);
        let parameters = json!({"config": document, "server_name": "fetch", "transport": "streamable-http"});
        let entry = is_on.then(|| ("mcp-parser".to_owned(), parameters));
        assert_eq!(recorded(&server), (document.clone(), entry.clone()), "{spec}");
        assert_eq!(recorded(&remote), (document, entry), "{spec}");
        assert_eq!(condition(&server.plan(), "UnsupportedFields", "True"), None);
        assert_eq!(server.workload.warnings(&server.settings), Vec::<String>::new());
    }
}

#[test]
fn the_service_has_the_name_of_the_reference() {
    for (reference, name, attribute) in [
        (json!({"name": "traces"}), "fetch", "fetch"),
        (json!({"name": "traces", "serviceName": ""}), "fetch", "fetch"),
        (json!({"name": "traces", "serviceName": "of-us"}), "of-us", "of-us"),
        (
            json!({"name": "traces", "serviceName": "a, b=$(HOME) 100% ü"}),
            "a, b=$(HOME) 100% ü",
            "a%2C%20b%3D%24%28HOME%29%20100%25%20%C3%BC",
        ),
    ] {
        let (mut server, mut remote) = (server(reference.clone()), remote(reference));
        server.has(traces(json!({})));
        remote.has(traces(json!({})));
        for (document, deployment) in [
            (recorded(&server).0, deployment(&server.plan()).clone()),
            (recorded(&remote).0, deployment(&remote.plan()).clone()),
        ] {
            assert_eq!(document["serviceName"], name);
            assert_eq!(attributes(&deployment), format!("service.name={attribute},service.namespace=team"));
        }
    }
}

#[test]
fn sensitive_headers_are_variables_and_roll_the_proxy() {
    let reference = json!({"name": "traces"});
    let config = traces(json!({"sensitiveHeaders": sensitive(&["X-Api-Key", "authorization"])}));
    let (mut server, mut remote) = (server(reference.clone()), remote(reference));
    server.has(config.clone());
    remote.has(config.clone());
    for value in ["hunter2", "hunter3"] {
        server.secret("otel", "token", value);
        remote.secret("otel", "token", value);
        let (server, remote) = (server.plan(), remote.plan());
        for deployment in [deployment(&server), deployment(&remote)] {
            let names: Vec<_> = variables(deployment).into_iter().map(|(name, _)| name).collect();
            let header = |name: &str| format!("TOOLHIVE_OTEL_HEADER_{name}");
            assert_eq!(names, ["OTEL_RESOURCE_ATTRIBUTES".to_owned(), header("X_API_KEY"), header("AUTHORIZATION")]);
            let source = &variables(deployment)[1].1["valueFrom"]["secretKeyRef"];
            assert_eq!((&source["name"], &source["key"]), (&json!("otel"), &json!("token")));
            assert!(!deployment.to_string().contains("hunter"), "{deployment}");
        }
        assert!(!run_config(&server).contains("hunter") && !run_config(&server).to_lowercase().contains("api-key"));
    }
    let before = secrets_checksum(deployment(&server.plan())).clone();
    server.secret("otel", "token", "hunter4");
    assert!(before.is_string() && *secrets_checksum(deployment(&server.plan())) != before, "another value rolls");

    // A part that is turned off needs nothing.
    let mut off = config;
    off.spec.open_telemetry.as_mut().unwrap().enabled = false;
    server.data = mcp_plan::reference::Data::default();
    server.has(off);
    assert_eq!(variables(deployment(&server.plan())).len(), 1);
}

#[test]
fn another_bundle_of_the_collector_rolls_nothing() {
    let bundle = |name: &str, key: &str| json!({"caBundleRef": {"configMapRef": {"name": name, "key": key}}});
    for (name, key, volume, file) in [
        ("otel-ca", "ca.pem", "otel-ca-bundle-otel-ca", "ca.pem"),
        ("roots.v1", "", "otel-ca-bundle-roots-v1", "ca.crt"),
    ] {
        let mut world = server(json!({"name": "traces"}));
        world.has(traces(bundle(name, key)));
        world.config_map(name, file, &pem::authority());
        assert_eq!(recorded(&world).0["caCertPath"], format!("/config/certs/otel/{name}/{file}"));
        let plan = world.plan();
        let pod = &deployment(&plan)["spec"]["template"]["spec"];
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let mount = json!({"name": volume, "mountPath": format!("/config/certs/otel/{name}"), "readOnly": true});
        assert!(mounts.contains(&mount), "{mounts:?}");
        let source = json!({"name": volume, "configMap": {"name": name, "items": [{"key": file, "path": file}]}});
        assert!(pod["volumes"].as_array().unwrap().contains(&source), "{}", pod["volumes"]);

        world.config_map(name, file, &format!("{}{}", pem::authority(), pem::authority()));
        let after = world.plan();
        assert_eq!(deployment(&plan), deployment(&after), "the proxy reads it again");
        assert_eq!(plan.status.telemetry_config_hash, after.status.telemetry_config_hash);
    }
}

#[test]
fn the_hash_says_nothing_of_workloads() {
    let config = traces(json!({}));
    let mut statuses = Vec::new();
    for service in ["a", "b"] {
        let mut world = server(json!({"name": "traces", "serviceName": service}));
        world.has(config.clone());
        statuses.push(world.plan().status);
    }
    let config_hash = plan(&config, &[("MCPServer", "fetch")]).status.config_hash;
    assert!(config_hash.is_some());
    assert!(statuses.iter().all(|status| status.telemetry_config_hash == config_hash), "{statuses:?}");
    let hashes: BTreeSet<_> = [
        json!({}),
        json!({"insecure": true}),
        json!({"endpoint": "other:4318"}),
        json!({"tracing": {"enabled": true, "samplingRate": "0.5"}}),
        json!({"sensitiveHeaders": sensitive(&["a"])}),
        json!({"resourceAttributes": {"a": "b"}}),
    ]
    .into_iter()
    .map(|change| traces(change).hash())
    .collect();
    assert_eq!(hashes.len(), 6);
}

#[test]
fn an_edit_of_the_reference_rolls_and_takes_nothing_down() {
    let mut world = World::gated();
    world.has(traces(json!({})));
    world.applied(&world.plan());
    world.pods = vec![world.pod_of_now("Running", true, None)];
    world.applied(&world.plan());
    let gated = guards(&world.plan()).clone();
    for (reference, hash) in [
        (json!({"name": "traces"}), Some(traces(json!({})).hash())),
        (json!({"name": "traces", "serviceName": "other"}), Some(traces(json!({})).hash())),
        (Value::Null, None),
    ] {
        let before = checksum(&world.plan()).to_owned();
        world.workload.spec.telemetry_config_ref = serde_json::from_value(reference.clone()).unwrap();
        let plan = world.plan();
        assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"), "{:?}", plan.absent);
        assert_ne!(checksum(&plan), before, "{reference}: it rolls");
        assert_eq!(guards(&plan), &gated, "{reference}: no guard is another");
        assert_eq!(plan.status.telemetry_config_hash, hash, "{reference}");
        let said = condition(&plan, "TelemetryConfigRefValidated", "True");
        assert_eq!(said.map(|(reason, _)| reason), hash.map(|_| "TelemetryConfigRefValid".to_owned()), "{reference}");
        assert_eq!(plan.status.phase.unwrap().as_str(), "Ready", "{reference}");
        assert!(plan.events.is_empty(), "{reference}: {:?}", plan.events);
        world.applied(&plan);
        world.pods = vec![world.pod_of_now("Running", true, None)];
    }
}

#[test]
fn one_that_cannot_be_used_leaves_what_runs() {
    let missing = "MCPTelemetryConfig \"traces\" needs what does not exist: ";
    let bundle = json!({"caBundleRef": {"configMapRef": {"name": "otel-ca", "key": "ca.crt"}}});
    let cases = [
        (None, "TelemetryConfigRefNotFound", "MCPTelemetryConfig \"traces\" does not exist".to_owned()),
        (
            Some(traces(json!({"tracing": null}))),
            "TelemetryConfigRefInvalid",
            "is not valid: spec.openTelemetry.endpoint: requires at least one of".to_owned(),
        ),
        (
            Some(traces(json!({"sensitiveHeaders": sensitive(&["a"])}))),
            "TelemetryConfigRefInvalid",
            format!("{missing}spec.openTelemetry.sensitiveHeaders[0].secretKeyRef: Secret \"otel\" does not exist"),
        ),
        (
            Some(traces(bundle)),
            "TelemetryConfigRefInvalid",
            "ConfigMap otel-ca/ca.crt holds no PEM certificate".to_owned(),
        ),
    ];
    for (config, reason, words) in cases {
        let mut world = World::gated();
        world.config_map("otel-ca", "ca.crt", "no PEM");
        world.applied(&world.plan());
        world.pods = vec![world.pod_of_now("Running", true, None)];
        world.workload.spec.telemetry_config_ref = serde_json::from_value(json!({"name": "traces"})).unwrap();
        if let Some(config) = config {
            world.has(config);
        }
        let plan = world.plan();
        let (said, message) = condition(&plan, "TelemetryConfigRefValidated", "False").unwrap();
        assert!(said == reason && message.contains(&words), "{said}: {message}");
        assert!(plan.children.is_empty() && plan.absent.is_empty(), "{reason}: {:?}", plan.absent);
        assert_eq!(
            (plan.status.phase.unwrap().as_str(), plan.status.telemetry_config_hash),
            ("Failed", None),
            "{reason}"
        );
        assert!(plan.status.message.unwrap().ends_with("; what runs already is left as it is"));
        assert_eq!(condition(&world.plan(), "CABundleRefValidated", "False"), None, "that is about the login's");
    }
    let refused = remote(json!({"name": "traces"})).plan().status.message.unwrap();
    assert_eq!(
        refused,
        "Failed to handle MCPTelemetryConfig: spec.telemetryConfigRef: MCPTelemetryConfig \"traces\" does not exist; create it"
    );
}

#[test]
fn an_image_without_telemetry_gets_none() {
    let mut world = server(json!({"name": "traces"}));
    world.has(traces(json!({"sensitiveHeaders": sensitive(&["a"])})));
    world.settings.runner_middleware.retain(|kind| kind != "telemetry");
    let said = "spec.telemetryConfigRef has no effect with the image of the proxy, which does not have it";
    let plan = world.plan();
    assert_eq!(condition(&plan, "UnsupportedFields", "True").unwrap().1, said);
    assert_eq!(world.workload.warnings(&world.settings), [said]);
    assert_eq!((recorded(&world), variables(deployment(&plan))), ((Value::Null, None), Vec::new()));
}

#[test]
fn attributes_in_a_variable_have_no_effect() {
    let said = "spec.resourceOverrides.proxyDeployment.env[OTEL_RESOURCE_ATTRIBUTES] has no effect: ";
    let env = [("OTEL_RESOURCE_ATTRIBUTES", "team=a"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    let env = env.map(|(name, value)| json!({"name": name, "value": value}));
    let overrides: ResourceOverrides = serde_json::from_value(json!({"proxyDeployment": {"env": env}})).unwrap();
    for (reference, count) in [(json!({"name": "traces"}), 1), (Value::Null, 0)] {
        let (mut server, mut remote) = (server(reference.clone()), remote(reference.clone()));
        server.workload.spec.resource_overrides = Some(overrides.clone());
        remote.workload.spec.resource_overrides = Some(overrides.clone());
        for warnings in [server.workload.warnings(&server.settings), remote.workload.warnings(&remote.settings)] {
            let found = warnings.iter().filter(|warning| warning.starts_with(said)).count();
            assert_eq!(found, count, "{reference}: {warnings:?}");
        }
    }
}

#[test]
fn every_rule_that_it_breaks_is_said_with_its_field() {
    let endpoint = "spec.openTelemetry.endpoint";
    let bundle = "spec.openTelemetry.caBundleRef";
    let reference = |name: &str| json!({"configMapRef": {"name": name, "key": "ca.crt"}});
    let name = "spec.openTelemetry.sensitiveHeaders[0].name";
    let secret = |name: &str, key: &str| json!([{"name": "a", "secretKeyRef": {"name": name, "key": key}}]);
    let cases = [
        (json!({"tracing": null}), vec![endpoint]),
        (json!({"tracing": {}, "metrics": {}}), vec![endpoint]),
        (json!({"tracing": null, "metrics": {"enabled": true}}), vec![]),
        (json!({"endpoint": "", "tracing": null}), vec![]),
        (json!({"endpoint": "otel"}), vec![]),
        (json!({"endpoint": "http://[::1]:4318"}), vec![]),
        (json!({"endpoint": "otel.example/otlp"}), vec![]),
        (json!({"endpoint": "grpc://otel:4317"}), vec![endpoint]),
        (json!({"endpoint": "https://"}), vec![endpoint]),
        (json!({"endpoint": "https://user:word@otel:4317"}), vec![endpoint]),
        (json!({"endpoint": "otel:4317?x=y"}), vec![endpoint]),
        (json!({"endpoint": "o tel"}), vec![endpoint]),
        (json!({"endpoint": "169.254.169.254:4318"}), vec![endpoint]),
        (json!({"endpoint": "http://10.0.0.1:4318"}), vec![]),
        (json!({"caBundleRef": reference("ca"), "insecure": true}), vec![bundle]),
        (json!({"caBundleRef": reference(&"a".repeat(48))}), vec![]),
        (json!({"caBundleRef": reference(&"a".repeat(49))}), vec!["spec.openTelemetry.caBundleRef.configMapRef.name"]),
        (json!({"caBundleRef": {}}), vec!["spec.openTelemetry.caBundleRef.configMapRef.name"]),
        (json!({"sensitiveHeaders": secret("", "key")}), vec!["spec.openTelemetry.sensitiveHeaders[0].secretKeyRef"]),
        (json!({"sensitiveHeaders": secret("name", "")}), vec!["spec.openTelemetry.sensitiveHeaders[0].secretKeyRef"]),
        (json!({"sensitiveHeaders": sensitive(&["X-Api-Key", "api-key2"])}), vec![]),
        (json!({"sensitiveHeaders": sensitive(&["x_api_key"])}), vec![name]),
        (json!({"sensitiveHeaders": sensitive(&["x.api"])}), vec![name]),
        (json!({"sensitiveHeaders": sensitive(&["x api"])}), vec![name]),
        (
            json!({"sensitiveHeaders": sensitive(&["X-Api", "x-api"])}),
            vec!["spec.openTelemetry.sensitiveHeaders[1].name"],
        ),
        (json!({"headers": {"X-Api": "1"}, "sensitiveHeaders": sensitive(&["x-api"])}), vec![name]),
        (json!({"headers": {"X-Api": "1", "x-api": "2"}}), vec!["spec.openTelemetry.headers[x-api]"]),
        (json!({"headers": {"x_api": "1"}, "sensitiveHeaders": sensitive(&["x-api"])}), vec![]),
        (json!({"headers": {"x api": "1"}}), vec!["spec.openTelemetry.headers[x api]"]),
        (json!({"headers": {"x-api": "two\nlines"}}), vec!["spec.openTelemetry.headers[x-api]"]),
        (json!({"headers": {"Content-Type": "x"}}), vec!["spec.openTelemetry.headers[Content-Type]"]),
        (json!({"sensitiveHeaders": sensitive(&["grpc-timeout"])}), vec![name]),
    ];
    let settings = server(Value::Null).settings;
    for (change, fields) in cases {
        let config = traces(change.clone());
        let found: Vec<_> = config.every_problem(&settings).into_iter().map(|problem| problem.field).collect();
        assert_eq!(found, fields, "{change}");
        let (status, reason, message) = says(&plan(&config, &[]), "Valid").unwrap();
        let expected = if fields.is_empty() { ("True", "ValidationSucceeded") } else { ("False", "ValidationFailed") };
        assert_eq!((&*status, &*reason), expected, "{change}: {message}");
    }
    assert!(telemetry_config("traces", json!({})).problems().is_empty());
}

#[test]
fn what_has_less_effect_than_its_author_may_think_is_warned_of() {
    let settings = server(Value::Null).settings;
    for (change, said) in [
        (json!({}), None),
        (json!({"enabled": false}), Some("spec.openTelemetry.endpoint: has no effect without enabled: true")),
        (json!({"endpoint": null}), Some("spec.openTelemetry: nothing is sent without endpoint")),
        (json!({"endpoint": "http://otel:4318"}), Some("spec.openTelemetry.endpoint: http:// has no effect")),
        (json!({"insecure": true}), Some("spec.openTelemetry.endpoint: https:// has no effect")),
        (json!({"endpoint": "http://otel:4318", "insecure": true}), None),
        (
            json!({"endpoint": "otel:4318", "insecure": true, "sensitiveHeaders": sensitive(&["a"])}),
            Some("spec.openTelemetry.sensitiveHeaders: the values are sent in clear text"),
        ),
    ] {
        let warnings = traces(change.clone()).warnings(&settings);
        assert_eq!(warnings.len(), usize::from(said.is_some()), "{change}: {warnings:?}");
        assert!(said.is_none_or(|said| warnings[0].starts_with(said)), "{change}: {warnings:?}");
    }
}
