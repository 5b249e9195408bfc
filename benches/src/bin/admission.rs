//! Admission and conversion, side by side in one run: our server, controller-runtime's, one by hand with kube, and the floor,
//! in turn for each workload and round; with `--baseline`, an older build of ours too. The figure is the CPU time of the server for each answer; every answer is checked.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the table is the result")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use portcullis_benches::proc::{self, ThreadTimes};
use portcullis_benches::webhook::client::{self, Caller};
use portcullis_benches::webhook::figures::{Figures, Memory, Sample, mebibytes, milliseconds};
use portcullis_benches::webhook::servers::{Running, Which, pin};
use portcullis_benches::webhook::workload::Workload;
use rustls::ClientConfig;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// The whole run ends after this, whatever happens.
const LONGEST: Duration = Duration::from_mins(30);

/// CPU time per answer of webhook servers, side by side
#[derive(Parser, Debug)]
struct Flags {
    /// Workloads by name or its first words, as in `validate,mutate-patch`
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Servers to compare [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    servers: Vec<Which>,
    /// `serve_portcullis` built at an earlier commit, to be compared with as well
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Windows for each server and workload
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of a window
    #[arg(long, default_value_t = 700)]
    window: u64,
    /// One short round: checks the answers and gives a first idea
    #[arg(long)]
    quick: bool,
    /// Output format of the figures
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let cpu = pin();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // Servers are killed when the run is dropped.
        tokio::select! {
            ended = timeout(LONGEST, run(&flags, cpu)) => ended.context("the run took too long")?,
            _ = interrupted.recv() => anyhow::bail!("interrupted"),
            _ = terminated.recv() => anyhow::bail!("terminated"),
        }
    });
    // The runtime reaps killed processes, so that none stays listed.
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(100)).await });
    ended
}

async fn run(flags: &Flags, cpu: Option<&str>) -> Result<()> {
    let is =
        |name: &str, only: &str| name.strip_prefix(only).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    let wanted = |name: &str| flags.only.is_empty() || flags.only.iter().any(|only| is(name, only));
    let names = Workload::NAMES.into_iter().filter(|name| wanted(name));
    let workloads: Vec<Workload> = names.filter_map(Workload::named).collect();
    ensure!(!workloads.is_empty(), "--only names no workload; there are {}", Workload::NAMES.join(", "));
    let mut servers = if flags.servers.is_empty() { Which::ALL.to_vec() } else { flags.servers.clone() };
    servers.extend(flags.baseline.as_ref().map(|_| Which::Baseline));
    let (rounds, window) =
        if flags.quick { (1, Duration::from_millis(200)) } else { (flags.rounds, Duration::from_millis(flags.window)) };
    let folder = tempfile::tempdir()?;
    let tls = client::tls(&certificates(folder.path())?)?;
    let pinned = if cpu.is_some() { "servers on CPU 0, callers on CPU 1" } else { "nothing pinned: install taskset" };
    eprintln!("{} workloads, {} servers, {rounds} rounds; {pinned}", workloads.len(), servers.len());

    let (conversion, admission): (Vec<&Workload>, Vec<&Workload>) =
        workloads.iter().partition(|workload| workload.converts());
    let mut figures = Figures::default();
    let plan = Plan {
        servers: &servers,
        rounds,
        window,
        baseline: flags.baseline.as_deref(),
        tls: &tls,
        cpu,
        folder: folder.path(),
    };
    plan.measure(&admission, &mut figures, |memory, peak| memory.admission = Some(peak)).await?;
    plan.measure(&conversion, &mut figures, |memory, peak| memory.conversion = Some(peak)).await?;
    match flags.output {
        Output::Table => println!("{}", figures.table(&servers, &workloads)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&figures)?),
    }
    Ok(())
}

/// The settings that all workloads share.
struct Plan<'a> {
    servers: &'a [Which],
    rounds: usize,
    window: Duration,
    baseline: Option<&'a Path>,
    tls: &'a Arc<ClientConfig>,
    cpu: Option<&'a str>,
    folder: &'a Path,
}

impl Plan<'_> {
    /// Runs workloads on fresh processes: a round that does not count, then the others.
    async fn measure(
        &self,
        workloads: &[&Workload],
        figures: &mut Figures,
        note: impl Fn(&mut Memory, f64),
    ) -> Result<()> {
        if workloads.is_empty() {
            return Ok(());
        }
        let mut running = Vec::new();
        for which in self.servers {
            let server = Running::start(*which, self.baseline, self.folder, self.tls, self.cpu).await?;
            let idle = mebibytes(proc::memory_kib(server.pid)?.0);
            let name = which.name();
            if !figures.memory.iter().any(|memory| memory.server == name) {
                figures.memory.push(Memory { server: name, idle, admission: None, conversion: None });
            }
            running.push(server);
        }
        for round in 0..=self.rounds {
            for workload in workloads {
                for server in &running {
                    let floor = server.which == Which::Floor;
                    if floor && !workload.has_floor() {
                        continue;
                    }
                    let window = if round == 0 { self.window / 3 } else { self.window };
                    let sample = self.sample(server, workload, window).await;
                    let sample = sample.with_context(|| format!("{} on {}", workload.name, server.which.name()))?;
                    if round > 0 {
                        figures.samples.push(sample);
                    }
                }
            }
            eprintln!("round {round} of {}", self.rounds);
        }
        for server in running {
            let (_, peak) = proc::memory_kib(server.pid)?;
            let memory = figures.memory.iter_mut().find(|memory| memory.server == server.which.name());
            note(memory.context("a server that was not started")?, mebibytes(peak));
            server.stop().await?;
        }
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "figures to look at")]
    async fn sample(&self, server: &Running, workload: &Workload, window: Duration) -> Result<Sample> {
        let floor = server.which == Which::Floor;
        let mut callers = Vec::new();
        let mut shape = None;
        for _ in 0..workload.callers {
            let mut caller = Caller::connect(server.address, self.tls).await?;
            shape = Some(caller.first(workload, floor).await?);
            callers.push(caller);
        }
        let shape = shape.context("no callers")?;
        let own = std::process::id();
        let (began, machine, server_before, own_before) =
            (Instant::now(), proc::machine_cpu()?, ThreadTimes::of(server.pid)?, ThreadTimes::of(own)?);
        let answers = client::all(&mut callers, workload, shape, window).await?;
        let used = ThreadTimes::of(server.pid)?.since(&server_before);
        let known = used + ThreadTimes::of(own)?.since(&own_before);
        let others = proc::machine_cpu()?.saturating_sub(machine).saturating_sub(known);
        Ok(Sample {
            server: server.which.name(),
            workload: workload.name,
            answers,
            cpu_ms: milliseconds(used) / answers as f64,
            others: others.as_secs_f64() / began.elapsed().as_secs_f64(),
        })
    }
}

/// Writes a P-256 certificate for localhost into the folder; the authority's certificate comes back.
fn certificates(folder: &Path) -> Result<String> {
    let (ca, pair) = portcullis_e2e::certificates::localhost()?;
    std::fs::write(folder.join("tls.crt"), &pair.cert_pem)?;
    std::fs::write(folder.join("tls.key"), &pair.key_pem)?;
    Ok(ca.cert_pem().to_owned())
}
