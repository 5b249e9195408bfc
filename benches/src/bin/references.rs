//! Measures how soon an MCPOIDCConfig lists a workload that refers to it: with one workload beside the one that comes
//! and goes, and with 200 of three kinds. The time runs from the API server's answer to the change until a read of the
//! config shows it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the figures are the result")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DeleteParams, DynamicObject};
use kube::core::ApiResource;
use kube::{Api, Client};
use mcp_api::v1beta1::{MCPOIDCConfig, MCPServer};
use portcullis_benches::proc;
use portcullis_benches::webhook::figures::{median, milliseconds, shown};
use portcullis_e2e::apply::apply;
use portcullis_e2e::process::binary;
use portcullis_e2e::stage::{OPERATOR_USER, Stage};
use serde_json::{Value, json};

const NAMESPACE: &str = "bench";
const CONFIG: &str = "login";
/// The workload that comes and goes.
const GUEST: &str = "guest";
const PATIENCE: Duration = Duration::from_mins(5);
const LOOK: Duration = Duration::from_millis(5);
/// The time without a write after which all is at rest.
const REST: Duration = Duration::from_secs(20);

/// References that come and go
#[derive(Parser, Debug)]
struct Flags {
    /// Workloads that refer to the config
    #[arg(default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    workloads: u32,
    /// Number of times that the guest comes and goes
    #[arg(long, default_value_t = 20)]
    rounds: u32,
}

/// Medians, in milliseconds.
struct Taken {
    comes: Option<f64>,
    goes: Option<f64>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Flags { workloads, rounds } = Flags::parse();
    let stage = Stage::start_binary(binary("mcp-operator")?, |step| eprintln!("{step}")).await?;
    let bench = Bench { client: stage.cluster.admin(), namespace: stage.cluster.namespace(NAMESPACE).await };
    bench
        .apply(&json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPOIDCConfig",
            "metadata": { "name": CONFIG, "namespace": bench.namespace },
            "spec": { "type": "inline", "inline": { "issuer": "https://login.example.com" } },
        }))
        .await?;
    bench.apply(&bench.workload(0)).await?;
    bench.wait(1).await?;
    eprintln!("a guest comes and goes beside 1 workload");
    let few = bench.rounds(rounds, 1).await?;

    eprintln!("creating {workloads} workloads at once");
    let pid = stage.operator_pid().context("the operator has no pid")?;
    let (cpu, start) = (proc::cpu(pid)?, Instant::now());
    let created = (1..workloads).map(|index| bench.apply_owned(bench.workload(index)));
    stream::iter(created).buffer_unordered(16).try_collect::<Vec<_>>().await?;
    let (created, all) = (start.elapsed(), usize::try_from(workloads)?);
    bench.wait(all).await?;
    let (listed, cpu) = (start.elapsed(), proc::cpu(pid)?.saturating_sub(cpu));
    quiet(&stage).await;
    eprintln!("a guest comes and goes beside {workloads} workloads");
    let many = bench.rounds(rounds, all).await?;
    quiet(&stage).await;
    let mark = stage.cluster.audit().mark();
    tokio::time::sleep(REST).await;
    let at_rest = writes(&stage, mark).await;
    stage.stop().await?;

    println!(
        "{workloads} workloads created within {} s, all listed {} ms after the last, {} s CPU; {at_rest} writes in {} s at rest",
        shown(Some(created.as_secs_f64()), 1),
        shown(Some(milliseconds(listed.saturating_sub(created))), 0),
        shown(Some(cpu.as_secs_f64()), 2),
        REST.as_secs(),
    );
    for (what, few, many) in [("comes", few.comes, many.comes), ("goes", few.goes, many.goes)] {
        let ratio = few.zip(many).map(|(few, many)| many / few);
        println!(
            "a reference {what}: {} ms beside 1, {} ms beside {workloads}: {} times",
            shown(few, 0),
            shown(many, 0),
            shown(ratio, 2)
        );
    }
    Ok(())
}

struct Bench {
    client: Client,
    namespace: String,
}

// === impl Bench ===

impl Bench {
    /// One of the three kinds in turn.
    fn workload(&self, index: u32) -> Value {
        let login = json!({ "name": CONFIG, "audience": "https://mcp.example.com" });
        let (kind, spec) = match index % 3 {
            0 => ("MCPServer", server(&login)),
            1 => ("MCPRemoteProxy", json!({ "remoteUrl": "https://mcp.example.com/mcp", "oidcConfigRef": login })),
            _ => (
                "VirtualMCPServer",
                json!({ "groupRef": { "name": "all" }, "incomingAuth": { "type": "oidc", "oidcConfigRef": login } }),
            ),
        };
        self.object(kind, &format!("workload-{index:04}"), &spec)
    }

    fn object(&self, kind: &str, name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": kind,
            "metadata": { "name": name, "namespace": self.namespace }, "spec": spec,
        })
    }

    async fn apply_owned(&self, object: Value) -> Result<()> {
        self.apply(&object).await
    }

    async fn apply(&self, object: &Value) -> Result<()> {
        apply(&self.client, object).await?.map(drop).map_err(|refusal| anyhow::anyhow!("refused: {}", refusal.message))
    }

    async fn rounds(&self, rounds: u32, others: usize) -> Result<Taken> {
        let servers: Api<MCPServer> = Api::namespaced(self.client.clone(), &self.namespace);
        let login = json!({ "name": CONFIG, "audience": "https://mcp.example.com" });
        let guest = self.object("MCPServer", GUEST, &server(&login));
        let (mut comes, mut goes) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            self.apply(&guest).await?;
            comes.push(milliseconds(self.wait(others + 1).await?));
            servers.delete(GUEST, &DeleteParams::default()).await?;
            goes.push(milliseconds(self.wait(others).await?));
            self.gone(&servers).await?;
        }
        Ok(Taken { comes: median(comes), goes: median(goes) })
    }

    /// Waits until the config tells of so many workloads; returns how long that took.
    async fn wait(&self, number: usize) -> Result<Duration> {
        let configs: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &ApiResource::erase::<MCPOIDCConfig>(&()));
        let start = Instant::now();
        loop {
            let told = configs.get(CONFIG).await?.data["status"]["referencingWorkloads"].as_array().map_or(0, Vec::len);
            if told == number {
                return Ok(start.elapsed());
            }
            ensure!(start.elapsed() < PATIENCE, "the config tells of {told} workloads, and not of {number}");
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn gone(&self, servers: &Api<MCPServer>) -> Result<()> {
        let start = Instant::now();
        while servers.get_opt(GUEST).await?.is_some() {
            ensure!(start.elapsed() < PATIENCE, "the guest does not go");
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

fn server(login: &Value) -> Value {
    json!({ "image": "localhost/everything:v1.8.0", "transport": "streamable-http", "mcpPort": 3001, "oidcConfigRef": login })
}

/// Waits until the operator has written nothing for three seconds.
async fn quiet(stage: &Stage) {
    loop {
        let mark = stage.cluster.audit().mark();
        tokio::time::sleep(Duration::from_secs(3)).await;
        if writes(stage, mark).await == 0 {
            return;
        }
    }
}

/// The operator's writes, Leases aside.
async fn writes(stage: &Stage, mark: portcullis_testing::Mark) -> usize {
    let events = stage.cluster.audit().writes_by(OPERATOR_USER, mark).await;
    events.iter().filter(|event| event.resource != "leases").count()
}
