//! The examples as processes.

use std::net::SocketAddr;
use std::process::{ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};

use portcullis_testing::wait_until;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

pub(crate) use crate::PATIENCE;
pub(crate) use crate::examples::{ENTITIES, VERSIONS, command};

/// Runs it to its end.
pub(crate) async fn output(arguments: &[&str]) -> Output {
    output_of(ENTITIES, arguments).await
}

/// Runs this one to its end.
pub(crate) async fn output_of(example: &str, arguments: &[&str]) -> Output {
    tokio::time::timeout(PATIENCE, command(example, arguments).output()).await.unwrap().unwrap()
}

/// Runs it to its end, which must be with this exit code; returns its standard error.
pub(crate) async fn fails(arguments: &[&str], code: i32) -> String {
    let output = output(arguments).await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    stderr
}

/// A process at work. Ends with the test.
pub(crate) struct Running {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::run(ENTITIES, arguments)
    }

    /// Starts this one's `run`.
    pub(crate) fn run(example: &str, arguments: &[&str]) -> Self {
        let mut fixed = vec!["run", "--log-format", "json", "--bind", "127.0.0.1:0", "--health-bind", "127.0.0.1:0"];
        // No Service's endpoints have to learn of the end.
        if !arguments.contains(&"--drain-delay") {
            fixed.extend(["--drain-delay", "0s"]);
        }
        Self::spawn(example, &[&fixed, arguments].concat())
    }

    /// Starts this one with any command.
    pub(crate) fn spawn(example: &str, arguments: &[&str]) -> Self {
        let mut child = command(example, arguments).stderr(Stdio::piped()).spawn().unwrap();
        let (log, stderr) = (Arc::new(Mutex::new(Vec::new())), child.stderr.take().unwrap());
        let lines = Arc::clone(&log);
        let reader = tokio::spawn(async move {
            let mut read = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = read.next_line().await {
                lines.lock().unwrap().push(line);
            }
        });
        Self { child, log, reader: Some(reader) }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// The last line of a process that has ended.
    pub(crate) async fn last_line(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            tokio::time::timeout(PATIENCE, reader).await.unwrap().unwrap();
        }
        self.log.lock().unwrap().last().cloned().unwrap_or_default()
    }

    /// Waits for a line on standard error that holds these words, whatever its form.
    pub(crate) async fn says(&self, words: &str) {
        wait_until(words, PATIENCE, || async { self.log().contains(words).then_some(()) }).await;
    }

    /// Waits for a log line with this message, and returns its fields.
    pub(crate) async fn logged(&self, message: &str) -> Value {
        let find = || async {
            let log = self.log.lock().unwrap();
            let parsed = log.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            parsed
                .map(|mut line| line["fields"].take())
                .find(|fields| fields["message"].as_str().is_some_and(|said| said.starts_with(message)))
        };
        let Ok(found) = tokio::time::timeout(PATIENCE, wait_until(message, PATIENCE * 2, find)).await else {
            panic!("'{message}' was not logged:\n{}", self.log())
        };
        found
    }

    async fn address(&self, message: &str) -> SocketAddr {
        self.logged(message).await["address"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) async fn webhooks(&self) -> SocketAddr {
        self.address("Serving webhook server").await
    }

    /// Status and body of a GET of the health listener.
    pub(crate) async fn health(&self, path: &str) -> (u16, String) {
        get(self.address("serving /healthz and /readyz").await, path).await
    }

    pub(crate) async fn ready(&self) {
        wait_until("readiness", PATIENCE, || async { (self.health("/readyz").await.0 == 200).then_some(()) }).await;
    }

    /// Sends SIGTERM.
    pub(crate) async fn terminate(&self) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    }

    /// Kills it: no handler runs, nothing is put in order.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let Ok(status) = tokio::time::timeout(PATIENCE, self.child.wait()).await else {
            panic!("the process did not end:\n{}", self.log())
        };
        status.unwrap()
    }
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut reply)).await.unwrap().unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
