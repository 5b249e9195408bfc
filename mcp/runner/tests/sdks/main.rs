//! MCP's official SDKs as servers and as clients, with the proxy between them: before and after a restart of the server, in both eras. One
//! module exports to the OpenTelemetry Collector.
//!
//! Each SDK has one program in a folder here, which is either. `hack/mcp-servers/build.sh sdks` builds them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy's own exception ends at functions marked as tests"
)]

#[allow(dead_code, unused_imports, reason = "the tests of the data plane use the rest of it")]
#[path = "../data_plane/support/mod.rs"]
mod support;

mod collector;

use std::ffi::OsString;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::process::installed;
use crate::support::{Recorder, Runner, Server, signal, within};

/// The SDKs, all of which speak both eras as a server and as a client, and how their programs are started in their folder.
const SDKS: [(&str, &[&str]); 4] = [
    ("go-sdk", &["{}/greeter"]),
    ("python", &["{}/bin/python", "{}/greeter.py"]),
    ("rust", &["{}/greeter"]),
    ("typescript", &["node", "{}/greeter.mjs"]),
];
/// The era of handshakes and sessions, the one without, and clients that take what the server has.
const ERAS: [&str; 3] = ["session", "stateless", "either"];
/// The SDKs whose processes serve one era on a pipe, that of their first message. The proxy's is one of sessions, so that the clients who share the
/// process do not lock each other out; those that know no sessions are refused.
const ONE_ERA_ON_A_PIPE: [&str; 2] = ["python", "typescript"];

/// The command that starts an SDK's program.
fn program(sdk: &str, arguments: &[&str]) -> Vec<String> {
    let (_, command) = SDKS.iter().find(|(name, _)| *name == sdk).unwrap();
    let folder = installed(sdk).display().to_string();
    let command = command.iter().map(|part| part.replace("{}", &folder));
    command.chain(arguments.iter().map(|argument| (*argument).to_owned())).collect()
}

/// A client that has its connection, and its session in the era that has them, for as long as it lives.
struct Client {
    name: String,
    _child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn start(sdk: &str, era: &str, url: &str) -> Self {
        let command = program(sdk, &["call", url, era]);
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let name = format!("the {sdk} client, era {era}");
        Self { name, _child: child, stdin, lines: BufReader::new(stdout).lines() }
    }

    /// One of each SDK in each of these eras.
    fn all(url: &str, eras: &[&str]) -> Vec<Self> {
        SDKS.iter().flat_map(|(sdk, _)| eras.iter().map(|era| Self::start(sdk, era, url))).collect()
    }

    /// Calls the tool. Returns the id of the process that answered, or what went wrong.
    async fn greet(&mut self, name: &str) -> Result<u32, String> {
        let line = async {
            self.stdin.write_all(format!("{name}\n").as_bytes()).await.ok()?;
            self.lines.next_line().await.ok()?
        };
        let line = within(&self.name, line).await.unwrap_or_else(|| "null".to_owned());
        let answer: Value = serde_json::from_str(&line).unwrap();
        let process = answer["text"].as_str().and_then(|text| text.strip_prefix(&format!("Hi {name} from ")));
        process.and_then(|process| process.parse().ok()).ok_or_else(|| format!("{}: {line}", self.name))
    }
}

/// Has every client call. Returns the id of the one process that answered them all.
async fn all_greet(clients: &mut [Client], name: &str) -> u32 {
    let mut answers = Vec::new();
    for client in clients {
        answers.push(client.greet(name).await);
    }
    let wrong: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    let process = answers[0].clone().unwrap();
    assert!(answers.iter().all(|answer| *answer == Ok(process)), "{answers:?}");
    process
}

/// The server of an SDK answers clients of all, over HTTP and over its standard input and output.
async fn every_client_calls_before_and_after_a_restart_of(sdk: &str) {
    let mut server = Server::start_at(|address| program(sdk, &["serve", address])).await;
    let runner = Runner::http(&server.url(), &json!({})).await;
    let mut clients = Client::all(&runner.url(), &ERAS);
    let first = all_greet(&mut clients, "Ada").await;
    server.kill().await;
    server.start().await;
    let second = all_greet(&mut clients, "Grace").await;
    assert_ne!(first, second);
    drop((clients, runner, server));

    let command: Vec<_> = program(sdk, &["serve", "stdio"]).into_iter().map(OsString::from).collect();
    let runner = Runner::stdio(&command, &json!({})).await;
    let eras: Vec<_> =
        ERAS.into_iter().filter(|era| *era != "stateless" || !ONE_ERA_ON_A_PIPE.contains(&sdk)).collect();
    // A client of either era waits some seconds for an answer to its first question: not while the process starts.
    Client::start("go-sdk", "session", &runner.url()).greet("Alan").await.unwrap();
    let mut clients = Client::all(&runner.url(), &eras);
    let first = all_greet(&mut clients, "Ada").await;
    signal("KILL", first);
    runner.logged("the connection to the MCP server ended").await;
    let second = all_greet(&mut clients, "Grace").await;
    assert_ne!(first, second);
}

#[tokio::test]
async fn clients_call_before_and_after_a_restart_of_the_go_server() {
    every_client_calls_before_and_after_a_restart_of("go-sdk").await;
}

#[tokio::test]
async fn clients_call_before_and_after_a_restart_of_the_python_server() {
    every_client_calls_before_and_after_a_restart_of("python").await;
}

#[tokio::test]
async fn clients_call_before_and_after_a_restart_of_the_rust_server() {
    every_client_calls_before_and_after_a_restart_of("rust").await;
}

#[tokio::test]
async fn clients_call_before_and_after_a_restart_of_the_typescript_server() {
    every_client_calls_before_and_after_a_restart_of("typescript").await;
}

/// The JDK's own HttpClient as a client of MCP.
fn java(url: &str) -> Command {
    let mut java = Command::new("java");
    java.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdks/jdk/Greeter.java")).args([url, "Ada"]).kill_on_drop(true);
    java
}

#[tokio::test]
async fn the_http_client_of_the_jdk_calls_although_it_asks_for_http_2() {
    let mut asked = Recorder::start().await;
    let mut client = java(&format!("{}/mcp", asked.url())).stderr(Stdio::null()).spawn().unwrap();
    let head = within("Java's first request", asked.next()).await.head.to_ascii_lowercase();
    assert!(head.contains("upgrade: h2c\r\n") && head.contains("http2-settings: "), "{head}");
    client.kill().await.unwrap();

    let server = Server::start_at(|address| program("go-sdk", &["serve", address])).await;
    let runner = Runner::http(&server.url(), &json!({})).await;
    let output = within("Java", java(&runner.url()).output()).await.unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(stdout.contains("Hi Ada from "), "{stdout}{stderr}");
}
