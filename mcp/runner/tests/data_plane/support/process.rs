//! Real MCP servers as processes that end with the test, whichever way it ends.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command as StdCommand, Stdio};

use portcullis_testing::free_address;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::{eventually, within};

/// Starts the rest of its arguments, says the pid, and kills it when its own input ends: when the test does.
const WATCHER: &str = r#""$@" </dev/null >/dev/null 2>&1 & pid=$!; echo $pid; read -r _; kill -9 $pid"#;

/// An HTTP server that is not ours.
pub(crate) struct Server {
    command: Vec<String>,
    environment: Vec<(&'static str, String)>,
    pub(crate) address: SocketAddr,
    watcher: Option<Child>,
    pid: u32,
}

impl Server {
    /// The official Go SDK's `everything` over streamable HTTP. It serves every path.
    pub(crate) async fn go() -> Self {
        Self::go_at(free_address()).await
    }

    /// The same at this address.
    pub(crate) async fn go_at(address: SocketAddr) -> Self {
        let command = vec![go().display().to_string(), "-http".into(), address.to_string()];
        Self { command, environment: vec![], address, watcher: None, pid: 0 }.up().await
    }

    /// The Go SDK's server for the conformance suite, over streamable HTTP. It serves every path.
    pub(crate) async fn conformance(stateless: bool) -> Self {
        let program = conformance_server().display().to_string();
        Self::start_at(|address| vec![program, "-http".into(), address.into(), format!("-stateless={stateless}")]).await
    }

    /// The server that `command` makes of an address.
    pub(crate) async fn start_at(command: impl FnOnce(&str) -> Vec<String>) -> Self {
        let address = free_address();
        let command = command(&address.to_string());
        Self { command, environment: vec![], address, watcher: None, pid: 0 }.up().await
    }

    /// npm's `server-everything` over streamable HTTP.
    pub(crate) async fn node() -> Self {
        let address = free_address();
        let command = vec!["node".into(), node_server().display().to_string(), "streamableHttp".into()];
        let environment = vec![("PORT", address.port().to_string())];
        Self { command, environment, address, watcher: None, pid: 0 }.up().await
    }

    /// npm's `server-everything` over HTTP+SSE.
    pub(crate) async fn node_sse() -> Self {
        let address = free_address();
        let command = vec!["node".into(), node_server().display().to_string(), "sse".into()];
        let environment = vec![("PORT", address.port().to_string())];
        Self { command, environment, address, watcher: None, pid: 0 }.up().await
    }

    async fn up(mut self) -> Self {
        self.start().await;
        self
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts it (again) and waits until it accepts connections.
    pub(crate) async fn start(&mut self) {
        let mut watcher = Command::new("sh")
            .arg("-c")
            .arg(WATCHER)
            .arg("sh")
            .args(&self.command)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
        let pid = within("the pid of a server", lines.next_line()).await.unwrap().unwrap();
        self.pid = pid.trim().parse().unwrap();
        self.watcher = Some(watcher);
        eventually("a server to listen", || async { TcpStream::connect(self.address).await.ok() }).await;
    }

    /// SIGKILL, and gone when this returns.
    pub(crate) async fn kill(&mut self) {
        signal("KILL", self.pid);
        drop(self.watcher.take());
        eventually("a killed server to be gone", || async { TcpStream::connect(self.address).await.err() }).await;
    }
}

/// Sends a signal by its name.
pub(crate) fn signal(name: &str, pid: u32) {
    let sent = StdCommand::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}

/// Where `hack/mcp-servers/build.sh` keeps a thing, which must be there.
pub(crate) fn installed(what: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/mcp-servers/build.sh");
    let output = StdCommand::new(script).args(["where", what]).output().unwrap();
    let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    assert!(
        path.exists(),
        "{} is missing: run `make mcp-servers` or, of an SDK, `hack/mcp-servers/build.sh sdks`",
        path.display()
    );
    path
}

/// The official Go SDK's `everything`; speaks over standard input and output unless told otherwise.
pub(crate) fn go() -> PathBuf {
    installed("go")
}

/// The Go SDK's server for the conformance suite; speaks over standard input and output unless told otherwise.
pub(crate) fn conformance_server() -> PathBuf {
    installed("conformance")
}

/// The folder that holds `node_modules`.
pub(crate) fn modules() -> PathBuf {
    let node = StdCommand::new("node").arg("--version").stdout(Stdio::null()).status();
    assert!(
        node.is_ok_and(|status| status.success()),
        "node is missing: install Node.js 20 or newer, then `make mcp-servers`"
    );
    installed("node")
}

/// The script of npm's `server-everything`.
pub(crate) fn node_server() -> PathBuf {
    modules().join("node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}
