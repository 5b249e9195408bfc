//! `dev` as a process.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use portcullis_testing::wait_until;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

pub(crate) use crate::PATIENCE;
pub(crate) use crate::examples::{ENTITIES, command};

/// A process at work, and what it says on both its outputs. Ends with the test.
pub(crate) struct Dev {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Dev {
    /// Starts `dev` of an example as this person, on a free port.
    pub(crate) fn start(example: &str, kubeconfig: &Path, owner: &str, arguments: &[&str]) -> Self {
        let fixed = ["dev", "--owner", owner, "--kubeconfig", kubeconfig.to_str().unwrap()];
        let free: &[&str] = if arguments.contains(&"--port") { &[] } else { &["--port", "0"] };
        Self::spawn(example, &[&fixed, free, arguments].concat())
    }

    /// Starts any command of an example.
    pub(crate) fn spawn(example: &str, arguments: &[&str]) -> Self {
        let mut command = command(example, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::default();
        let readers = vec![
            tokio::spawn(read(child.stdout.take().unwrap(), Arc::clone(&said))),
            tokio::spawn(read(child.stderr.take().unwrap(), Arc::clone(&said))),
        ];
        Self { child, said, readers }
    }

    /// All that it has said.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().join("\n")
    }

    /// Waits until it has said this.
    pub(crate) async fn says(&mut self, words: &str) {
        let said = wait_until(words, PATIENCE, || async {
            let ended = self.readers.iter().all(JoinHandle::is_finished);
            let found = self.said().contains(words);
            (found || ended).then_some(found)
        });
        assert!(said.await, "'{words}' was not said:\n{}", self.said());
    }

    /// Waits until it serves and says so.
    pub(crate) async fn open(&mut self) {
        self.says("and then all of it is removed").await;
    }

    /// Sends a signal.
    pub(crate) async fn signal(&self, signal: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().await.unwrap().success());
    }

    /// Sends a signal until it ends: one that comes within half a second of another is one with it.
    pub(crate) async fn insist(&self, signal: &str) {
        wait_until("the process to end", PATIENCE, || async {
            self.signal(signal).await;
            self.readers.iter().all(JoinHandle::is_finished).then_some(())
        })
        .await;
    }

    /// Sends these signals one right after the other.
    pub(crate) async fn signal_at_once(&self, signals: [&str; 2]) {
        let (id, [first, second]) = (self.child.id().unwrap(), signals);
        let both = format!("kill {first} {id}; kill {second} {id}");
        assert!(Command::new("sh").args(["-c", &both]).status().await.unwrap().success());
    }

    /// Waits for its end, and for all that it had to say.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let Ok(status) = tokio::time::timeout(PATIENCE, self.child.wait()).await else {
            panic!("the process did not end:\n{}", self.said())
        };
        for reader in self.readers.drain(..) {
            tokio::time::timeout(PATIENCE, reader).await.unwrap().unwrap();
        }
        status.unwrap()
    }

    /// Ends it with a signal; everything must be in order then.
    pub(crate) async fn end(mut self, signal: &str) -> String {
        self.signal(signal).await;
        let status = self.ended().await;
        assert_eq!(status.code(), Some(0), "{}", self.said());
        self.said()
    }

    /// Waits for its end, which must be an error; returns the line that says which.
    pub(crate) async fn fails(mut self) -> String {
        let status = self.ended().await;
        let said = self.said();
        assert_eq!(status.code(), Some(1), "{said}");
        said.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{said}")).to_owned()
    }
}

async fn read(output: impl AsyncRead + Unpin, said: Arc<Mutex<Vec<String>>>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        said.lock().unwrap().push(line);
    }
}
