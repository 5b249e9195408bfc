//! The runner beside a real MCP server, started on the bytes that the operator wrote.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::process::Command;

use crate::process::{Process, binary, everything_server};
use crate::secret_files::write_secret_mounts;
use crate::stage::{free_address, ready};

/// The Go SDK's `everything` server over streamable HTTP.
#[derive(Debug)]
pub struct Everything {
    /// Where it listens.
    pub address: SocketAddr,
    process: Process,
}

impl Everything {
    /// Starts it on a free loopback port.
    pub async fn start(folder: &Path) -> Result<Self> {
        let address = free_address()?;
        let mut command = Command::new(everything_server()?);
        command.args(["-http", &address.to_string()]);
        let mut process = Process::start("everything", folder, command)?;
        crate::stage::settled("the everything server to listen", async || {
            process.check_running()?;
            Ok(tokio::net::TcpStream::connect(address).await.ok())
        })
        .await?;
        Ok(Self { address, process })
    }

    /// Ends it.
    pub async fn stop(self) -> Result<()> {
        self.process.stop().await.map(drop)
    }
}

/// A running `mcp-runner`.
#[derive(Debug)]
pub struct Runner {
    /// The URL that MCP clients connect to.
    pub url: String,
    /// The ConfigMap's bytes that it was started on.
    pub document: String,
    files: PathBuf,
    process: Process,
}

impl Runner {
    /// Does for server `name` what a pod would: takes the RunConfig from its ConfigMap, byte for byte, and the Secrets that its Deployment mounts, and
    /// starts the runner on them in front of `backend`.
    pub async fn start(
        client: &Client,
        namespace: &str,
        name: &str,
        backend: SocketAddr,
        folder: &Path,
    ) -> Result<Self> {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let map = maps.get(&format!("{name}-runconfig")).await?;
        let document =
            map.data.as_ref().and_then(|data| data.get("runconfig.json")).context("no runconfig.json")?.clone();
        let deployment = Api::<Deployment>::namespaced(client.clone(), namespace).get(name).await?;
        let (files, config) = (folder.join("files"), folder.join("runconfig.json"));
        write_secret_mounts(client, &deployment, &files).await?;
        std::fs::write(&config, &document)?;

        let address = free_address()?;
        let mut command = Command::new(binary("mcp-runner")?);
        command.arg("run").arg("--config").arg(&config).arg("--files-root").arg(&files);
        command.args(["--listen", &address.to_string(), "--backend", &format!("http://{backend}")]);
        let mut process = Process::start("mcp-runner", folder, command)?;
        ready(&mut process, address, "/health").await?;
        Ok(Self { url: format!("http://{address}/mcp"), document, files, process })
    }

    /// Does what the kubelet does while a pod runs: brings the files of the mounted Secrets up to date.
    pub async fn refresh_files(&self, client: &Client, deployment: &Deployment) -> Result<()> {
        write_secret_mounts(client, deployment, &self.files).await.map(drop)
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.process.output()
    }

    /// Drains and ends it; returns its log.
    pub async fn stop(self) -> Result<String> {
        self.process.stop().await
    }
}
