//! The MCP operator with N MCPServers: writes per server by resource, CPU time and memory until quiet, then writes and CPU time at rest, after a foreign
//! client has annotated every Deployment, and after a restart with nothing changed, and reads at rest. With `--baseline`, all of it with an older binary at the same time, on a
//! control plane of its own with the CRDs, roles and webhooks that the older binary generates. Requests are counted in the API server's audit log.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the figures are the result")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use portcullis_benches::proc;
use portcullis_benches::webhook::figures::mebibytes;
use portcullis_e2e::apply::apply;
use portcullis_e2e::process::binary;
use portcullis_e2e::stage::{OPERATOR_USER, Stage};
use portcullis_testing::Mark;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// No write for this long means that the operator is quiet.
const QUIET: Duration = Duration::from_secs(5);
const REST: Duration = Duration::from_mins(1);
/// Longest time until all children are there.
const PATIENCE: Duration = Duration::from_mins(10);
const NAMESPACE: &str = "bench";

/// Writes, CPU time and memory of the MCP operator
#[derive(Parser, Debug)]
struct Flags {
    /// MCPServers to create
    #[arg(default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    servers: u32,
    /// Binary of an older operator to compare with
    #[arg(long, value_name = "PATH")]
    baseline: Option<PathBuf>,
    /// Output format of the figures
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

/// The cost of one operator.
#[derive(Debug, Serialize)]
struct Figures {
    operator: &'static str,
    servers: u32,
    /// From the first create until all children are there, in seconds.
    children_after: f64,
    until_quiet: Cost,
    at_rest: Cost,
    after_annotations: Cost,
    after_restart: Cost,
}

/// The cost of one phase.
#[derive(Debug, Serialize)]
struct Cost {
    /// CPU time of the operator, in seconds.
    cpu: f64,
    /// The most that was resident since the operator started, in MiB.
    peak: f64,
    /// Number of writes, Leases aside, by verb and resource.
    writes: BTreeMap<String, u32>,
    /// Number of reads, Leases and watches aside.
    reads: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Flags { servers, baseline, output } = Flags::parse();
    let operators =
        baseline.map(|path| ("baseline", path)).into_iter().chain([("this build", binary("mcp-operator")?)]);
    // All at the same time: CPU times depend on what else the machine does.
    let all = try_join_all(operators.map(|(operator, path)| measure(operator, path, servers))).await?;
    match output {
        Output::Table => println!("{}", table(&all, servers)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&all)?),
    }
    Ok(())
}

async fn measure(operator: &'static str, path: PathBuf, servers: u32) -> Result<Figures> {
    let step = |step: &str| eprintln!("{operator}: {step}");
    step(&path.display().to_string());
    let stage = Stage::start_binary(path, step).await?;
    let client = stage.cluster.admin();
    let namespace = stage.cluster.namespace(NAMESPACE).await;

    step(&format!("creating {servers} MCPServers at once"));
    let (phase, start) = (Phase::begin(&stage)?, Instant::now());
    create(&client, &namespace, servers).await?;
    wait_for_children(&client, &namespace, usize::try_from(servers)?).await?;
    let children_after = start.elapsed().as_secs_f64();
    let until_quiet = phase.quiet(&stage).await?;

    step(&format!("leaving them alone for {} s", REST.as_secs()));
    let phase = Phase::begin(&stage)?;
    tokio::time::sleep(REST).await;
    let at_rest = phase.end(&stage).await?;

    step("annotating every Deployment");
    let phase = Phase::begin(&stage)?;
    annotate(&client, &namespace).await?;
    let after_annotations = phase.quiet(&stage).await?;

    step("restarting the operator");
    let mark = stage.cluster.audit().mark();
    let stage = stage.restart_operator().await?;
    tokio::time::sleep(QUIET).await;
    let after_restart = Phase { mark, cpu: Duration::ZERO }.quiet(&stage).await?;
    stage.stop().await?;
    Ok(Figures { operator, servers, children_after, until_quiet, at_rest, after_annotations, after_restart })
}

async fn create(client: &Client, namespace: &str, servers: u32) -> Result<()> {
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

/// Waits for the children that a server has in every version: a Deployment, a StatefulSet, three Services, a ConfigMap
/// and two ServiceAccounts.
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
    let start = Instant::now();
    while api.list_metadata(&ListParams::default()).await?.items.len() < number {
        ensure!(start.elapsed() < PATIENCE, "waited in vain for {number} {}s", K::kind(&()));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
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

/// A phase that is being measured: where it began.
struct Phase {
    mark: Mark,
    cpu: Duration,
}

// === impl Phase ===

impl Phase {
    fn begin(stage: &Stage) -> Result<Self> {
        Ok(Self { mark: stage.cluster.audit().mark(), cpu: proc::cpu(pid(stage)?)? })
    }

    /// Waits until the operator is quiet.
    async fn quiet(self, stage: &Stage) -> Result<Cost> {
        let mut before = usize::MAX;
        loop {
            let now = writes(stage, self.mark).await.len();
            if now == before {
                return self.end(stage).await;
            }
            before = now;
            tokio::time::sleep(QUIET).await;
        }
    }

    async fn end(self, stage: &Stage) -> Result<Cost> {
        let pid = pid(stage)?;
        let cpu = proc::cpu(pid)?.saturating_sub(self.cpu).as_secs_f64();
        let (_, peak) = proc::memory_kib(pid)?;
        let mut by_resource = BTreeMap::new();
        for write in writes(stage, self.mark).await {
            *by_resource.entry(write).or_default() += 1;
        }
        let mut reads = stage.cluster.audit().reads_by(OPERATOR_USER, self.mark).await;
        reads.retain(|read| read.resource != "leases" && read.verb != "watch");
        Ok(Cost { cpu, peak: mebibytes(peak), writes: by_resource, reads: u32::try_from(reads.len())? })
    }
}

fn pid(stage: &Stage) -> Result<u32> {
    stage.operator_pid().context("the operator has no pid")
}

/// Verb and `resource[/subresource]` of each of the operator's writes, Leases aside.
async fn writes(stage: &Stage, mark: Mark) -> Vec<String> {
    let events = stage.cluster.audit().writes_by(OPERATOR_USER, mark).await;
    let events = events.into_iter().filter(|event| event.resource != "leases");
    events
        .map(|event| {
            let slash = if event.subresource.is_empty() { "" } else { "/" };
            format!("{} {}{slash}{}", event.verb, event.resource, event.subresource)
        })
        .collect()
}

// === impl Cost ===

impl Cost {
    fn all_writes(&self) -> f64 {
        f64::from(self.writes.values().sum::<u32>())
    }
}

/// The figures side by side; with two operators, the ratio of the second to the first.
fn table(all: &[Figures], servers: u32) -> String {
    let per_server = |writes: f64| writes / f64::from(servers);
    let mut lines = vec![row(&format!("{servers} servers"), all.iter().map(|it| it.operator.to_owned()), "ratio")];
    let mut add = |name: &str, digits: usize, of: &dyn Fn(&Figures) -> f64| {
        let figures: Vec<f64> = all.iter().map(of).collect();
        let ratio = match figures[..] {
            [baseline, this] if baseline > 0.0 => format!("{:.2}", this / baseline),
            _ => String::new(),
        };
        lines.push(row(name, figures.iter().map(|figure| format!("{figure:.digits$}")), &ratio));
    };
    let rest = REST.as_secs();
    add("all children present after, s", 1, &|it| it.children_after);
    add("CPU until quiet, s", 2, &|it| it.until_quiet.cpu);
    add(&format!("CPU in {rest} s at rest, s"), 2, &|it| it.at_rest.cpu);
    add("CPU after foreign annotations, s", 2, &|it| it.after_annotations.cpu);
    add("CPU after a restart, s", 2, &|it| it.after_restart.cpu);
    add("peak RSS, MiB", 1, &|it| it.after_annotations.peak);
    add("peak RSS after a restart, MiB", 1, &|it| it.after_restart.peak);
    add("writes per server until quiet", 2, &|it| per_server(it.until_quiet.all_writes()));
    let kinds: BTreeSet<&String> = all.iter().flat_map(|it| it.until_quiet.writes.keys()).collect();
    for kind in kinds {
        let of = |it: &Figures| per_server(it.until_quiet.writes.get(kind).copied().unwrap_or_default().into());
        add(&format!("  {kind}"), 2, &of);
    }
    add(&format!("writes in {rest} s at rest"), 0, &|it| it.at_rest.all_writes());
    add(&format!("gets and lists in {rest} s at rest"), 0, &|it| it.at_rest.reads.into());
    add("writes after foreign annotations", 0, &|it| it.after_annotations.all_writes());
    add("writes after a restart", 0, &|it| it.after_restart.all_writes());
    lines.join("\n")
}

fn row(name: &str, cells: impl Iterator<Item = String>, ratio: &str) -> String {
    let cells: Vec<String> = cells.map(|cell| format!("{cell:>11}")).collect();
    format!("{name:<40} {} {ratio:>7}", cells.join(" ")).trim_end().to_owned()
}
