//! A provider's process. It ends when its standard input does, which only this process holds open.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::DEADLINE;

/// A program to start.
#[derive(Debug)]
pub(crate) struct Program {
    command: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
}

impl Program {
    pub(crate) fn new(command: impl Into<OsString>) -> Self {
        Self { command: command.into(), arguments: Vec::new(), environment: Vec::new() }
    }
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) issuer: String,
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    log: File,
}

impl Process {
    /// Starts it and waits until it says its issuer, which it does when it listens.
    pub(crate) async fn start(program: &Program) -> Result<Self> {
        let log = tempfile::tempfile()?;
        let mut child = Command::new(&program.command)
            .args(&program.arguments)
            .envs(program.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.try_clone()?)
            // Ctrl-C in a terminal is for the process that started it, which ends it when it is no longer needed.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.command.display()))?;
        let stdin = child.stdin.take().context("its input is piped")?;
        let lines = BufReader::new(child.stdout.take().context("its output is piped")?).lines();
        let mut process = Self { issuer: String::new(), child, stdin, lines, log };
        process.issuer = process.line().await?;
        Ok(process)
    }

    /// Writes a command, and waits until it is echoed.
    pub(crate) async fn ask(&mut self, command: &str) -> Result<()> {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await?;
        while self.line().await? != command {}
        Ok(())
    }

    /// Ends it, and waits until it is gone.
    pub(crate) async fn stop(mut self) -> Result<()> {
        timeout(DEADLINE, self.child.kill()).await.context("the identity provider does not end")??;
        Ok(())
    }

    /// The next line of its output.
    async fn line(&mut self) -> Result<String> {
        match timeout(DEADLINE, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(Ok(None)) => bail!("the identity provider ended:\n{}", self.said()?),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => bail!("the identity provider says nothing for {} s:\n{}", DEADLINE.as_secs(), self.said()?),
        }
    }

    /// Its log so far. The process goes on writing where it is, so the place in the file, which is shared, must not move.
    pub(crate) fn said(&self) -> Result<String> {
        let mut text = vec![0; usize::try_from(self.log.metadata()?.len())?];
        self.log.read_exact_at(&mut text, 0)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
