//! A client for the cluster that a command line means.

use std::path::Path;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// The cluster of this file, or the one that the process finds itself in.
pub(super) async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    Client::try_from(config(kubeconfig).await?).context("cannot make a client")
}

/// A cluster, and how the kubeconfig calls it.
pub(super) struct Cluster {
    pub(super) client: Client,
    /// Of its API server.
    pub(super) url: http::Uri,
    /// Name of the context; empty within a cluster.
    pub(super) context: String,
}

/// The same cluster as [`connect`]'s, with what a person knows it by.
pub(super) async fn cluster(file: Option<&Path>) -> anyhow::Result<Cluster> {
    let config = config(file).await?;
    let kubeconfig = file.map_or_else(Kubeconfig::read, Kubeconfig::read_from).ok();
    let (url, context) = (config.cluster_url.clone(), kubeconfig.and_then(|file| file.current_context));
    let client = Client::try_from(config).context("cannot make a client")?;
    Ok(Cluster { client, url, context: context.unwrap_or_default() })
}

async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    match kubeconfig {
        None => Config::infer().await.context("no cluster found; give --kubeconfig FILE"),
        Some(file) => {
            let unusable = || format!("cannot use --kubeconfig {}", file.display());
            let kubeconfig = Kubeconfig::read_from(file).with_context(unusable)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.with_context(unusable)
        }
    }
}
