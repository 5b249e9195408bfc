//! The runner under more than it likes: many sessions, many open streams, slow uploads, the longest bodies, long answers to `initialize`, a server behind TLS. This process calls; runner and
//! server are processes of their own. With `--baseline`, each row is taken of an older runner as well.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the figures are the result")]

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use futures::future::{join_all, try_join_all};
use portcullis_benches::proc;
use portcullis_benches::proxy::caller::Session;
use portcullis_benches::proxy::http::{Connection, SESSION, get};
use portcullis_benches::proxy::processes::{Behind, Listening};
use portcullis_benches::proxy::workload::Workload;
use portcullis_benches::proxy::{bodies, remote};
use portcullis_benches::webhook::figures::{mebibytes, milliseconds};
use portcullis_e2e::process::binary;

/// Sessions one after another, and how many of them the first and the last figure are of.
const SESSIONS: usize = 100_000;
const COMPARED: usize = 10_000;
/// Sessions that stay, for the row on memory, and the lengths of `instructions` in the server's answer.
const KEPT: usize = 5_000;
const INSTRUCTIONS: [usize; 3] = [0, 60_000, 200_000];
/// The longest resident memory that a runner may have with them, in MiB.
const MEMORY: f64 = 40.0;
/// Streams open at once, by clients of so many addresses: fewer and more than a runner has places for connections.
const STREAMS: [usize; 2] = [4_000, 4_400];
const STREAM_CLIENTS: usize = 40;
/// The time that the first event of a stream may take before it counts as not served.
const PATIENCE: Duration = Duration::from_secs(5);
/// The operator's probes: path and `timeoutSeconds`, of startup and readiness, and of liveness.
const PROBES: [(&str, Duration); 2] = [("/readyz", Duration::from_secs(3)), ("/health", Duration::from_secs(5))];
const PROBED: usize = 20;
/// Slow uploads at once, by clients of so many addresses. Each sends all of its bytes but the last, as many as a body may have, and waits; one
/// that is refused comes again after a pause, as clients do. So where uploads share one bound, it is full but for a few bytes.
const UPLOADS: usize = 200;
const UPLOAD_CLIENTS: usize = 4;
const UPLOAD_BYTES: usize = 8 << 20;
const UPLOAD_PAUSE: Duration = Duration::from_secs(4);
/// The size of a piece of an upload.
const UPLOAD_PIECE: usize = 1 << 20;
/// Time for the uploads to take what they can take.
const UPLOAD_TIME: Duration = Duration::from_secs(10);
/// Calls of the quick client beside them, and the pause between two: less time in all than an upload has to arrive.
const QUICK_CALLS: u64 = 500;
const QUICK_PAUSE: Duration = Duration::from_millis(10);

/// The runner under load: sessions, streams, slow uploads, long bodies, memory, a remote server
#[derive(Parser, Debug)]
struct Flags {
    /// Binary of an older runner to compare with
    #[arg(long, value_name = "PATH")]
    baseline: Option<PathBuf>,
    /// Rows to take
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["sessions", "streams", "uploads", "bodies", "memory", "remote"])]
    only: Vec<Row>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Row {
    Sessions,
    Streams,
    Uploads,
    Bodies,
    Memory,
    Remote,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let Flags { baseline, only } = Flags::parse();
    let runners: Vec<_> =
        [("runner", binary("mcp-runner")?)].into_iter().chain(baseline.map(|path| ("baseline", path))).collect();
    for row in only {
        for (name, path) in &runners {
            let taken = match row {
                Row::Sessions => sessions(path).await,
                Row::Streams => both(path).await,
                Row::Uploads => uploads(path).await,
                Row::Bodies => bodies::compare(path).await,
                Row::Memory => memory(path).await,
                Row::Remote => remote::compare(path).await,
            };
            // An older runner may fail at what this one holds: that is a figure as well.
            println!("{name:<9} {}", taken.unwrap_or_else(|error| format!("{row:?} failed: {error:#}")));
        }
    }
    Ok(())
}

/// A runner in front of a server of its own.
struct Pair {
    server: Listening,
    runner: Listening,
    folder: tempfile::TempDir,
}

impl Pair {
    async fn start(path: &Path, instructions: usize) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = Listening::backend(folder.path(), instructions).await?;
        let runner = Listening::runner(folder.path(), path, &Behind::Http(server.address), &[]).await?;
        Ok(Self { server, runner, folder })
    }

    /// Resident memory, in MiB: now, and the most so far.
    fn resident(&self) -> Result<(f64, f64)> {
        let (now, peak) = proc::memory_kib(self.runner.pid()?)?;
        Ok((mebibytes(now), mebibytes(peak)))
    }

    async fn stop(self) -> Result<()> {
        self.runner.stop().await?;
        self.server.stop().await?;
        Ok(self.folder.close()?)
    }
}

/// One of several clients, each at an address of its own.
fn client(number: usize, clients: usize) -> Option<SocketAddr> {
    let host = u8::try_from(number % clients + 2).ok()?;
    Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 1, host)), 0))
}

/// Sessions one after another, each with one call: what a call costs must not grow with the sessions that were.
#[allow(clippy::cast_precision_loss, reason = "figures to look at")]
async fn sessions(path: &Path) -> Result<String> {
    eprintln!("{SESSIONS} sessions one after another: {}", path.display());
    let pair = Pair::start(path, 0).await?;
    let pid = pair.runner.pid()?;
    let mut connection = Connection::open(pair.runner.address).await?;
    let (mut marks, mut last) = (Vec::new(), proc::cpu(pid)?);
    for number in 1..=SESSIONS {
        let mut session = Session::open_over(connection, pair.runner.address, "").await?;
        session.call(Workload::Json, number as u64).await?;
        connection = session.into_connection();
        if number % COMPARED == 0 {
            let now = proc::cpu(pid)?;
            // Three requests: initialize, the client's notification, the call.
            marks.push(milliseconds(now.saturating_sub(last)) / (3 * COMPARED) as f64);
            last = now;
        }
    }
    let (first, end) = marks.first().zip(marks.last()).context("too few sessions")?;
    let (_, peak) = pair.resident()?;
    pair.stop().await?;
    let ratio = end / first;
    Ok(format!(
        "{SESSIONS} sessions: CPU ms per request {first:.4} in the first {COMPARED}, {end:.4} in the last: {ratio:.2} times; peak {peak:.1} MiB"
    ))
}

async fn both(path: &Path) -> Result<String> {
    let [fewer, more] = STREAMS;
    Ok(format!("{}\n          {}", streams(path, fewer).await?, streams(path, more).await?))
}

/// Probes on new connections while so many streams are open.
async fn streams(path: &Path, streams: usize) -> Result<String> {
    eprintln!("{streams} open streams: {}", path.display());
    let pair = Pair::start(path, 0).await?;
    let address = pair.runner.address;
    let ids = try_join_all((0..STREAM_CLIENTS).map(async |number| {
        let connection = Connection::open_from(client(number, STREAM_CLIENTS), address).await?;
        Ok::<_, anyhow::Error>(Session::open_over(connection, address, "").await?.id().to_owned())
    }))
    .await?;
    let mut open = Vec::new();
    for number in 0..streams {
        let mut connection = Connection::open_from(client(number, STREAM_CLIENTS), address).await?;
        let session = &ids[number % STREAM_CLIENTS];
        let headers =
            format!("accept: text/event-stream\r\n{SESSION}: {session}\r\nmcp-protocol-version: 2025-11-25\r\n");
        // A runner may end a connection that has no place.
        let _ = connection.send(&get(address, "/mcp", &headers)).await;
        open.push(connection);
    }
    let first_events = open.iter_mut().map(|connection| {
        tokio::time::timeout(PATIENCE, async {
            let mut head = connection.head().await?;
            ensure!(head.status == 200, "{} to a stream", head.status);
            connection.part(&mut head).await?.context("a stream that ends at once")
        })
    });
    let served = join_all(first_events).await.into_iter().filter(|answer| matches!(answer, Ok(Ok(_)))).count();
    let mut text = format!("{streams} streams: {served} were served");
    for (path, timeout) in PROBES {
        let (mut slowest, mut late) = (Duration::ZERO, 0);
        for _ in 0..PROBED {
            let start = Instant::now();
            let probe = async {
                let mut connection = Connection::open(address).await?;
                let (head, _) = connection.exchange(&get(address, path, "connection: close\r\n")).await?;
                ensure!(head.status == 200, "{}", head.status);
                Ok(())
            };
            match tokio::time::timeout(timeout, probe).await {
                Ok(Ok(())) => slowest = slowest.max(start.elapsed()),
                _ => late += 1,
            }
        }
        let (ms, within) = (milliseconds(slowest), timeout.as_secs());
        let probes =
            format!("; {path} {late} of {PROBED} probes failed or took over {within} s, slowest answer {ms:.1} ms");
        text.push_str(&probes);
    }
    let (now, _) = pair.resident()?;
    drop(open);
    pair.stop().await?;
    Ok(format!("{text}; {now:.1} MiB"))
}

/// One quick client beside many slow uploads.
async fn uploads(path: &Path) -> Result<String> {
    eprintln!("{UPLOADS} slow uploads: {}", path.display());
    let pair = Pair::start(path, 0).await?;
    let address = pair.runner.address;
    let mut quick = Session::open(address).await?;
    let before = quick_calls(&mut quick).await;
    let refused = Cell::new(0_u64);
    let uploads = join_all((0..UPLOADS).map(async |number| -> Result<()> {
        loop {
            // Until it is refused, or the runner gives it up.
            let _ = upload(client(number, UPLOAD_CLIENTS), address).await;
            refused.set(refused.get() + 1);
            tokio::time::sleep(UPLOAD_PAUSE).await;
        }
    }));
    let calls = async {
        tokio::time::sleep(UPLOAD_TIME).await;
        quick_calls(&mut quick).await
    };
    let beside = tokio::select! {
        _ = uploads => bail!("the uploads ended"),
        calls = calls => calls,
    };
    let (now, _) = pair.resident()?;
    pair.stop().await?;
    let [(p50_before, p99_before, _), (p50, p99, failed)] = [before, beside];
    let refused = refused.get();
    Ok(format!(
        "{UPLOADS} slow uploads of {} MiB from {UPLOAD_CLIENTS} addresses: quick client {failed} of {QUICK_CALLS} calls failed, p50 {p50:.3} ms (before {p50_before:.3}), p99 {p99:.3} ms (before {p99_before:.3}); {refused} uploads were refused; {now:.1} MiB",
        UPLOAD_BYTES >> 20
    ))
}

/// Sends all of a body but its last byte, and waits for the answer.
async fn upload(from: Option<SocketAddr>, address: SocketAddr) -> Result<()> {
    let mut connection = Connection::open_from(from, address).await?;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\ncontent-length: {UPLOAD_BYTES}\r\n\r\n"
    );
    connection.send(head.as_bytes()).await?;
    let piece = vec![b' '; UPLOAD_PIECE];
    let mut left = UPLOAD_BYTES - 1;
    while left > 0 {
        let length = left.min(UPLOAD_PIECE);
        connection.send(&piece[..length]).await?;
        left -= length;
        // The others send as well.
        tokio::task::yield_now().await;
    }
    connection.head().await.map(drop)
}

/// The p50 and the p99 of the latency in milliseconds, of the calls that did not fail, and how many did.
async fn quick_calls(session: &mut Session) -> (f64, f64, u64) {
    let (mut latencies, mut failed) = (Vec::new(), 0);
    for id in 0..QUICK_CALLS {
        match session.call(Workload::Json, id).await {
            Ok(latency) => latencies.push(latency),
            Err(_) => failed += 1,
        }
        tokio::time::sleep(QUICK_PAUSE).await;
    }
    latencies.sort_unstable();
    let at = |percent: usize| milliseconds(latencies.get(latencies.len() * percent / 100).copied().unwrap_or_default());
    (at(50), at(99), failed)
}

/// Resident memory with many sessions, whatever the server says of itself.
async fn memory(path: &Path) -> Result<String> {
    eprintln!("{KEPT} sessions that stay: {}", path.display());
    let mut figures = Vec::new();
    for instructions in INSTRUCTIONS {
        let pair = Pair::start(path, instructions).await?;
        let mut connection = Connection::open(pair.runner.address).await?;
        for _ in 0..KEPT {
            connection = Session::open_over(connection, pair.runner.address, "").await?.into_connection();
        }
        let (now, peak) = pair.resident()?;
        let verdict = if now <= MEMORY { "" } else { " (too much)" };
        figures.push(format!("{now:.1} MiB{verdict}, peak {peak:.1}, with {} kB of instructions", instructions / 1000));
        pair.stop().await?;
    }
    Ok(format!("{KEPT} sessions: {}", figures.join("; ")))
}
