//! A tool filter: which tools clients see, and under which names.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};
use portcullis_e2e::client::{Called, McpClient};
use portcullis_e2e::gate::in_namespace;
use portcullis_e2e::runner::Runner;
use portcullis_e2e::stage::settled;

use crate::objects::expect_taken;
use crate::say::{shown, step};

const FILTERED: &str = include_str!("../../../../../examples/tool-filter.yaml");

pub(crate) async fn filtered(client: &Client, namespace: &str, backend: SocketAddr, folder: &Path) -> Result<()> {
    step("applying examples/tool-filter.yaml: it shows `ping`, and `greet` under the name `hello`");
    for object in in_namespace(FILTERED, namespace)? {
        expect_taken(client, &object).await?;
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    settled("the proxy of filtered-greeter", async || Ok(deployments.get_opt("filtered-greeter").await?)).await?;
    let runner = Runner::start(client, namespace, "filtered-greeter", backend, folder).await?;
    step("an MCP client lists the tools, and calls one by its new and by its old name:");
    let mcp = McpClient::connect(&runner.url).await?;
    let mut tools = mcp.tools().await?;
    tools.sort();
    ensure!(tools == ["hello", "ping"], "clients see {tools:?}");
    shown(&format!("tools/list     {}", tools.join(", ")));
    let called = mcp.greet_by("hello", "Ada").await?;
    ensure!(called == Called::Answered("Hi Ada".to_owned()), "hello(Ada) gave {called:?}");
    shown("hello(Ada)     passed:  the tool `greet` answers 'Hi Ada'");
    let Called::Refused { code, message } = mcp.greet("Ada").await? else {
        anyhow::bail!("a tool was called by a name that clients do not see");
    };
    shown(&format!("greet(Ada)     denied:  JSON-RPC error {code}, '{message}'"));
    mcp.close().await?;
    runner.stop().await.map(drop)
}
