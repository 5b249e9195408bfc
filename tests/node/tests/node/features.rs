//! Twenty servers of different features, applied at once.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use kube::api::ListParams;
use mcp_api::v1beta1::{MCPServer, Phase};
use portcullis_node::greeter::{self, Route, SSE, STDIO, STDIO_BEHIND_SSE};
use portcullis_node::{Calls, Namespace, Node, Outcome, POD_IMAGE, install_operator};
use portcullis_testing::wait_until;
use serde_json::{Value, json};

/// The time that forty pods may take to start on two cores.
const STARTED: Duration = Duration::from_mins(8);
/// Clients that run at once.
const CLIENTS: usize = 4;
const AUDIENCE: &str = "features";

/// A feature, and how a client sees that it reached the server's process or the gate before it.
struct Feature {
    name: &'static str,
    members: Value,
    /// Arguments of the tool `inspect`; with none, `greet` is called.
    inspect: Option<Value>,
    greeted: &'static str,
    audience: Option<&'static str>,
    /// The text that the answer contains.
    expected: &'static str,
}

fn seen_by_inspect(name: &'static str, members: Value, inspect: Value, expected: &'static str) -> Feature {
    Feature { name, members, inspect: Some(inspect), greeted: "", audience: None, expected }
}

fn seen_by_greet(name: &'static str, members: Value, greeted: &'static str, expected: &'static str) -> Feature {
    Feature { name, members, inspect: None, greeted, audience: None, expected }
}

/// `greet` says it when the mutating webhook has seen the call.
fn webhook() -> Feature {
    seen_by_greet("webhook", json!({ "webhookConfigRef": { "name": "policy" } }), "bob", "Hi Robert")
}

fn environment(members: Value) -> Feature {
    let mut all = json!({ "env": [{ "name": "COLOUR", "value": "green" }] });
    all.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    seen_by_inspect("env", all, json!({ "env": ["COLOUR"] }), r#""env":{"COLOUR":"green"}"#)
}

fn of_every_transport(route: &Route) -> Vec<Feature> {
    let mut arguments = route.spec(json!({}))["args"].as_array().unwrap().clone();
    arguments.extend([json!("one"), json!("two words")]);
    let secrets =
        json!([{ "name": "keys", "key": "token", "targetEnvName": "API_KEY" }, { "name": "keys", "key": "other" }]);
    let volumes = json!([{ "name": "etc", "hostPath": "/etc", "mountPath": "/node", "readOnly": true }]);
    let mounts = json!([{ "name": "settings", "mountPath": "/settings" }]);
    let template = json!({
        "volumes": [{ "name": "settings", "configMap": { "name": "settings" } }],
        "containers": [{ "name": "mcp", "volumeMounts": mounts }],
    });
    let team = json!({ "team": "a" });
    let overrides = json!({
        "proxyDeployment": { "annotations": team, "podTemplateMetadataOverrides": { "labels": team } },
        "proxyService": { "annotations": team },
    });
    let login = json!({ "oidcConfigRef": { "name": "cluster", "audience": AUDIENCE } });
    vec![
        seen_by_inspect("arguments", json!({ "args": arguments }), json!({}), r#""one","two words"]"#),
        environment(json!({})),
        seen_by_inspect(
            "secrets",
            json!({ "secrets": secrets }),
            json!({ "env": ["API_KEY", "other"] }),
            r#""env":{"API_KEY":"s3cret","other":"hidden"}"#,
        ),
        seen_by_inspect("volume", json!({ "volumes": volumes }), json!({ "file": "/node/passwd" }), "root:"),
        seen_by_inspect(
            "template",
            json!({ "podTemplateSpec": { "spec": template } }),
            json!({ "file": "/settings/greeting" }),
            r#""file":"hello""#,
        ),
        seen_by_greet("overrides", json!({ "resourceOverrides": overrides }), "Ada", "Hi Ada"),
        webhook(),
        Feature { audience: Some(AUDIENCE), ..seen_by_greet("login", login, "Ada", "Hi Ada") },
    ]
}

fn table() -> Vec<(Route, Feature)> {
    let user = json!({ "containers": [{ "name": "mcp", "securityContext": { "runAsUser": 2000 } }] });
    let tools = json!({ "toolConfigRef": { "name": "inspect-only" } });
    let stdio = [
        seen_by_inspect("user", json!({ "podTemplateSpec": { "spec": user } }), json!({}), r#""uid":2000"#),
        seen_by_inspect("tools", tools, json!({}), r#""args":["serve","stdio"]"#),
    ];
    let behind_sse = [environment(json!({ "proxyPort": 9090 })), webhook()];
    let on = |route: Route, features: Vec<Feature>| features.into_iter().map(move |feature| (route, feature));
    on(STDIO, of_every_transport(&STDIO))
        .chain(on(SSE, of_every_transport(&SSE)))
        .chain(on(STDIO, stdio.into()))
        .chain(on(STDIO_BEHIND_SSE, behind_sse.into()))
        .collect()
}

fn name(route: &Route, feature: &Feature) -> String {
    format!("{}-{}", route.name, feature.name)
}

/// Creates the objects that the servers refer to.
async fn prepare(namespace: &Namespace) {
    let healthy = json!({ "httpGet": { "path": "/healthz", "port": 8443, "scheme": "HTTPS" } });
    namespace.serve("policy", POD_IMAGE, &["webhook", "-listen", ":8443"], 8443, healthy).await;
    let config = |kind: &str, name: &str, spec: Value| {
        let version = if kind == "MCPWebhookConfig" { "v1alpha1" } else { "v1beta1" };
        let version = format!("toolhive.stacklok.dev/{version}");
        json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": spec })
    };
    let url = format!("https://policy.{}.svc.cluster.local:8443/mutate", namespace.name);
    let webhook =
        json!({ "name": "policy", "url": url, "failurePolicy": "fail", "tlsConfig": { "insecureSkipVerify": true } });
    let cluster = json!({ "issuer": "https://kubernetes.default.svc.cluster.local" });
    let login = json!({ "type": "kubernetesServiceAccount", "kubernetesServiceAccount": cluster });
    namespace
        .apply([
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys" },
                "stringData": { "token": "s3cret", "other": "hidden" },
            }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" },
                "data": { "greeting": "hello" },
            }),
            config("MCPWebhookConfig", "policy", json!({ "mutating": [webhook] })),
            config("MCPOIDCConfig", "cluster", login),
            config("MCPToolConfig", "inspect-only", json!({ "toolsFilter": ["inspect"] })),
        ])
        .await;
}

async fn all_are_ready(namespace: &Namespace, names: &BTreeSet<String>) {
    wait_until("all servers to be ready", STARTED, || async {
        let servers = namespace.api::<MCPServer>().list(&ListParams::default()).await.ok()?;
        let ready = servers
            .iter()
            .filter(|server| server.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Ready)));
        (ready.map(kube::ResourceExt::name_any).collect::<BTreeSet<_>>() == *names).then_some(())
    })
    .await;
}

async fn is_answered(namespace: &Namespace, route: &Route, feature: &Feature) {
    let name = name(route, feature);
    let url = greeter::ready(namespace, &name).await;
    let era = route.eras.last().unwrap();
    let Feature { inspect, greeted, audience, expected, .. } = feature;
    let calls = Calls {
        era,
        transport: route.client,
        audience: *audience,
        inspect: inspect.clone(),
        ..Calls::of(&url, greeted)
    };
    let caller = namespace.call(calls).await;
    caller
        .next(
            &format!("an answer of {name} with {expected}"),
            |outcome| matches!(outcome, Outcome::Answered { text } if text.contains(expected)),
        )
        .await;
    caller.finish().await;
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn twenty_servers_of_different_features_start_and_answer() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("features").await;
    prepare(&namespace).await;
    let table = table();
    let names: BTreeSet<String> = table.iter().map(|(route, feature)| name(route, feature)).collect();
    assert_eq!(names.len(), 20);
    namespace
        .apply(
            table
                .iter()
                .map(|(route, feature)| greeter::manifest(&name(route, feature), route.spec(feature.members.clone()))),
        )
        .await;
    all_are_ready(&namespace, &names).await;
    futures::stream::iter(&table)
        .for_each_concurrent(CLIENTS, |(route, feature)| is_answered(&namespace, route, feature))
        .await;
    for overridden in ["stdio-overrides", "sse-overrides"] {
        let deployment = namespace.api::<Deployment>().get(overridden).await.unwrap();
        let template = deployment.spec.as_ref().unwrap().template.metadata.clone().unwrap();
        let service = namespace.api::<Service>().get(&format!("mcp-{overridden}-proxy")).await.unwrap();
        let found =
            [&deployment.annotations()["team"], &template.labels.unwrap()["team"], &service.annotations()["team"]];
        assert_eq!(found, ["a"; 3], "{overridden}");
    }
}
