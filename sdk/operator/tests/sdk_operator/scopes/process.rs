//! The example as a process, with the time of each line that it writes.

use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use portcullis_testing::wait_until;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::PATIENCE;
use crate::examples;

fn command(arguments: &[String]) -> Command {
    examples::command("scopes_operator", &arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The objects that `generate` prints.
pub(crate) async fn generate(what: &str, arguments: &[String]) -> Vec<Value> {
    let arguments = [&["generate".to_owned(), what.to_owned()], arguments].concat();
    let output = tokio::time::timeout(PATIENCE, command(&arguments).output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    if text.trim().is_empty() { Vec::new() } else { serde_saphyr::from_multiple(&text).unwrap() }
}

type Log = Arc<Mutex<Vec<(Instant, Value)>>>;

/// A process at work. Ends with the test.
pub(crate) struct Process {
    child: Child,
    log: Log,
}

impl Process {
    pub(crate) fn start(arguments: &[String]) -> Self {
        Self::start_with(&[], arguments)
    }

    /// With these variables in its environment.
    pub(crate) fn start_with(environment: &[(&str, &str)], arguments: &[String]) -> Self {
        let fixed = ["run", "--log-format", "json", "--bind", "127.0.0.1:0", "--health-bind", "127.0.0.1:0"];
        let arguments = [&fixed.map(str::to_owned), arguments].concat();
        let mut command = command(&arguments);
        command.envs(environment.iter().copied());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (log, stderr) = (Log::default(), child.stderr.take().unwrap());
        let lines = Arc::clone(&log);
        tokio::spawn(async move {
            let mut read = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = read.next_line().await {
                let fields = serde_json::from_str::<Value>(&line).map(|mut line| line["fields"].take());
                lines.lock().unwrap().push((Instant::now(), fields.unwrap_or(Value::String(line))));
            }
        });
        Self { child, log }
    }

    /// When it acted in this namespace.
    pub(crate) fn acted(&self, namespace: &str) -> Vec<Instant> {
        let log = self.log.lock().unwrap();
        let acts = log.iter().filter(|(_, line)| line["message"] == "acts" && line["namespace"] == namespace);
        acts.map(|(at, _)| *at).collect()
    }

    /// The fields of the lines that hold this word.
    pub(crate) fn said(&self, word: &str) -> Vec<Value> {
        let log = self.log.lock().unwrap();
        log.iter().filter(|(_, line)| line.to_string().contains(word)).map(|(_, line)| line.clone()).collect()
    }

    async fn address(&self, message: &str) -> SocketAddr {
        let found = wait_until(message, PATIENCE, || async { self.said(message).into_iter().next() }).await;
        found["address"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) async fn webhooks(&self) -> SocketAddr {
        self.address("Serving webhook server").await
    }

    /// Status and body of a GET of the health listener.
    pub(crate) async fn health(&self, path: &str) -> (u16, String) {
        let address = self.address("serving /healthz and /readyz").await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut reply)).await.unwrap().unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    pub(crate) async fn ready(&self) {
        wait_until("readiness", PATIENCE, || async { (self.health("/readyz").await.0 == 200).then_some(()) }).await;
    }

    /// Waits until it acts in this namespace from now on.
    pub(crate) async fn acts(&self, namespace: &str) {
        let now = Instant::now();
        let acts = || async { self.acted(namespace).last().is_some_and(|at| *at > now).then_some(()) };
        wait_until("it to act", PATIENCE, acts).await;
    }

    /// Sends a signal: STOP, CONT, TERM, KILL.
    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().await.unwrap().success());
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("the end of the process").unwrap()
    }
}
