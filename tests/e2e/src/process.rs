//! Child processes: started from this build, ended with their parent's scope, their output kept for the one who must read why.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::process::{Child, Command};

/// A running child process with its output in a file.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// Ends the child when this program is killed: its input, which only we hold open, ends then. Killed itself when this value is dropped.
    _watcher: Child,
    log: PathBuf,
}

/// The binary `name` of this build: beside this program, or one folder up for a test.
pub fn binary(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let beside = program.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    beside.with_context(|| {
        format!("{name} is not built; run 'cargo build --workspace --bins' (make demo and make test do)")
    })
}

/// The Go SDK's `everything` server from the per-user cache.
pub fn everything_server() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    let root = cache.context("neither XDG_CACHE_HOME nor HOME is set")?.join("portcullis/mcp-servers");
    let path = root.join(EVERYTHING_VERSION).join("everything");
    if !path.is_file() {
        bail!("{} does not exist; run 'make mcp-servers'", path.display());
    }
    Ok(path)
}

/// The version that hack/mcp-servers/go.mod pins; a test compares the two.
pub const EVERYTHING_VERSION: &str = "v1.8.0";

impl Process {
    /// Starts `command`; its output goes to `<folder>/<name>.log`.
    pub fn start(name: &str, folder: &Path, mut command: Command) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log)?;
        // A group of its own: Ctrl-C in a terminal is for this program, which ends the child when it is no longer needed.
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let pid = child.id().with_context(|| format!("{name} ended at once"))?;
        let watcher = Command::new("sh")
            .args(["-c", "cat >/dev/null; kill -TERM \"$1\" 2>/dev/null", "sh", &pid.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start sh")?;
        Ok(Self { name: name.to_owned(), child, _watcher: watcher, log })
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Fails with the output when the process has ended.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}):\n{}", self.name, self.output()),
        }
    }

    /// Asks it to end (SIGTERM), waits up to 30 s, and returns what it printed.
    pub async fn stop(mut self) -> Result<String> {
        if let Some(pid) = self.child.id() {
            // The standard library has no SIGTERM, and `unsafe` is forbidden.
            Command::new("kill").args(["-TERM", &pid.to_string()]).status().await?;
        }
        let ended = tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await;
        ended.with_context(|| format!("{} did not end within 30 s of SIGTERM", self.name))??;
        Ok(self.output())
    }
}
