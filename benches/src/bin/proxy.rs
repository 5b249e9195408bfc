//! MCP calls directly, through the runner, through an older runner, and through a plain reverse proxy: latency, what each adds to a direct call, CPU time
//! per call, memory. Then calls through two webhooks over TLS beside the same two HTTPS calls without a runner. Caller, server and webhooks are
//! processes of their own; they are this binary once more. Every answer is checked. Proxies take turns in every round, and figures are medians.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the table is the result")]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use portcullis_benches::proxy::caller::{self, Client, Load};
use portcullis_benches::proxy::figures::{Round, Row, table};
use portcullis_benches::proxy::login::Provider;
use portcullis_benches::proxy::processes::{Behind, Listening, audit_to_pipe, call, call_webhooks, stdio_server};
use portcullis_benches::proxy::workload::Workload;
use portcullis_benches::proxy::{backend, relay, webhooks};
use portcullis_benches::webhook::figures::{mebibytes, median, shown};
use portcullis_benches::{peers, proc};
use portcullis_e2e::process::binary;
use portcullis_services::{RedisOptions, RedisServer};
use serde_json::{Value, json};

const DIRECT: &str = "direct";
const RUNNER: &str = "runner";
const BASELINE: &str = "baseline";
const RELAY: &str = "a relay of bytes";
const WITH_LOGIN: &str = "runner, login";
const WITH_EXCHANGE: &str = "runner, login and exchange";
const WITH_AUDIT: &str = "runner, audit";
const WITH_TELEMETRY: &str = "runner, telemetry";
const WITH_BOTH: &str = "runner, telemetry and audit";
const WITH_AUTHORIZATION: &str = "runner, authorization";
const WITH_REDIS: &str = "runner, sessions in Redis";
const WITH_LIMITS: &str = "runner, sessions and rate limits in Redis";
const WITH_IDLE: [(&str, usize); 2] =
    [("runner, a webhook that is not asked", 1), ("runner, five that are not asked", 5)];
const OVER_SSE: &str = "runner, over SSE";
const ATTACHED: &str = "runner, attached";
const PEER: &str = "Go's reverse proxy";
/// The CPU on which latencies are taken.
const FIRST: &str = "0";
/// Two HTTPS calls without a runner, and who makes them.
const TWO_CALLS: [(&str, Client); 2] =
    [("two calls of hyper's", Client::Hyper), ("two calls, bytes ready", Client::Bytes)];

/// MCP calls through the runner: latency, CPU time, memory
#[derive(Parser, Debug)]
#[command(args_conflicts_with_subcommands = true)]
struct Flags {
    /// Binary of an older runner to compare with
    #[arg(long, value_name = "PATH")]
    baseline: Option<PathBuf>,
    /// Rounds that count
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Rows to take
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["json", "sse", "large", "stream", "stdio", "webhooks", "selectors", "login", "audit", "telemetry", "authorization", "sessions", "legacy"])]
    only: Vec<What>,
    /// Output format of the figures
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
    #[command(subcommand)]
    process: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Json,
    Sse,
    Large,
    Stream,
    Stdio,
    Webhooks,
    /// Webhooks whose selectors match no call
    Selectors,
    Login,
    Audit,
    /// Telemetry alone, and with audit
    Telemetry,
    /// Policies for one call, and for a list of 1,000 tools
    Authorization,
    /// Sessions in Redis, with and without rate limits, and in memory
    Sessions,
    /// HTTP with server-sent events beside streamable HTTP
    Legacy,
    /// A server in a pod of the cluster of KUBECONFIG; tests/node/run.sh bench
    Attach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

/// The role of this process in the run of another.
#[derive(Debug, Subcommand)]
enum Role {
    /// The MCP server, over standard input and output unless there is an address
    #[command(hide = true)]
    Backend {
        #[arg(long)]
        listen: Option<SocketAddr>,
        #[arg(long, default_value_t = 0)]
        instructions: usize,
    },
    /// The relay
    #[command(hide = true)]
    Relay {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        backend: SocketAddr,
        #[arg(long)]
        certificate: Option<PathBuf>,
    },
    /// The webhooks
    #[command(hide = true)]
    Webhooks {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        folder: PathBuf,
    },
    /// A caller, which prints what it measured
    #[command(hide = true)]
    Call {
        #[arg(long)]
        address: SocketAddr,
        #[arg(long)]
        sessions: usize,
        #[arg(long)]
        calls: usize,
        #[arg(long, value_enum, default_value = "json")]
        workload: Workload,
        #[arg(long)]
        watched: Option<u32>,
        #[arg(long)]
        token: Option<String>,
        #[arg(long)]
        sse: bool,
        #[arg(long)]
        webhooks: Option<PathBuf>,
        #[arg(long, value_enum, default_value = "bytes")]
        client: Client,
    },
}

// One thread each: callers and servers leave the other CPU to what is measured.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let flags = Flags::parse();
    match flags.process {
        None => harness(flags).await,
        Some(Role::Backend { listen: None, instructions }) => backend::serve_stdio(instructions),
        Some(Role::Backend { listen: Some(address), instructions }) => backend::serve_http(address, instructions).await,
        Some(Role::Relay { listen, backend, certificate }) => {
            relay::serve(listen, backend, certificate.as_deref()).await
        }
        Some(Role::Webhooks { listen, folder }) => webhooks::serve(listen, &folder).await,
        Some(Role::Call { address, sessions, calls, workload, watched, token, sse, webhooks, client }) => {
            let load = Load { sessions, calls };
            let measured = match webhooks {
                Some(folder) => caller::call_webhooks(address, &folder, client, load).await?,
                None if sse => caller::call_over_sse(address, workload, load, watched).await?,
                None => caller::call(address, workload, load, watched, token.as_deref()).await?,
            };
            println!("{}", serde_json::to_string(&measured)?);
            Ok(())
        }
    }
}

/// The state that all rows of a run share.
struct Run {
    baseline: Option<PathBuf>,
    rounds: usize,
    folder: tempfile::TempDir,
    /// All CPUs.
    cpus: String,
}

/// Something that is called in each round.
struct Target {
    name: &'static str,
    address: SocketAddr,
    process: Option<Listening>,
    /// The token of its callers.
    token: Option<String>,
    /// Whether callers speak HTTP with server-sent events.
    sse: bool,
    row: Vec<Round>,
}

impl Target {
    fn of(name: &'static str, process: Listening) -> Self {
        Self { name, address: process.address, process: Some(process), token: None, sse: false, row: Vec::new() }
    }

    async fn end(self, workload: &'static str) -> Result<Row> {
        let mut peak = None;
        if let Some(process) = self.process {
            peak = Some(mebibytes(proc::memory_kib(process.pid()?)?.1));
            process.stop().await?;
        }
        Ok(Row { workload, proxy: self.name, rounds: self.row, peak })
    }
}

async fn harness(flags: Flags) -> Result<()> {
    let run = Run { baseline: flags.baseline, rounds: flags.rounds, folder: tempfile::tempdir()?, cpus: proc::cpus()? };
    let mut rows = Vec::new();
    for what in flags.only {
        let taken = match what {
            What::Json => run.http("small call, JSON", Workload::Json, [2000, 2000]).await?,
            What::Sse => run.http("small call, SSE", Workload::Sse, [2000, 2000]).await?,
            What::Large => run.http("256 KiB both ways", Workload::Large, [200, 50]).await?,
            What::Stream => run.http("stream of 20 events", Workload::Stream, [40, 40]).await?,
            What::Stdio => run.stdio().await?,
            What::Webhooks => run.webhooks().await?,
            What::Selectors => run.selectors().await?,
            What::Login => run.login().await?,
            What::Audit => run.audit().await?,
            What::Telemetry => run.telemetry().await?,
            What::Authorization => run.authorization().await?,
            What::Sessions => run.sessions().await?,
            What::Legacy => run.legacy().await?,
            What::Attach => run.attach().await?,
        };
        if flags.output == Output::Table {
            println!("{}\n", taken.text);
        }
        rows.extend(taken.rows);
    }
    if flags.output == Output::Json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    }
    Ok(())
}

/// A runner of this build beside the usual one: by further entries of its chain, and further members of its RunConfig.
struct Way {
    name: &'static str,
    entries: Vec<Value>,
    members: Value,
}

impl Way {
    fn with(name: &'static str, entries: Vec<Value>) -> Self {
        Self { name, entries, members: json!({}) }
    }
}

/// The rows of a workload, and their table.
struct Taken {
    rows: Vec<Row>,
    text: String,
}

impl Taken {
    fn new(title: &str, rows: Vec<Row>) -> Result<Self> {
        let of = |proxy: &str| rows.iter().find(|row| row.proxy == proxy);
        let all: Vec<&Row> = rows.iter().collect();
        let text = table(title, &all, of(DIRECT), of(RUNNER).context("no runner")?, of(BASELINE));
        Ok(Self { rows, text })
    }
}

/// The CPU time of a call of several sessions.
fn cpu(row: &Row) -> Option<f64> {
    median(row.rounds.iter().filter_map(|round| round.several.cpu).collect())
}

impl Run {
    /// This build's runner and the older one.
    async fn runners(&self, behind: &Behind) -> Result<Vec<Target>> {
        let folder = self.folder.path();
        let mut targets =
            vec![Target::of(RUNNER, Listening::runner(folder, &binary("mcp-runner")?, behind, &[]).await?)];
        if let Some(path) = &self.baseline {
            targets.push(Target::of(BASELINE, Listening::runner(folder, path, behind, &[]).await?));
        }
        Ok(targets)
    }

    /// Calls a target over one session, with all processes on one CPU, and then over several, wherever the system puts them.
    ///
    /// Waking another CPU takes a virtual machine longer than the work that is measured: latencies would tell where the system happened to
    /// put the processes.
    async fn calls(
        &self,
        target: &Target,
        servers: &[u32],
        workload: Workload,
        [one, several]: [Load; 2],
    ) -> Result<Round> {
        let watched = target.process.as_ref().map(Listening::pid).transpose()?;
        let all: Vec<u32> = servers.iter().copied().chain(watched).chain([std::process::id()]).collect();
        proc::move_to(FIRST, &all)?;
        let (token, sse) = (target.token.as_deref(), target.sse);
        let one = call(target.address, workload, one, watched, token, sse).await?;
        proc::move_to(&self.cpus, &all)?;
        let several = call(target.address, workload, several, watched, token, sse).await?;
        Ok(Round { one, several })
    }

    async fn http(&self, title: &str, workload: Workload, [one, several]: [usize; 2]) -> Result<Taken> {
        eprintln!("{title}");
        let folder = self.folder.path();
        let peer = peers::binary("reverse-proxy")?;
        let server = Listening::backend(folder, 0).await?;
        let mut targets = vec![Target {
            name: DIRECT,
            address: server.address,
            process: None,
            token: None,
            sse: false,
            row: Vec::new(),
        }];
        targets.extend(self.runners(&Behind::Http(server.address)).await?);
        targets.push(Target::of(RELAY, Listening::relay(folder, server.address).await?));
        targets.push(Target::of(PEER, Listening::reverse_proxy(folder, &peer, server.address).await?));
        let load = [Load { sessions: 1, calls: one }, Load { sessions: 8, calls: several }];
        let rows = self.take(workload.tool(), targets, &[server.pid()?], workload, load).await?;
        server.stop().await?;
        Taken::new(title, rows)
    }

    async fn stdio(&self) -> Result<Taken> {
        eprintln!("stdio");
        let targets = self.runners(&Behind::Stdio(stdio_server()?)).await?;
        let load = [Load { sessions: 1, calls: 1500 }, Load { sessions: 32, calls: 600 }];
        let rows = self.take("stdio", targets, &[], Workload::Json, load).await?;
        Taken::new("stdio, 32 sessions", rows)
    }

    /// Calls each target in turn in every round, after a round that does not count.
    async fn take(
        &self,
        name: &'static str,
        mut targets: Vec<Target>,
        servers: &[u32],
        workload: Workload,
        load: [Load; 2],
    ) -> Result<Vec<Row>> {
        let order: Vec<_> = targets.iter().map(|target| target.name).collect();
        for round in 0..=self.rounds {
            // In turn from the other end: what a machine does every few seconds then strikes each.
            targets.reverse();
            for target in &mut targets {
                let calls = self.calls(target, servers, workload, load).await?;
                if round > 0 {
                    target.row.push(calls);
                }
            }
        }
        let mut rows = Vec::new();
        for target in targets {
            rows.push(target.end(name).await?);
        }
        rows.sort_by_key(|row| order.iter().position(|name| *name == row.proxy));
        Ok(rows)
    }

    /// Calls that no webhook is asked about, and calls without webhooks.
    async fn selectors(&self) -> Result<Taken> {
        let ways = WITH_IDLE.map(|(name, count)| Way::with(name, vec![webhooks::idle(count)]));
        self.with("selectors", "webhooks whose selectors match no call", ways.into(), Workload::Json, 2000).await
    }

    /// Calls with a line of audit for each, and without.
    async fn audit(&self) -> Result<Taken> {
        let ways = vec![Way::with(WITH_AUDIT, vec![audit_to_pipe(self.folder.path())?])];
        self.with("audit", "a line of audit for each call", ways, Workload::Json, 2000).await
    }

    /// Calls with metrics and sampled spans, with these and audit, and without. There is no collector: spans are made, and lost.
    async fn telemetry(&self) -> Result<Taken> {
        let config = json!({
            "endpoint": "127.0.0.1:9", "insecure": true, "tracingEnabled": true, "samplingRate": "0.05",
            "metricsEnabled": true, "enablePrometheusMetricsPath": true,
        });
        let telemetry = json!({ "type": "telemetry", "parameters": { "config": config } });
        let ways = vec![
            Way::with(WITH_TELEMETRY, vec![telemetry.clone()]),
            Way::with(WITH_BOTH, vec![audit_to_pipe(self.folder.path())?, telemetry]),
        ];
        self.with("telemetry", "metrics of each call, and spans of one in twenty", ways, Workload::Json, 2000).await
    }

    /// Calls and lists that policies decide on, and without.
    async fn authorization(&self) -> Result<Taken> {
        let authorization = |policies: Vec<String>| {
            let config = json!({ "version": "1.0", "type": "cedarv1", "cedar": { "policies": policies, "entities_json": "[]" } });
            let entry = json!({ "type": "authorization", "parameters": { "config_data": config } });
            vec![Way::with(WITH_AUTHORIZATION, vec![entry])]
        };
        let team = |at: usize| {
            format!(
                r#"permit(principal in THVGroup::"team-{at}", action == Action::"call_tool", resource) when {{ resource.name like "team-{at}-*" }};"#
            )
        };
        let every = r#"permit(principal, action == Action::"call_tool", resource) when { principal has claim_sub };"#;
        let policies = |count: usize| (1..count).map(team).chain([every.to_owned()]).collect::<Vec<_>>();
        let (title, ways) = ("a call under five policies", authorization(policies(5)));
        let call = self.with("authorization", title, ways, Workload::Json, 2000).await?;
        let (title, ways) = ("a list of 1,000 tools under 50 policies", authorization(policies(50)));
        let mut list = self.with("list", title, ways, Workload::List, 60).await?;
        let p99 = |name: &str| {
            let row = list.rows.iter().find(|row| row.proxy == name)?;
            median(row.rounds.iter().map(|round| round.one.p99).collect())
        };
        let added = shown(p99(WITH_AUTHORIZATION).zip(p99(RUNNER)).map(|(with, without)| with - without), 2);
        // Writing to a String cannot fail.
        let _ = write!(list.text, "\npolicies add {added} ms to the p99 of a list");
        Ok(Taken { text: format!("{}\n\n{}", call.text, list.text), rows: [call.rows, list.rows].concat() })
    }

    /// Calls of sessions that are in Redis, with and without rate limits, and in memory.
    async fn sessions(&self) -> Result<Taken> {
        let redis = RedisServer::start(RedisOptions::default()).await?;
        let members = json!({ "scaling_config": { "session_redis": { "address": redis.address() } } });
        let bucket = json!({ "maxTokens": 1_000_000_000, "refillPeriod": "1h" });
        let limits = json!({ "type": "ratelimit", "parameters": { "namespace": "bench", "server_name": "bench",
            "config": { "shared": bucket, "perUser": bucket }, "redis_addr": redis.address() } });
        let ways = vec![
            Way { members: members.clone(), ..Way::with(WITH_REDIS, Vec::new()) },
            Way { members, ..Way::with(WITH_LIMITS, vec![limits]) },
        ];
        self.with("sessions", "one command to Redis for each call, and two", ways, Workload::Json, 2000).await
    }

    /// Calls through this build's runner, and through those of `ways` in turn.
    async fn with(
        &self,
        name: &'static str,
        title: &str,
        ways: Vec<Way>,
        workload: Workload,
        calls: usize,
    ) -> Result<Taken> {
        eprintln!("{name}");
        let folder = self.folder.path();
        let server = Listening::backend(folder, 0).await?;
        let behind = Behind::Http(server.address);
        let mut targets = self.runners(&behind).await?;
        for Way { name, entries, members } in ways {
            let path = binary("mcp-runner")?;
            let process = Listening::with_members(folder, &path, &behind, &members, &entries).await?;
            targets.push(Target::of(name, process));
        }
        let load = [Load { sessions: 1, calls }, Load { sessions: 8, calls }];
        let rows = self.take(name, targets, &[server.pid()?], workload, load).await?;
        server.stop().await?;
        let mut taken = Taken::new(title, rows)?;
        let without = taken.rows.iter().find(|row| row.proxy == RUNNER).and_then(cpu);
        for row in taken.rows.iter().filter(|row| row.proxy.starts_with("runner, ")) {
            let times = shown(cpu(row).zip(without).map(|(with, without)| with / without), 2);
            // Writing to a String cannot fail.
            let _ = write!(taken.text, "\n{}: {times} times the CPU of a call without", row.proxy);
        }
        Ok(taken)
    }

    /// Measures the cost of checking the token of every call, and of putting one that was exchanged in its place.
    async fn login(&self) -> Result<Taken> {
        eprintln!("login");
        let folder = self.folder.path();
        let (server, provider) = (Listening::backend(folder, 0).await?, Provider::start().await?);
        let behind = Behind::Http(server.address);
        let path = binary("mcp-runner")?;
        let without = Target::of(RUNNER, Listening::runner(folder, &path, &behind, &[]).await?);
        let oidc = provider.oidc_config();
        let with = Listening::login(folder, &path, &behind, &oidc, &[]).await?;
        let exchange = json!({ "token_exchange_config": { "token_url": provider.token_url(), "client_id": "bench" } });
        let exchange = json!({ "type": "tokenexchange", "parameters": exchange });
        let exchange = Listening::login(folder, &path, &behind, &oidc, &[exchange]).await?;
        let with = Target { token: Some(provider.token.clone()), ..Target::of(WITH_LOGIN, with) };
        let exchange = Target { token: Some(provider.token), ..Target::of(WITH_EXCHANGE, exchange) };
        let load = [Load { sessions: 1, calls: 2000 }, Load { sessions: 8, calls: 2000 }];
        let rows = self.take("login", vec![without, with, exchange], &[server.pid()?], Workload::Json, load).await?;
        server.stop().await?;
        let of = |name: &str| rows.iter().find(|row| row.proxy == name).context("a row is missing");
        let (without, with, exchange) = (of(RUNNER)?, of(WITH_LOGIN)?, of(WITH_EXCHANGE)?);
        let times = |of, over| shown(cpu(of).zip(cpu(over)).map(|(of, over)| of / over), 2);
        let text = table("a JWT with every call", &[without, with, exchange], Some(without), with, None);
        let text = format!(
            "{text}\na call with a JWT takes {} times the CPU of one without login, and with an exchange {} times that of one without",
            times(with, without),
            times(exchange, with)
        );
        Ok(Taken { rows, text })
    }

    /// Two ways of this build's runner, in turn.
    async fn beside(&self, title: &str, ways: [(&'static str, Behind, bool); 2], servers: &[u32]) -> Result<Taken> {
        eprintln!("{title}");
        let path = binary("mcp-runner")?;
        let mut targets = Vec::new();
        for (name, behind, sse) in ways {
            let runner = Listening::runner(self.folder.path(), &path, &behind, &[]).await?;
            targets.push(Target { sse, ..Target::of(name, runner) });
        }
        let load = [Load { sessions: 1, calls: 1500 }, Load { sessions: 32, calls: 600 }];
        let rows = self.take("beside", targets, servers, Workload::Json, load).await?;
        let [usual, other] = rows.as_slice() else { bail!("a row is missing") };
        let text = table(title, &[usual, other], Some(usual), other, Some(usual));
        Ok(Taken { rows, text })
    }

    async fn legacy(&self) -> Result<Taken> {
        let stdio = stdio_server()?;
        let ways = [(RUNNER, Behind::Stdio(stdio.clone()), false), (OVER_SSE, Behind::StdioOverSse(stdio), true)];
        let front = self.beside("stdio, over SSE", ways, &[]).await?;
        let server = Listening::backend(self.folder.path(), 0).await?;
        let ways = [(RUNNER, Behind::Http(server.address), false), (OVER_SSE, Behind::Sse(server.address), true)];
        let proxy = self.beside("a server that speaks SSE", ways, &[server.pid()?]).await?;
        server.stop().await?;
        Ok(Taken { text: format!("{}\n\n{}", front.text, proxy.text), rows: [front.rows, proxy.rows].concat() })
    }

    async fn attach(&self) -> Result<Taken> {
        let ways = [(RUNNER, Behind::Stdio(stdio_server()?), false), (ATTACHED, Behind::Attached, false)];
        self.beside("stdio, attached", ways, &[]).await
    }

    /// Measures the cost of two webhooks, beside the same two HTTPS calls alone.
    async fn webhooks(&self) -> Result<Taken> {
        eprintln!("two webhooks");
        let folder = self.folder.path();
        webhooks::prepare(folder)?;
        let (server, hooks) = (Listening::backend(folder, 0).await?, Listening::webhooks(folder).await?);
        let behind = Behind::Http(server.address);
        let chain = webhooks::chain(hooks.address, folder);
        let mut plain = self.runners(&behind).await?;
        let mut gated = Vec::new();
        for target in &plain {
            let path =
                if target.name == RUNNER { binary("mcp-runner")? } else { self.baseline.clone().unwrap_or_default() };
            gated.push(Target::of(target.name, Listening::runner(folder, &path, &behind, &chain).await?));
        }
        let mut alone = [Vec::new(), Vec::new()];
        let load = [Load { sessions: 1, calls: 1000 }, Load { sessions: 8, calls: 500 }];
        let servers = [server.pid()?, hooks.pid()?];
        for round in 0..=self.rounds {
            for target in plain.iter_mut().chain(&mut gated) {
                let calls = self.calls(target, &servers, Workload::Json, load).await?;
                if round > 0 {
                    target.row.push(calls);
                }
            }
            let all = [servers[1], std::process::id()];
            for ((_, client), row) in TWO_CALLS.iter().zip(&mut alone) {
                proc::move_to(FIRST, &all)?;
                let one = call_webhooks(hooks.address, folder, *client, load[0]).await?;
                proc::move_to(&self.cpus, &all)?;
                let several = call_webhooks(hooks.address, folder, *client, load[1]).await?;
                if round > 0 {
                    row.push(Round { one, several });
                }
            }
        }
        let alone = TWO_CALLS.iter().zip(alone).map(|((name, _), rounds)| Row {
            workload: "webhooks",
            proxy: name,
            rounds,
            peak: None,
        });
        let alone: Vec<Row> = alone.collect();
        let mut all = Vec::new();
        let mut text = Vec::new();
        for (plain, gated) in plain.into_iter().zip(gated) {
            let (plain, gated) = (plain.end("webhooks, none").await?, gated.end("webhooks").await?);
            let (title, name) = (format!("{}, two webhooks", gated.proxy), gated.proxy);
            let without = Row { proxy: "without webhooks", ..plain };
            let with = Row { proxy: "with two webhooks", ..gated };
            let rows: Vec<&Row> = [&without, &with].into_iter().chain(&alone).collect();
            text.push(table(&title, &rows, Some(&without), &with, None));
            text.push(format!("{name}: what the webhooks add"));
            text.extend(alone.iter().map(|calls| with.added_beside(&without, calls)));
            text.push(String::new());
            all.extend([Row { proxy: name, ..without }, Row { proxy: name, ..with }]);
        }
        all.extend(alone);
        server.stop().await?;
        hooks.stop().await?;
        Ok(Taken { rows: all, text: text.join("\n") })
    }
}
