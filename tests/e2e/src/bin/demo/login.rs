//! A login: who may call.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DeleteParams;
use kube::{Api, Client};
use portcullis_e2e::challenge::{initialize, metadata};
use portcullis_e2e::client::{Called, McpClient};
use portcullis_e2e::login::{AUDIENCE, manifests};
use portcullis_e2e::runner::Runner;
use portcullis_e2e::stage::settled;
use portcullis_identity::Provider;
use serde_json::{Value, json};

use crate::objects::{dynamic, expect_taken, servers, text};
use crate::say::{shown, step};

const CONFIG: &str = "staff";
const SERVER: &str = "staff-greeter";

/// Callers without a token, with one for another server, and with the right one; and who refers to the config.
pub(crate) async fn login(client: &Client, namespace: &str, backend: SocketAddr, folder: &Path) -> Result<()> {
    step("starting a real identity provider that is not ours: the example of Zitadel's OpenID Connect library");
    let mut provider = Provider::zitadel().await?;
    for object in manifests(&provider, namespace)? {
        step(&format!("applying {} {}", text(&object["kind"]), text(&object["metadata"]["name"])));
        expect_taken(client, &object).await?;
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    settled("the proxy of staff-greeter", async || Ok(deployments.get_opt(SERVER).await?)).await?;
    let runner = Runner::start(client, namespace, SERVER, backend, folder).await?;
    calls(&runner, &provider).await?;
    runner.stop().await?;

    step("`kubectl get mcpoidcconfig staff -o yaml` says who refers to it:");
    referrers(client, namespace, &json!([{ "kind": "MCPServer", "name": SERVER }])).await?;
    shown(&format!("status:\n  referencingWorkloads:\n  - kind: MCPServer\n    name: {SERVER}"));
    step("and when MCPServer staff-greeter is deleted, no one:");
    servers(client, namespace).delete(SERVER, &DeleteParams::default()).await?;
    referrers(client, namespace, &json!([])).await?;
    shown("status:\n  referencingWorkloads: []");
    provider.stop().await
}

async fn calls(runner: &Runner, provider: &Provider) -> Result<()> {
    step("a call without a token is answered with a challenge, which leads a client to the identity provider:");
    let challenged = initialize(&runner.url, None).await?;
    ensure!(challenged.status == 401, "a call without a token gave {challenged:?}");
    let challenge = challenged.challenge.as_deref().context("a 401 has no challenge")?;
    shown(&format!("401, WWW-Authenticate: {}", challenge.replace(", ", ",\n                       ")));
    let metadata = metadata(&runner.url, &challenged).await?;
    ensure!(metadata["authorization_servers"] == json!([provider.issuer()]), "the metadata are {metadata}");
    shown(&format!("its metadata:          {metadata}"));

    step("the provider gives tokens to a client (client credentials), for the audience that it asks for:");
    let foreign = provider.token("https://another.example/mcp").await?;
    let refused = initialize(&runner.url, Some(&foreign)).await?;
    ensure!(refused.status == 401, "a token for another server gave {refused:?}");
    shown(&format!("for https://another.example/mcp   denied:  401, {}", refused.body.trim_end()));
    let client = McpClient::connect_as(&runner.url, &provider.token(AUDIENCE).await?).await?;
    let called = client.greet("Ada").await?;
    ensure!(called == Called::Answered("Hi Ada".to_owned()), "greet(Ada) gave {called:?}");
    shown(&format!("for {AUDIENCE}   passed:  greet(Ada) answers 'Hi Ada'"));
    client.close().await
}

/// Waits until the config's status names these workloads.
async fn referrers(client: &Client, namespace: &str, expected: &Value) -> Result<()> {
    let configs = dynamic(client, namespace, "toolhive.stacklok.dev", "v1beta1", "MCPOIDCConfig");
    settled(&format!("the status of {CONFIG} to name {expected}"), async || {
        let found = configs.get(CONFIG).await?.data["status"]["referencingWorkloads"].take();
        let found = if found.is_null() { json!([]) } else { found };
        Ok((found == *expected).then_some(()))
    })
    .await
}
