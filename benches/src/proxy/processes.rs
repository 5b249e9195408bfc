//! The processes of a run: server, webhooks and callers are this harness's `proxy` binary once more.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use portcullis_e2e::process::{Process, binary};
use portcullis_e2e::stage::{ready, settled};
use portcullis_testing::free_address;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::caller::{Client, Load, Measured};
use super::workload::Workload;

/// A process that listens.
#[derive(Debug)]
pub struct Listening {
    /// Where it listens.
    pub address: SocketAddr,
    process: Process,
}

impl Listening {
    async fn start(name: &str, folder: &Path, address: SocketAddr, command: Command) -> Result<Self> {
        let mut process = Process::start(name, folder, command)?;
        settled(&format!("{name} to listen"), async || {
            process.check_running()?;
            Ok(TcpStream::connect(address).await.ok())
        })
        .await?;
        Ok(Self { address, process })
    }

    /// The MCP server, over HTTP.
    pub async fn backend(folder: &Path, instructions: usize) -> Result<Self> {
        let (mut command, address) = (Command::new(binary("proxy")?), free_address());
        command.args(["backend", "--listen", &address.to_string(), "--instructions", &instructions.to_string()]);
        Self::start("backend", folder, address, command).await
    }

    /// The webhooks, with what [`prepare`](super::webhooks::prepare) wrote.
    pub async fn webhooks(folder: &Path) -> Result<Self> {
        let (mut command, address) = (Command::new(binary("proxy")?), free_address());
        command.args(["webhooks", "--listen", &address.to_string(), "--folder"]).arg(folder);
        Self::start("webhooks", folder, address, command).await
    }

    /// The relay in front of `backend`.
    pub async fn relay(folder: &Path, backend: SocketAddr) -> Result<Self> {
        let (mut command, address) = (Command::new(binary("proxy")?), free_address());
        command.args(["relay", "--listen", &address.to_string(), "--backend", &backend.to_string()]);
        Self::start("relay", folder, address, command).await
    }

    /// The relay as a server behind TLS, with the certificate that [`prepare`](super::webhooks::prepare) wrote.
    pub async fn tls(folder: &Path, backend: SocketAddr) -> Result<Self> {
        let (mut command, address) = (Command::new(binary("proxy")?), free_address());
        command.args(["relay", "--listen", &address.to_string(), "--backend", &backend.to_string(), "--certificate"]);
        command.arg(folder);
        Self::start("tls", folder, address, command).await
    }

    /// The reverse proxy of Go's standard library in front of `backend`.
    pub async fn reverse_proxy(folder: &Path, path: &Path, backend: SocketAddr) -> Result<Self> {
        let (mut command, address) = (Command::new(path), free_address());
        command.args(["-listen", &address.to_string(), "-backend", &format!("http://{backend}")]);
        Self::start("reverse-proxy", folder, address, command).await
    }

    /// The runner of this build, or an older one, on a RunConfig with these further middleware.
    pub async fn runner(folder: &Path, path: &Path, behind: &Behind, middleware: &[Value]) -> Result<Self> {
        Self::with_members(folder, path, behind, &json!({}), middleware).await
    }

    /// The same, with these further members in the RunConfig.
    pub async fn with_members(
        folder: &Path,
        path: &Path,
        behind: &Behind,
        members: &Value,
        middleware: &[Value],
    ) -> Result<Self> {
        Self::guarded(folder, path, behind, &json!({}), members, middleware).await
    }

    /// The runner of this build with these further middleware, for callers who log in as `oidc` says, to a provider on loopback.
    pub async fn login(
        folder: &Path,
        path: &Path,
        behind: &Behind,
        oidc: &Value,
        middleware: &[Value],
    ) -> Result<Self> {
        Self::guarded(folder, path, behind, &json!({ "oidc_config": oidc }), &json!({}), middleware).await
    }

    async fn guarded(
        folder: &Path,
        path: &Path,
        behind: &Behind,
        auth: &Value,
        members: &Value,
        middleware: &[Value],
    ) -> Result<Self> {
        let (transport, mode) = match behind {
            Behind::Http(_) | Behind::Remote(_) => ("streamable-http", "streamable-http"),
            Behind::Sse(_) => ("sse", "sse"),
            Behind::Stdio(_) | Behind::Attached => ("stdio", "streamable-http"),
            Behind::StdioOverSse(_) => ("stdio", "sse"),
        };
        let mut chain = vec![
            json!({ "type": "bodylimit", "parameters": { "max_bytes": 8_388_608 } }),
            json!({ "type": "auth", "parameters": auth }),
            json!({ "type": "mcp-parser", "parameters": {} }),
        ];
        chain.extend_from_slice(middleware);
        chain.push(json!({ "type": "recovery", "parameters": null }));
        let mut config = json!({ "schema_version": "v0.1.0", "image": "bench", "name": "bench", "transport": transport,
            "host": "127.0.0.1", "port": 8080, "target_port": 8080, "permission_profile": null,
            "proxy_mode": mode, "middleware_configs": chain });
        for (name, value) in members.as_object().into_iter().flatten() {
            config[name] = value.clone();
        }
        if let Behind::Remote(server) = behind {
            config["remote_url"] = format!("https://localhost:{}/mcp", server.port()).into();
        }
        let address = free_address();
        let name = format!("runner-{}", address.port());
        let file = folder.join(format!("{name}.json"));
        std::fs::write(&file, serde_json::to_vec_pretty(&config)?)?;
        let mut command = Command::new(path);
        command.arg("run").arg("--config").arg(&file).args(["--listen", &address.to_string()]);
        // An older runner does not have the flag.
        if auth.get("oidc_config").is_some() {
            command.args(["--allow-endpoint-cidr", "127.0.0.0/8"]);
        }
        match behind {
            Behind::Http(backend) | Behind::Sse(backend) => command.args(["--backend", &format!("http://{backend}")]),
            Behind::Remote(_) => command
                .args(["--allow-endpoint-cidr", "127.0.0.0/8,::1/128"])
                .env("SSL_CERT_FILE", folder.join(super::webhooks::CA)),
            Behind::Stdio(server) | Behind::StdioOverSse(server) => command.arg("--").args(server),
            // The cluster is the one of KUBECONFIG.
            Behind::Attached => &mut command,
        };
        let mut process = Process::start(&name, folder, command)?;
        ready(&mut process, address, "/health").await?;
        Ok(Self { address, process })
    }

    /// Its process id.
    pub fn pid(&self) -> Result<u32> {
        self.process.pid().context("the process has ended")
    }

    /// Ends it.
    pub async fn stop(self) -> Result<()> {
        self.process.stop().await.map(drop)
    }
}

/// The entry of the chain for lines of audit into a pipe that somebody reads, as a node reads the output of a container.
pub fn audit_to_pipe(folder: &Path) -> Result<Value> {
    let pipe = tempfile::Builder::new().prefix("audit-").make_in(folder, |path| {
        let made = std::process::Command::new("mkfifo").arg(path).status()?;
        made.success().then_some(()).ok_or_else(|| std::io::Error::other("mkfifo fails"))
    })?;
    let path = pipe.into_temp_path().keep()?;
    let config = json!({ "logFile": path });
    // It ends with the proxy that writes.
    std::thread::spawn(move || {
        let mut lines = vec![0; 64 << 10];
        let Ok(mut pipe) = File::open(path) else { return };
        while matches!(pipe.read(&mut lines), Ok(1..)) {}
    });
    Ok(json!({ "type": "audit", "parameters": { "config_data": config } }))
}

/// The server behind a runner.
#[derive(Clone, Debug)]
pub enum Behind {
    /// A server at an address.
    Http(SocketAddr),
    /// A remote server: `localhost` with TLS at an address.
    Remote(SocketAddr),
    /// A command.
    Stdio(Vec<OsString>),
    /// A command, for clients of HTTP with server-sent events.
    StdioOverSse(Vec<OsString>),
    /// A server at an address that speaks HTTP with server-sent events.
    Sse(SocketAddr),
    /// The container `mcp` of the pod `bench-0`.
    Attached,
}

/// The command of the MCP server that speaks over standard input and output.
pub fn stdio_server() -> Result<Vec<OsString>> {
    Ok(vec![binary("proxy")?.into(), "backend".into()])
}

/// Starts a caller, with `token` where there is one, and waits for what it measured.
pub async fn call(
    address: SocketAddr,
    workload: Workload,
    load: Load,
    watched: Option<u32>,
    token: Option<&str>,
    sse: bool,
) -> Result<Measured> {
    let mut arguments = vec!["--workload".to_owned(), workload.tool().to_owned()];
    arguments.extend(watched.into_iter().flat_map(|pid| ["--watched".to_owned(), pid.to_string()]));
    arguments.extend(token.into_iter().flat_map(|token| ["--token".to_owned(), token.to_owned()]));
    arguments.extend(sse.then(|| "--sse".to_owned()));
    caller(address, load, arguments.into_iter().map(OsString::from).collect()).await
}

/// Starts a caller of the webhooks alone.
pub async fn call_webhooks(address: SocketAddr, folder: &Path, client: Client, load: Load) -> Result<Measured> {
    let client = ["--client".into(), client.name().into()];
    caller(address, load, [vec!["--webhooks".into(), PathBuf::from(folder).into()], client.into()].concat()).await
}

async fn caller(address: SocketAddr, load: Load, arguments: Vec<OsString>) -> Result<Measured> {
    let mut command = Command::new(binary("proxy")?);
    command.args(["call", "--address", &address.to_string(), "--sessions", &load.sessions.to_string()]);
    command.args(["--calls", &load.calls.to_string()]).args(arguments);
    let output = command.kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "calls failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}
