//! The processes that are compared: started with one command line, pinned to one CPU, gone when this process is.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustls::ClientConfig;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::client::Caller;
use crate::{peers, proc};

/// Time for a server to take its first connection.
const START: Duration = Duration::from_secs(30);
/// Time for a server to end by itself.
const END: Duration = Duration::from_secs(5);

/// A server that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Which {
    /// Ours, as the SDK comes.
    Portcullis,
    /// Ours, with mimalloc.
    PortcullisMimalloc,
    /// Ours, without a log line for each decision, as the others.
    PortcullisQuiet,
    /// The one to beat.
    ControllerRuntime,
    /// A server as one writes it by hand with kube.
    KubeRs,
    /// A server that does nothing but answer: the lower bound.
    Floor,
    /// Ours, built at an earlier commit: the file that `--baseline` names.
    #[value(skip)]
    Baseline,
}

impl Which {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 6] = [
        Self::Portcullis,
        Self::PortcullisMimalloc,
        Self::PortcullisQuiet,
        Self::ControllerRuntime,
        Self::KubeRs,
        Self::Floor,
    ];

    /// Heads its column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portcullis => "portcullis",
            Self::PortcullisMimalloc => "+mimalloc",
            Self::PortcullisQuiet => "+log=warn",
            Self::ControllerRuntime => "ctrl-runtime",
            Self::KubeRs => "kube-rs",
            Self::Floor => "floor",
            Self::Baseline => "baseline",
        }
    }

    fn program(self, baseline: Option<&Path>) -> Result<PathBuf> {
        let binary = match self {
            Self::Portcullis | Self::PortcullisQuiet => "serve_portcullis",
            Self::PortcullisMimalloc => "serve_portcullis_mimalloc",
            Self::KubeRs => "serve_kube_rs",
            Self::Floor => "serve_floor",
            Self::ControllerRuntime => return peers::binary("controller-runtime"),
            Self::Baseline => return baseline.map(Path::to_owned).context("--baseline names no file"),
        };
        let own = std::env::current_exe()?;
        let program = own.with_file_name(binary);
        ensure!(
            program.is_file(),
            "{} is missing; run `cargo build --release -p portcullis-benches --bins`",
            program.display()
        );
        Ok(program)
    }

    fn arguments(self, port: u16, folder: &Path) -> Vec<String> {
        let (port, folder) = (port.to_string(), folder.display().to_string());
        if self == Self::ControllerRuntime {
            return vec!["-port".into(), port, "-cert-dir".into(), folder];
        }
        let mut arguments = vec!["--port".into(), port, "--cert-dir".into(), folder];
        if self == Self::PortcullisQuiet {
            arguments.extend(["--log".into(), "warn".into()]);
        }
        arguments
    }
}

/// A server at work. Killed when dropped; it ends by itself when this process is gone.
#[derive(Debug)]
pub struct Running {
    /// Which one.
    pub which: Which,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its process.
    pub pid: u32,
    child: Child,
}

impl Running {
    /// Starts a server on `cpu` (`baseline` is the program of [`Which::Baseline`]) and waits until it takes a connection. Its log goes into the folder.
    pub async fn start(
        which: Which,
        baseline: Option<&Path>,
        folder: &Path,
        tls: &Arc<ClientConfig>,
        cpu: Option<&str>,
    ) -> Result<Self> {
        let program = which.program(baseline)?;
        // Free a moment ago: controller-runtime takes no listener and no port 0.
        let address = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let mut command = match cpu {
            Some(cpu) => {
                let mut pinned = Command::new("taskset");
                pinned.args(["-c", cpu]).arg(program);
                pinned
            }
            None => Command::new(program),
        };
        let log = folder.join(format!("{}.log", which.name()));
        let child = command
            .args(which.arguments(address.port(), folder))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", which.name()))?;
        let pid = child.id().context("a process without id")?;
        let mut running = Self { which, address, pid, child };
        let deadline = Instant::now() + START;
        while Caller::connect(address, tls).await.is_err() {
            if let Some(status) = running.child.try_wait()? {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                bail!("{} ended with {status}: {}", which.name(), said.lines().last().unwrap_or_default());
            }
            ensure!(Instant::now() < deadline, "{} takes no connection", which.name());
            sleep(Duration::from_millis(50)).await;
        }
        Ok(running)
    }

    /// Lets it end, and ends it if it does not.
    pub async fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        if timeout(END, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}

/// Where the callers and the servers run: on CPUs of their own, where there are two and `taskset` is installed. Moves this
/// process, so call it before there are threads.
pub fn pin() -> Option<&'static str> {
    if std::thread::available_parallelism().ok()?.get() < 2 {
        return None;
    }
    proc::move_to("1", &[std::process::id()]).is_ok().then_some("0")
}
