//! A client for the cluster that a command line means.

use std::path::Path;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// The cluster of this file, or the one that the process finds itself in.
pub(super) async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let config = match kubeconfig {
        None => Config::infer().await.context("no cluster found; give --kubeconfig FILE")?,
        Some(file) => {
            let unusable = || format!("cannot use --kubeconfig {}", file.display());
            let kubeconfig = Kubeconfig::read_from(file).with_context(unusable)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.with_context(unusable)?
        }
    };
    Client::try_from(config).context("cannot make a client")
}
