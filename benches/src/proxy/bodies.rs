//! `/health` while the runner works on the longest bodies that it takes: the probes of a kubelet come meanwhile, and other clients.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::backend::LONG;
use super::caller::Session;
use super::http::{Connection, get, post};
use super::processes::{Behind, Listening};
use crate::webhook::figures::milliseconds;

/// Calls of each case.
const ROUNDS: u32 = 5;
/// The length of a call, in bytes: nearly the longest that passes. Its many small arguments take the longest to read.
const CALL: usize = 7_900_000;
/// As many mirrored arguments as a request may have.
const MIRRORED: usize = 64;
/// The longest that a probe should wait.
const AIM: Duration = Duration::from_millis(100);

/// The slowest `/health` of the runner at `path`, for each kind of work.
///
/// # Errors
/// A process that did not start, or an answer that is not the expected one.
pub async fn compare(path: &Path) -> Result<String> {
    let tools = json!({ "tools_override": { "json": { "name": "renamed" } } });
    let (list, call) = (middleware("tool-filter", &tools), middleware("tool-call-filter", &tools));
    let mirrored = (0..MIRRORED).fold(String::new(), |mut headers, at| {
        // Writing to a String cannot fail.
        let _ = write!(headers, "mcp-param-p{at}: q\r\n");
        headers
    });
    let long = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"long","arguments":{}}}"#.to_owned();
    let cases = [
        ("a call is read", vec![], arguments("json"), ""),
        ("a call is renamed", vec![call.clone()], arguments("renamed"), ""),
        ("64 headers follow a renamed call", vec![call], arguments("renamed"), &*mirrored),
        ("an answer of 100 MiB is filtered", vec![list], long, ""),
    ];
    let mut figures = Vec::new();
    for (what, middleware, body, headers) in cases {
        figures.push(case(path, what, &middleware, &body, headers).await?);
    }
    Ok(format!("/health during the worst body: {}", figures.join("; ")))
}

fn middleware(kind: &str, parameters: &Value) -> Value {
    json!({ "type": kind, "parameters": parameters })
}

/// A call of `tool` with as many arguments as fit.
fn arguments(tool: &str) -> String {
    let mut arguments = r#""name":"Ada""#.to_owned();
    for at in 0..CALL / 15 {
        // Writing to a String cannot fail.
        let _ = write!(arguments, r#","a{at:07}":"q""#);
    }
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{{arguments}}}}}}}"#
    )
}

async fn case(path: &Path, what: &str, middleware: &[Value], body: &str, headers: &str) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let server = Listening::backend(folder.path(), 0).await?;
    let runner = Listening::runner(folder.path(), path, &Behind::Http(server.address), middleware).await?;
    let (mut slowest, mut answers, start) = (Duration::ZERO, 0_u64, Instant::now());
    for _ in 0..ROUNDS {
        let session = Session::open(runner.address).await?;
        let request = post(runner.address, headers, session.id(), body);
        let mut connection = session.into_connection();
        let call = async {
            connection.send(&request).await?;
            let mut head = connection.head().await?;
            ensure!(head.status == 200, "{} where {what}", head.status);
            let mut length = 0;
            while let Some(part) = connection.part(&mut head).await? {
                length += part.len();
            }
            ensure!(length <= LONG, "{length} bytes of an answer");
            Ok(())
        };
        let probes = async {
            loop {
                let asked = Instant::now();
                let mut connection = Connection::open(runner.address).await?;
                let probe = get(runner.address, "/health", "connection: close\r\n");
                let (head, _) = connection.exchange(&probe).await?;
                ensure!(head.status == 200, "{} to a probe", head.status);
                (slowest, answers) = (slowest.max(asked.elapsed()), answers + 1);
            }
        };
        tokio::select! {
            call = call => call?,
            failed = probes => return failed,
        }
    }
    let took = start.elapsed();
    runner.stop().await?;
    server.stop().await?;
    let verdict = if slowest <= AIM { "" } else { " (too slow)" };
    Ok(format!(
        "worst {:.1} ms{verdict} of {answers} while {what}, {:.0} ms each",
        milliseconds(slowest),
        milliseconds(took / ROUNDS)
    ))
}
