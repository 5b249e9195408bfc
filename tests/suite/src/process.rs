//! One run of a test binary, with its output in a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::binaries::Binary;
use crate::report::Report;

/// A binary that runs for longer has hung: it is ended, and counts as failed.
const LIMIT: Duration = Duration::from_mins(20);

/// A finished run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) report: Report,
    pub(crate) took: Duration,
    pub(crate) log: PathBuf,
}

impl Run {
    /// Describes the run in one line.
    pub(crate) fn line(&self) -> String {
        format!("{}: {}, {:.1} s", self.name, self.report.counts(), self.took.as_secs_f64())
    }
}

/// Prepares a test binary to run as `cargo test` runs it, but with the time of each test in its output, which libtest
/// counts as an unstable option. The words of `under` are a program that starts it, with arguments; none to start it itself.
pub(crate) fn command(binary: &Binary, threads: usize, under: &[&str]) -> Command {
    let mut command = match under {
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(&binary.executable);
            command
        }
        [] => Command::new(&binary.executable),
    };
    command.args(["-Z", "unstable-options", "--report-time"]).arg(format!("--test-threads={threads}"));
    command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_MANIFEST_DIR", &binary.folder).current_dir(&binary.folder);
    // Tests that compile something outside of the repository use its toolchain, as they do under `cargo test`.
    if let Some(toolchain) = option_env!("RUSTUP_TOOLCHAIN") {
        command.env("RUSTUP_TOOLCHAIN", toolchain);
    }
    command
}

/// Prepares `cargo test` for the code in the documentation of every crate.
pub(crate) fn doc_tests() -> Command {
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    command
}

/// Runs a command to its end and reads what it printed.
pub(crate) fn run(name: &str, mut command: Command, log: &Path) -> anyhow::Result<Run> {
    let file = File::create(log).with_context(|| format!("{} cannot be written", log.display()))?;
    let begun = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .with_context(|| format!("{name} cannot be started"))?;
    let status = wait(&mut child, begun + LIMIT)?;
    let took = begun.elapsed();
    let output = fs::read(log)?;
    let report = Report::read(&String::from_utf8_lossy(&output), status.is_some_and(|status| status.success()));
    Ok(Run { name: name.to_owned(), report, took, log: log.to_owned() })
}

/// Waits for the end of a process. At the deadline it is killed, and there is no status.
fn wait(child: &mut Child, deadline: Instant) -> anyhow::Result<Option<ExitStatus>> {
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::park_timeout(Duration::from_millis(50));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}
