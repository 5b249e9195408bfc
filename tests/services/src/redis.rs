//! A real Redis as a child process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use portcullis_pki::{Ca, CertificateParams, Usage};
use portcullis_testing::free_address;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout};

/// The time that Redis may take to start, to end, and to answer.
const DEADLINE: Duration = Duration::from_secs(30);
/// Another process may take a free port before Redis does.
const ATTEMPTS: usize = 5;
const MISSING: &str = "is missing: on Debian `apt-get install redis-server`";

/// Runs a program until standard input ends, which only the process that started this holds open.
const GUARD: &str = r#""$@" & server=$!; read -r _; kill -9 "$server"; wait "$server" 2>/dev/null"#;

/// The settings of a Redis. The default asks for no password, speaks no TLS and keeps nothing on disk.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// The password that it asks for.
    pub password: Option<String>,
    /// It speaks TLS alone.
    pub tls: Option<Tls>,
    /// It writes each change to disk before it answers, and has it again when it is started again.
    pub persistent: bool,
    /// The commands that it does not know.
    pub unknown: &'static [&'static str],
}

/// The files of a Redis that speaks TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The PEM of its certificate, which is for 127.0.0.1.
    pub certificate: PathBuf,
    /// The PEM of its key.
    pub key: PathBuf,
    /// The PEM of the authority that clients trust.
    pub ca: PathBuf,
}

impl Tls {
    /// Writes the certificate of a new authority, and one that it has signed, to files in `folder`.
    ///
    /// # Errors
    /// They cannot be made, or not be written.
    pub fn written_to(folder: &Path) -> Result<Self> {
        let now = Timestamp::now();
        let (not_before, not_after) = (now - SignedDuration::from_hours(1), now + SignedDuration::from_hours(24));
        let ca = Ca::generate("redis ca", not_before, not_after)?;
        let pair = ca.issue(&CertificateParams {
            common_name: "redis",
            organizations: &[],
            dns_names: &[],
            ip_addresses: &[[127, 0, 0, 1].into()],
            not_before,
            not_after,
            usage: Usage::Server,
        })?;
        let write = |name: &str, pem: &str| {
            let path = folder.join(name);
            std::fs::write(&path, pem).map(|()| path)
        };
        Ok(Self {
            certificate: write("tls.crt", &pair.cert_pem)?,
            key: write("tls.key", &pair.key_pem)?,
            ca: write("ca.crt", ca.cert_pem())?,
        })
    }
}

/// A running Redis.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisOptions,
    folder: TempDir,
    port: u16,
    /// Nothing while it is stopped.
    process: Option<Process>,
}

#[derive(Debug)]
struct Process {
    guard: Child,
    /// Its end is that of the server.
    stdin: ChildStdin,
}

impl RedisServer {
    /// Starts one on a port of its own.
    ///
    /// # Errors
    /// No `redis-server` is installed, or it does not start.
    pub async fn start(options: RedisOptions) -> Result<Self> {
        Self::start_in(tempfile::tempdir()?, options).await
    }

    /// Starts another one, on a port of its own, with what this one has on disk.
    pub async fn successor(&self) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let copied = Command::new("cp").arg("-a").arg(self.folder.path().join(".")).arg(folder.path()).status().await?;
        ensure!(copied.success(), "the data of redis-server cannot be copied");
        Self::start_in(folder, self.options.clone()).await
    }

    async fn start_in(folder: TempDir, options: RedisOptions) -> Result<Self> {
        let mut server = Self { options, folder, port: 0, process: None };
        for attempt in 1.. {
            server.port = free_address().port();
            match server.start_again().await {
                Err(_) if attempt < ATTEMPTS && server.log().contains("Failed listening") => {}
                other => return other.map(|()| server),
            }
        }
        bail!("no port is free")
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts it at the same address.
    pub async fn start_again(&mut self) -> Result<()> {
        let configuration = self.folder.path().join("redis.conf");
        std::fs::write(&configuration, self.configuration())?;
        std::fs::write(self.folder.path().join("log"), "")?;
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "sh", "redis-server"])
            .arg(configuration)
            .stdin(Stdio::piped())
            // Ctrl-C in a terminal is for the process that started it, with which it ends.
            .process_group(0)
            .spawn()?;
        let stdin = guard.stdin.take().context("its input is piped")?;
        self.process = Some(Process { guard, stdin });
        let until = Instant::now() + DEADLINE;
        while !self.log().contains("Ready to accept connections") {
            let log = self.log();
            if Instant::now() > until || log.contains("Failed listening") || log.contains("FATAL") {
                self.process = None;
                bail!("redis-server does not start; perhaps it {MISSING}\n{log}");
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Kills it; its address is free when this returns.
    pub async fn kill(&mut self) -> Result<()> {
        let Some(Process { mut guard, stdin }) = self.process.take() else { return Ok(()) };
        drop(stdin);
        timeout(DEADLINE, guard.wait()).await.context("redis-server does not end")??;
        Ok(())
    }

    /// Runs a command by `redis-cli` and returns its answer, without a line break at the end.
    pub async fn cli(&self, command: &[&str]) -> Result<String> {
        let output = timeout(DEADLINE, self.client().args(command).output()).await.context("redis-cli does not end")?;
        let output = output.with_context(|| format!("redis-cli {MISSING}"))?;
        let answer = String::from_utf8(output.stdout)?.trim_end_matches('\n').to_owned();
        if !output.status.success() {
            bail!("{command:?}: {answer} {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(answer)
    }

    /// Watches the commands that clients send from now on.
    pub async fn monitor(&self) -> Result<Monitor<'_>> {
        let mut child = self.client().arg("MONITOR").stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("its output is piped")?).lines();
        let mut monitor = Monitor { server: self, lines, _child: child };
        let first = monitor.line().await?;
        if first != "OK" {
            bail!("MONITOR answers {first}");
        }
        Ok(monitor)
    }

    fn client(&self) -> Command {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-e"]).stdin(Stdio::null());
        if let Some(password) = &self.options.password {
            command.env("REDISCLI_AUTH", password);
        }
        if let Some(tls) = &self.options.tls {
            command.arg("--tls").arg("--cacert").arg(&tls.ca);
        }
        command
    }

    fn configuration(&self) -> String {
        let folder = self.folder.path().display();
        let port = self.port;
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("dir {folder}"),
            format!("logfile {folder}/log"),
            "save \"\"".to_owned(),
        ];
        match &self.options.tls {
            None => lines.push(format!("port {port}")),
            Some(Tls { certificate, key, ca }) => lines.extend([
                format!("port 0\ntls-port {port}\ntls-auth-clients no"),
                format!("tls-cert-file {}\ntls-key-file {}", certificate.display(), key.display()),
                format!("tls-ca-cert-file {}", ca.display()),
            ]),
        }
        if let Some(password) = &self.options.password {
            lines.push(format!("requirepass {password}"));
        }
        if self.options.persistent {
            lines.push("appendonly yes\nappendfsync always".to_owned());
        }
        lines.extend(self.options.unknown.iter().map(|command| format!("rename-command {command} \"\"")));
        lines.join("\n") + "\n"
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// The commands that a Redis receives.
#[derive(Debug)]
pub struct Monitor<'a> {
    server: &'a RedisServer,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Monitor<'_> {
    /// The commands since the last call, without those that scripts ran: each with its arguments in quotes.
    pub async fn commands(&mut self) -> Result<Vec<String>> {
        let mark = "portcullis-mark";
        self.server.cli(&["ECHO", mark]).await?;
        let mut commands = Vec::new();
        loop {
            let line = self.line().await?;
            // A line is `TIME [DATABASE ADDRESS] "COMMAND" "ARGUMENT"`, with `lua` for the address of a script.
            let Some((head, command)) = line.split_once("] ") else { continue };
            if command.contains(mark) {
                return Ok(commands);
            }
            if !head.ends_with(" lua") {
                commands.push(command.to_owned());
            }
        }
    }

    async fn line(&mut self) -> Result<String> {
        let line = timeout(DEADLINE, self.lines.next_line()).await.context("MONITOR says nothing")??;
        line.context("MONITOR has ended")
    }
}
