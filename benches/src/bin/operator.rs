//! The operator with N MCPServers (300, or the number given): time to all children, writes per server by resource, CPU and memory until quiet, then writes at
//! rest, after a foreign client has annotated every Deployment, and after a restart with nothing changed. Writes are counted in the API server's audit log.
#![allow(clippy::print_stdout, reason = "the figures are the result")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use portcullis_benches::proc;
use portcullis_e2e::apply::apply;
use portcullis_e2e::stage::{OPERATOR_USER, Stage, settled};
use portcullis_testing::Mark;
use serde::de::DeserializeOwned;
use serde_json::json;

/// No write for this long means that the operator is quiet.
const QUIET: Duration = Duration::from_secs(5);
const REST: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "bench";

#[tokio::main]
async fn main() -> Result<()> {
    let servers: usize = std::env::args()
        .nth(1)
        .map_or(Ok(300), |number| number.parse())
        .context("usage: operator [NUMBER OF SERVERS]")?;
    let stage = Stage::start(|step| println!("- {step}")).await?;
    let client = stage.cluster.admin();
    let namespace = stage.cluster.namespace(NAMESPACE).await;
    let pid = stage.operator_pid().context("the operator has no pid")?;

    println!("- creating {servers} MCPServers at once");
    let (mark, cpu, start) = (stage.cluster.audit().mark(), proc::cpu(pid)?, Instant::now());
    create(&client, &namespace, servers).await?;
    wait_for_children(&client, &namespace, servers).await?;
    println!("all children present     {:.1} s", start.elapsed().as_secs_f64());
    quiet(&stage, mark).await;
    let (_, peak) = proc::memory_kib(pid)?;
    let used = proc::cpu(pid)?.saturating_sub(cpu);
    report_writes(&stage, mark, servers).await;
    println!("CPU until quiet          {:.2} s", used.as_secs_f64());
    println!("peak RSS                 {} MiB", peak / 1024);

    let mark = stage.cluster.audit().mark();
    tokio::time::sleep(REST).await;
    println!("writes in {} s at rest   {}", REST.as_secs(), writes(&stage, mark).await.len());

    let mark = stage.cluster.audit().mark();
    annotate(&client, &namespace).await?;
    quiet(&stage, mark).await;
    println!("writes after a foreign annotation on each Deployment   {}", writes(&stage, mark).await.len());

    let mark = stage.cluster.audit().mark();
    let stage = stage.restart_operator().await?;
    tokio::time::sleep(QUIET).await;
    quiet(&stage, mark).await;
    println!("writes after a restart with nothing changed            {}", writes(&stage, mark).await.len());
    stage.stop().await
}

async fn create(client: &Client, namespace: &str, servers: usize) -> Result<()> {
    let created = (0..servers).map(|index| async move {
        let server = json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer",
            "metadata": { "name": format!("server-{index:04}"), "namespace": namespace },
            "spec": { "image": "localhost/everything:v1.8.0", "transport": "streamable-http", "mcpPort": 3001 },
        });
        apply(client, &server).await?.map_err(|refusal| anyhow::anyhow!("refused: {}", refusal.message))
    });
    stream::iter(created).buffer_unordered(16).try_collect::<Vec<_>>().await.map(drop)
}

/// Each server has a Deployment, a StatefulSet, three Services, a ConfigMap and two ServiceAccounts.
async fn wait_for_children(client: &Client, namespace: &str, servers: usize) -> Result<()> {
    at_least::<Deployment>(client, namespace, servers).await?;
    at_least::<StatefulSet>(client, namespace, servers).await?;
    at_least::<Service>(client, namespace, 3 * servers).await?;
    at_least::<ConfigMap>(client, namespace, servers).await?;
    at_least::<ServiceAccount>(client, namespace, 2 * servers).await
}

async fn at_least<K>(client: &Client, namespace: &str, number: usize) -> Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let what = format!("{number} {}s", K::kind(&()));
    settled(&what, async || Ok((api.list_metadata(&ListParams::default()).await?.items.len() >= number).then_some(())))
        .await
}

async fn annotate(client: &Client, namespace: &str) -> Result<()> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(
        json!({ "metadata": { "annotations": { "foreign.example/seen": "yes" }, "labels": { "foreign": "yes" } } }),
    );
    for deployment in api.list_metadata(&ListParams::default()).await? {
        api.patch(deployment.metadata.name.as_deref().unwrap_or_default(), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

/// `group/resource[/subresource]` of each of the operator's writes, Leases aside.
async fn writes(stage: &Stage, mark: Mark) -> Vec<String> {
    let events = stage.cluster.audit().writes_by(OPERATOR_USER, mark).await;
    let events = events.into_iter().filter(|event| event.resource != "leases");
    events
        .map(|event| {
            format!(
                "{} {}{}{}",
                event.verb,
                event.resource,
                if event.subresource.is_empty() { "" } else { "/" },
                event.subresource
            )
        })
        .collect()
}

async fn quiet(stage: &Stage, mark: Mark) {
    let mut before = usize::MAX;
    loop {
        let now = writes(stage, mark).await.len();
        if now == before {
            return;
        }
        before = now;
        tokio::time::sleep(QUIET).await;
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures to look at")]
async fn report_writes(stage: &Stage, mark: Mark, servers: usize) {
    let all = writes(stage, mark).await;
    println!("writes per server        {:.1}", all.len() as f64 / servers as f64);
    let mut by_resource: BTreeMap<String, usize> = BTreeMap::new();
    for write in all {
        *by_resource.entry(write).or_default() += 1;
    }
    for (write, count) in by_resource {
        println!("  {write:<40} {:.2}", count as f64 / servers as f64);
    }
}
