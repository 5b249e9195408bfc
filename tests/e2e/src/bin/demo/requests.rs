//! The request gate: which calls may pass, and in what form.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};
use portcullis_e2e::client::{Called, McpClient};
use portcullis_e2e::gate::Gate;
use portcullis_e2e::runner::Runner;
use portcullis_e2e::stage::settled;
use serde_json::Value;

use crate::objects::{expect_taken, run_config, text};
use crate::say::{chapter, shown, step};

const GATED: &str = "gated-greeter";
const MUTATING: &str = "mutating-webhook";
const CHECKSUM: &str = "toolhive.stacklok.dev/runconfig-checksum";

/// A call passes mutating and validating webhooks, and what an edit of their config changes.
pub(crate) async fn gated(client: &Client, namespace: &str, backend: SocketAddr, folder: &Path) -> Result<()> {
    step("starting a request webhook (HTTPS, signatures checked): it calls bob by his full name, and refuses mallory");
    let gate = Gate::start(b"demo-signing-key").await?;
    expect_taken(client, &gate.secret(namespace)?).await?;
    for object in gate.manifests(namespace)? {
        step(&format!("applying {} {}", text(&object["kind"]), text(&object["metadata"]["name"])));
        expect_taken(client, &object).await?;
    }
    let checksum = rolled(client, namespace, None).await?;
    step(
        "starting mcp-runner in front, on the bytes of the ConfigMap that the operator wrote and the Secrets that its Deployment mounts",
    );
    let runner = Runner::start(client, namespace, GATED, backend, folder).await?;
    calls(&runner, Called::Answered("Hi Robert".to_owned())).await?;

    chapter("An edit of the MCPWebhookConfig reaches the running gate");
    let before = chain(client, namespace).await?;
    step("taking the mutating webhook out of MCPWebhookConfig greeting-policy");
    let mut edited = gate.manifests(namespace)?.remove(0);
    edited["spec"].as_object_mut().context("the config has a spec")?.remove("mutating");
    expect_taken(client, &edited).await?;
    rolled(client, namespace, Some(&checksum)).await?;
    let after = chain(client, namespace).await?;
    ensure!(before != after && !after.iter().any(|kind| kind == MUTATING), "the RunConfig did not follow: {after:?}");
    step("the operator wrote the RunConfig again; a call now passes, in order:");
    shown(&format!("before: {}\nafter:  {}", before.join(", "), after.join(", ")));
    step("and put its new checksum on the Deployment's pod template, which rolls the proxy's pods");
    step("a new pod would start now; here the runner is drained and started again on the new bytes");
    runner.stop().await?;
    let runner = Runner::start(client, namespace, GATED, backend, folder).await?;
    calls(&runner, Called::Answered("Hi bob".to_owned())).await?;
    runner.stop().await.map(drop)
}

/// The types of the middleware that a call of the gated server passes, in order.
async fn chain(client: &Client, namespace: &str) -> Result<Vec<String>> {
    let document: Value = serde_json::from_str(&run_config(client, namespace, GATED).await?)?;
    let entries = document["middleware_configs"].as_array().context("the RunConfig has no middleware")?;
    Ok(entries.iter().map(|entry| text(&entry["type"]).to_owned()).collect())
}

/// The checksum on the pod template, once it is another than `before`.
async fn rolled(client: &Client, namespace: &str, before: Option<&str>) -> Result<String> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    settled("the checksum on the proxy's pod template", async || {
        let deployment = deployments.get_opt(GATED).await?;
        let template = deployment.and_then(|deployment| deployment.spec?.template.metadata);
        let checksum = template.and_then(|metadata| metadata.annotations?.get(CHECKSUM).cloned());
        Ok(checksum.filter(|checksum| Some(checksum.as_str()) != before))
    })
    .await
}

async fn calls(runner: &Runner, bob: Called) -> Result<()> {
    step("an MCP client of the official Rust SDK calls the tool `greet` through the gate:");
    let client = McpClient::connect(&runner.url).await?;
    ensure!(client.tools().await?.iter().any(|tool| tool == "greet"), "the server has no tool `greet`");
    let refused = Called::Refused { code: 403, message: "Request denied by policy".to_owned() };
    for (name, expected) in [("Ada", Called::Answered("Hi Ada".to_owned())), ("bob", bob), ("mallory", refused)] {
        let called = client.greet(name).await?;
        ensure!(
            called == expected,
            "greet({name}) gave {called:?} instead of {expected:?}; the runner's log:\n{}",
            runner.log()
        );
        let outcome = match &called {
            Called::Answered(answer) if answer.ends_with(name) => format!("passed:  the tool answers '{answer}'"),
            Called::Answered(answer) => format!("mutated: the tool saw another argument, and answers '{answer}'"),
            Called::Refused { code, message } => format!("denied:  JSON-RPC error {code}, '{message}'"),
        };
        shown(&format!("greet({name}) {outcome}"));
    }
    client.close().await
}
