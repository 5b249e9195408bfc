//! The runner beside a real MCP server, started on the bytes that the operator wrote.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use portcullis_testing::free_address;
use tokio::process::Command;

use crate::pod::Pod;
use crate::process::{Process, binary, everything_server};
use crate::stage::{LOOPBACK, ready};

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
        let address = free_address();
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
    /// Does for server `name` what a pod would: takes the RunConfig from its ConfigMap, byte for byte, and the files and variables that its Deployment
    /// has, and starts the runner on them in front of `backend`.
    pub async fn start(
        client: &Client,
        namespace: &str,
        name: &str,
        backend: SocketAddr,
        folder: &Path,
    ) -> Result<Self> {
        Self::start_at(client, namespace, name, Some(backend), folder).await
    }

    /// The same for the proxy of a remote server, whose address is in the RunConfig.
    pub async fn start_remote(client: &Client, namespace: &str, name: &str, folder: &Path) -> Result<Self> {
        Self::start_at(client, namespace, name, None, folder).await
    }

    async fn start_at(
        client: &Client,
        namespace: &str,
        name: &str,
        backend: Option<SocketAddr>,
        folder: &Path,
    ) -> Result<Self> {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let map = maps.get(&format!("{name}-runconfig")).await?;
        let document =
            map.data.as_ref().and_then(|data| data.get("runconfig.json")).context("no runconfig.json")?.clone();
        let deployment = Api::<Deployment>::namespaced(client.clone(), namespace).get(name).await?;
        let pod = Pod::of(client, &deployment)?;
        let (files, config) = (folder.join(format!("{name}-files")), folder.join(format!("{name}-runconfig.json")));
        pod.write_files(&files).await?;
        std::fs::write(&config, &document)?;

        let address = free_address();
        let mut command = Command::new(binary("mcp-runner")?);
        command.arg("run").arg("--config").arg(&config).arg("--files-root").arg(&files);
        command.args(["--listen", &address.to_string(), "--allow-endpoint-cidr", LOOPBACK]);
        if let Some(backend) = backend {
            command.args(["--backend", &format!("http://{backend}")]);
        }
        command.envs(pod.environment().await?);
        let mut process = Process::start(&format!("mcp-runner-{name}"), folder, command)?;
        ready(&mut process, address, "/health").await?;
        Ok(Self { url: format!("http://{address}/mcp"), document, files, process })
    }

    /// Does what the kubelet does while a pod runs: brings the mounted files up to date.
    pub async fn refresh_files(&self, client: &Client, deployment: &Deployment) -> Result<()> {
        Pod::of(client, deployment)?.write_files(&self.files).await
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.process.output()
    }

    /// Drains and ends it; returns its log.
    pub async fn stop(self) -> Result<String> {
        self.process.stop().await
    }
}
