//! The example `standalone` as a process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use portcullis_pki::{Ca, CertificateParams, Usage};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::PATIENCE;

/// A server at work. Ends with the test.
pub(crate) struct Process {
    pub(crate) address: SocketAddr,
    pub(crate) ca: Ca,
    child: Child,
    _certificates: TempDir,
    // No writer may block on a full pipe.
    _log: JoinHandle<()>,
}

impl Process {
    /// Starts it under these DNS names, with this many reviews for each webhook.
    pub(crate) async fn start(dns_names: &[String], concurrency: usize) -> Self {
        Self::start_with(dns_names, &["--concurrency", &concurrency.to_string()]).await
    }

    /// Starts it under these DNS names, with these flags.
    pub(crate) async fn start_with(dns_names: &[String], flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ca = certificates(directory.path(), dns_names);
        let file = |name: &str| directory.path().join(name).into_os_string();
        let mut child = Command::new(binary())
            .args(["--bind", "127.0.0.1:0", "--log", "info"])
            .args(flags)
            .args(["--cert".into(), file("tls.crt"), "--key".into(), file("tls.key")])
            .env_remove("RUST_LOG")
            // Generated Deployments set them, too: without them, glibc keeps what large reviews took.
            .envs(portcullis::manifest::ALLOCATOR_ENV)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some((_, address)) = line.split_once("address=") {
                    return address.trim().parse().unwrap();
                }
            }
            panic!("the server ended before it served")
        };
        let address = timeout(PATIENCE, address).await.expect("the server's address");
        let log = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { address, ca, child, _certificates: directory, _log: log }
    }

    /// Resident memory in MiB: now, and the most that it ever was.
    pub(crate) fn memory(&self) -> (usize, usize) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap();
        let mib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse::<usize>().unwrap() / 1024
        };
        (mib("VmRSS:"), mib("VmHWM:"))
    }

    /// Asks it to end, and whether it did so in order.
    pub(crate) async fn end(mut self) -> bool {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        timeout(PATIENCE * 3, self.child.wait()).await.expect("an end").unwrap().success()
    }
}

/// The example's binary, which cargo builds with the tests.
fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().and_then(Path::parent).unwrap().join("examples/standalone");
    assert!(binary.is_file(), "{} is missing: run `cargo build --workspace --examples`", binary.display());
    binary
}

/// Writes a pair for the server, and returns who signed it.
fn certificates(directory: &Path, dns_names: &[String]) -> Ca {
    let now = jiff::Timestamp::now();
    let (from, to) = (now - jiff::SignedDuration::from_mins(1), now + jiff::SignedDuration::from_hours(1));
    let ca = Ca::generate("test ca", from, to).unwrap();
    let pair = ca
        .issue(&CertificateParams {
            common_name: "test",
            organizations: &[],
            dns_names,
            ip_addresses: &[],
            not_before: from,
            not_after: to,
            usage: Usage::Server,
        })
        .unwrap();
    std::fs::write(directory.join("tls.crt"), &pair.cert_pem).unwrap();
    std::fs::write(directory.join("tls.key"), pair.key_pem.as_bytes()).unwrap();
    ca
}
