//! A server behind TLS beside the same server without: what a long answer and silent streams cost the runner in front of each.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::backend::LONG;
use super::caller::Session;
use super::http::{Connection, SESSION, get, post};
use super::processes::{Behind, Listening};
use super::webhooks;
use crate::proc;
use crate::webhook::figures::{mebibytes, median, milliseconds, shown};

/// Long answers of each runner, in turns.
const ROUNDS: usize = 5;
const STREAMS: usize = 500;

/// The cost of one runner.
#[derive(Default)]
struct Taken {
    /// The time of each long answer, in milliseconds.
    times: Vec<f64>,
    cpu: Vec<f64>,
    /// The most memory after the long answers, and what each stream added, in KiB.
    peak: u64,
    stream: f64,
}

/// The figures of the runner at `path` in front of both.
///
/// # Errors
/// A process that did not start, or an answer that is not the expected one.
pub async fn compare(path: &Path) -> Result<String> {
    let folder = tempfile::tempdir()?;
    webhooks::prepare(folder.path())?;
    let server = Listening::backend(folder.path(), 0).await?;
    let tls = Listening::tls(folder.path(), server.address).await?;
    let near = Listening::runner(folder.path(), path, &Behind::Http(server.address), &[]).await?;
    let far = Listening::runner(folder.path(), path, &Behind::Remote(tls.address), &[]).await?;
    let mut taken = [Taken::default(), Taken::default()];
    for _ in 0..ROUNDS {
        for (runner, taken) in [&near, &far].into_iter().zip(&mut taken) {
            long(runner, taken).await?;
        }
    }
    for (runner, taken) in [&near, &far].into_iter().zip(&mut taken) {
        streams(runner, taken).await?;
    }
    for process in [near, far, tls, server] {
        process.stop().await?;
    }
    folder.close()?;
    Ok(report(&taken))
}

async fn long(runner: &Listening, taken: &mut Taken) -> Result<()> {
    let pid = runner.pid()?;
    let session = Session::open(runner.address).await?;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"long","arguments":{}}}"#;
    let request = post(runner.address, "", session.id(), call);
    let mut connection = session.into_connection();
    let (cpu, start) = (proc::cpu(pid)?, Instant::now());
    connection.send(&request).await?;
    let mut head = connection.head().await?;
    ensure!(head.status == 200, "{} to a call with a long answer", head.status);
    let mut length = 0;
    while let Some(part) = connection.part(&mut head).await? {
        length += part.len();
    }
    ensure!(length == LONG, "{length} bytes of a long answer");
    taken.times.push(milliseconds(start.elapsed()));
    taken.cpu.push(milliseconds(proc::cpu(pid)?.saturating_sub(cpu)));
    taken.peak = proc::memory_kib(pid)?.1;
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "figures to look at")]
async fn streams(runner: &Listening, taken: &mut Taken) -> Result<()> {
    let session = Session::open(runner.address).await?;
    let headers =
        format!("accept: text/event-stream\r\n{SESSION}: {}\r\nmcp-protocol-version: 2025-11-25\r\n", session.id());
    let (before, _) = proc::memory_kib(runner.pid()?)?;
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        let mut connection = Connection::open(runner.address).await?;
        connection.send(&get(runner.address, "/mcp", &headers)).await?;
        let mut head = connection.head().await?;
        ensure!(head.status == 200, "{} to a stream", head.status);
        connection.part(&mut head).await?.context("a stream that ends at once")?;
        open.push(connection);
    }
    let (now, _) = proc::memory_kib(runner.pid()?)?;
    taken.stream = now.saturating_sub(before) as f64 / STREAMS as f64;
    Ok(())
}

fn report([near, far]: &[Taken; 2]) -> String {
    let pair = |what: &str, unit: &str, near: Option<f64>, far: Option<f64>| {
        let ratio = near.zip(far).filter(|(near, _)| *near > 0.0).map(|(near, far)| far / near);
        format!("{what} {} {unit} (beside it {}, {} times)", shown(far, 1), shown(near, 1), shown(ratio, 2))
    };
    [
        format!("remote server: {} MiB as one answer", LONG >> 20),
        pair("in", "ms", median(near.times.clone()), median(far.times.clone())),
        pair("CPU", "ms", median(near.cpu.clone()), median(far.cpu.clone())),
        pair("peak", "MiB", Some(mebibytes(near.peak)), Some(mebibytes(far.peak))),
        pair(&format!("{STREAMS} silent streams,"), "KiB each", Some(near.stream), Some(far.stream)),
    ]
    .join("; ")
}
