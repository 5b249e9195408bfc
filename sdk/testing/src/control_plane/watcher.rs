//! The watcher process, and servers that cannot outlive it.
//!
//! A parent-death signal would fire when the *thread* that started a server ends, and needs `unsafe`; a pipe whose
//! other end only this process holds does not. Rust opens pipes close-on-exec, so no other child keeps it open.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use super::error::Doing as _;
use crate::ControlPlaneError;

/// Waits for its standard input before it becomes the server: so the server's id is with the watcher before the server
/// runs, and if this process dies in between, the gate reads the end of its input and ends by itself.
const GATE: &str = r#"read -r go && [ "$go" = go ] && exec "$@" </dev/null"#;

/// A process that kills the servers and removes the directory once this process is gone (see `watcher.sh`).
#[derive(Debug)]
pub(crate) struct Watcher {
    process: Child,
    // Taken when the watcher gets its work.
    pipe: Option<ChildStdin>,
    directory: PathBuf,
}

/// One server, a child of this process.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    process: Child,
    log: PathBuf,
}

impl Watcher {
    /// Starts the watcher; it makes the directory of this control plane.
    pub(crate) fn start() -> Result<Self, ControlPlaneError> {
        // The servers run inside of the new directory, where a relative path would lead elsewhere.
        let parent = std::path::absolute(std::env::temp_dir()).doing("find the directory for temporary files")?;
        let mut process = Command::new("sh")
            .args(["-c", include_str!("watcher.sh"), "watcher"])
            .arg(&parent)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its own group: what a terminal sends to the tests (Ctrl-C) must not end it.
            .process_group(0)
            .spawn()
            .doing("start the watcher process (sh)")?;
        let pipe = process.stdin.take();
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line).doing("read from the watcher process")?;
        }
        let directory = PathBuf::from(line.trim_end_matches('\n'));
        if !directory.is_dir() {
            let source = std::io::Error::other("the watcher process made none");
            return Err(ControlPlaneError::Io { action: format!("make a directory in {}", parent.display()), source });
        }
        Ok(Self { process, pipe, directory })
    }

    /// The directory that goes with the control plane; only this user may read it.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Starts a server whose output goes to `log`, and puts it under watch before it runs.
    pub(crate) fn spawn(
        &mut self,
        name: &'static str,
        program: &Path,
        arguments: &[String],
        log: PathBuf,
    ) -> Result<Server, ControlPlaneError> {
        let output = File::create(&log).doing(format!("write {}", log.display()))?;
        let errors = output.try_clone().doing(format!("write {}", log.display()))?;
        let mut process = Command::new("sh")
            .args(["-c", GATE, "gate"])
            .arg(program)
            .args(arguments)
            // ETCD_*, proxies and GODEBUG of the caller are not meant for these servers.
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .current_dir(&self.directory)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .doing(format!("start {name}"))?;
        let gate = process.stdin.take();
        let server = Server { name, process, log };
        let told = (|| {
            if let Some(pipe) = &mut self.pipe {
                writeln!(pipe, "{}", server.process.id())?;
                pipe.flush()?;
            }
            gate.map_or(Ok(()), |mut gate| gate.write_all(b"go\n"))
        })();
        told.doing(format!("start {name}"))?;
        Ok(server)
    }
}

impl Drop for Watcher {
    /// Lets the watcher do its work and waits for it: it ends by itself, within seconds.
    fn drop(&mut self) {
        drop(self.pipe.take());
        if let Err(error) = self.process.wait() {
            tracing::warn!(%error, "cannot wait for the control plane's watcher");
        }
    }
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The exit status of the server, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// The last lines of its log.
    pub(crate) fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Server {
    /// The data is thrown away, so nothing is gained by asking politely.
    fn drop(&mut self) {
        if self.ended().is_none()
            && let Err(error) = self.process.kill().and_then(|()| self.process.wait())
        {
            tracing::warn!(server = self.name, %error, "cannot end the server; the watcher will");
        }
    }
}
