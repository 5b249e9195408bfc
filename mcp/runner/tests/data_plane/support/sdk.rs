//! The official TypeScript SDK's client in a process of its own.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{modules, within};

pub(crate) struct SdkClient {
    _child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// What came without being a reply: progress and notifications.
    pub(crate) heard: Vec<Value>,
}

impl SdkClient {
    /// A client of the server at `url` that has not connected yet.
    pub(crate) fn new(url: &str) -> Self {
        Self::with(&[url])
    }

    /// A client that shows `token` with each request, and has made its handshake.
    pub(crate) async fn connect_as(url: &str, token: &str) -> Self {
        let mut client = Self::with(&[url, token]);
        client.ask(json!({"do": "connect"})).await;
        client
    }

    fn with(arguments: &[&str]) -> Self {
        let mut child = Command::new("node")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data_plane/client.mjs"))
            .args(arguments)
            .env("MCP_MODULES", modules())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { _child: child, stdin, lines: BufReader::new(stdout).lines(), heard: Vec::new() }
    }

    /// A client that has made its handshake.
    pub(crate) async fn connect(url: &str) -> Self {
        let mut client = Self::new(url);
        client.ask(json!({"do": "connect"})).await;
        client
    }

    /// Runs a command and returns its reply, which must be no failure.
    pub(crate) async fn ask(&mut self, command: Value) -> Value {
        let line = self.run(&command).await;
        assert!(line.get("failed").is_none(), "{command}: {line}");
        line["reply"].clone()
    }

    /// Runs a command that must fail, and returns the failure.
    pub(crate) async fn fails(&mut self, command: Value) -> Value {
        let line = self.run(&command).await;
        assert!(line.get("failed").is_some(), "{command}: {line}");
        line
    }

    /// The text of a tool's answer.
    pub(crate) async fn call(&mut self, name: &str, args: Value) -> String {
        let reply = self.ask(json!({"do": "call", "name": name, "args": args})).await;
        reply["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
    }

    async fn run(&mut self, command: &Value) -> Value {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        loop {
            let line = self.line().await;
            if line.get("reply").is_some() || line.get("failed").is_some() {
                return line;
            }
            self.heard.push(line);
        }
    }

    /// Waits until `found` is among what was heard.
    pub(crate) async fn hears(&mut self, found: impl Fn(&Value) -> bool) {
        while !self.heard.iter().any(&found) {
            let line = self.line().await;
            self.heard.push(line);
        }
    }

    async fn line(&mut self) -> Value {
        let line =
            within("a line of the SDK's client", self.lines.next_line()).await.unwrap().expect("the client ended");
        serde_json::from_str(&line).unwrap()
    }
}
