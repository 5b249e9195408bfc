//! A server that is a child process.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use mcp_runconfig::environment;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{BoxFuture, Closed, End, LEAVE, OpenError, OpenPipe, Pipe, log_errors_of};

/// The prefixes of variables with the proxy's own secrets: those of its document, its password at the identity provider, and headers for its
/// collector of traces and metrics. The server does not get them.
const SECRETS: [&str; 3] =
    [environment::SECRET_PREFIX, environment::OIDC_CLIENT_SECRET, environment::OTEL_HEADER_PREFIX];

/// A child process that speaks over its standard input and output. What it writes to its standard error is logged.
#[derive(Clone, Debug)]
pub struct Process {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Environment on top of this process's own without its secrets.
    pub environment: Vec<(String, String)>,
}

impl Process {
    /// The process of `command`, a program and its arguments.
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { command: command.into_iter().map(Into::into).collect(), environment: Vec::new() }
    }

    fn spawn(&self) -> Result<OpenPipe, OpenError> {
        let (program, arguments) = self.command.split_first().ok_or(OpenError::Empty)?;
        let refused = |source| OpenError::Spawn { program: program.clone(), source };
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if SECRETS.iter().any(|secret| name.as_encoded_bytes().starts_with(secret.as_bytes())) {
                command.env_remove(name);
            }
        }
        let mut child = command
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(refused)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(refused(std::io::ErrorKind::BrokenPipe.into()));
        };
        let mut log = JoinSet::new();
        log.spawn(log_errors_of(stderr));
        Ok(OpenPipe { read: Box::new(stdout), write: Box::new(stdin), end: Box::new(Running { child, log }) })
    }
}

impl Pipe for Process {
    fn open(&self) -> BoxFuture<'_, Result<OpenPipe, OpenError>> {
        Box::pin(std::future::ready(self.spawn()))
    }
}

struct Running {
    child: Child,
    log: JoinSet<()>,
}

impl End for Running {
    fn ended(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let _ = self.child.wait().await;
        })
    }

    fn close(mut self: Box<Self>, why: &'static str) -> BoxFuture<'static, Closed> {
        Box::pin(async move {
            let pid = self.child.id();
            // Its input is closed, which asks it to end.
            match timeout(LEAVE, self.child.wait()).await {
                Ok(Ok(status)) => tracing::info!(pid, %status, why, "the MCP server's process ended"),
                Ok(Err(error)) => tracing::warn!(pid, %error, "lost the MCP server's process"),
                Err(_) => {
                    tracing::warn!(pid, why, "killing the MCP server's process: it does not end when its input does");
                    if let Err(error) = self.child.kill().await {
                        tracing::error!(pid, %error, "cannot kill the MCP server's process");
                    }
                }
            }
            // What it said last may still be in the pipe; a grandchild may hold it open.
            let _ = timeout(Duration::from_millis(200), async { while self.log.join_next().await.is_some() {} }).await;
            Closed::Gone
        })
    }
}
