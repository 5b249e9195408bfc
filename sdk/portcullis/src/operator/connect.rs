//! A client for the cluster that a command line means.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::timeout;

/// How long the API server may take to say that it is there.
const ANSWER: Duration = Duration::from_secs(10);

/// The cluster of this file, or the one that the process finds itself in.
pub(super) async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    Client::try_from(config(kubeconfig).await?).context("cannot make a client")
}

/// The same, once its API server has answered: for commands that a person waits for. What it answers does not matter here.
pub(super) async fn answering(file: Option<&Path>) -> anyhow::Result<Client> {
    Ok(cluster(file).await?.client)
}

async fn answers(client: &Client, url: &http::Uri) -> anyhow::Result<()> {
    let request = http::Request::get("/version").body(kube::client::Body::empty())?;
    let why = match timeout(ANSWER, client.send(request)).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => cause(&error),
        Err(_) => format!("nothing said within {} s", ANSWER.as_secs()),
    };
    anyhow::bail!("the API server at {url} does not answer: {why}; check --kubeconfig or its current context")
}

/// What it comes down to: what lies above it tells of our client's parts.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let root = std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error);
    match root.downcast_ref::<std::io::Error>() {
        Some(error) if error.raw_os_error().is_some() => error.kind().to_string(),
        _ => root.to_string(),
    }
}

/// A cluster, and how the kubeconfig calls it.
pub(super) struct Cluster {
    pub(super) client: Client,
    /// Of its API server.
    pub(super) url: http::Uri,
    /// Name of the context; empty within a cluster.
    pub(super) context: String,
}

/// The same cluster as [`answering`]'s, with what a person knows it by.
pub(super) async fn cluster(file: Option<&Path>) -> anyhow::Result<Cluster> {
    let config = config(file).await?;
    let kubeconfig = file.map_or_else(Kubeconfig::read, Kubeconfig::read_from).ok();
    let (url, context) = (config.cluster_url.clone(), kubeconfig.and_then(|file| file.current_context));
    let client = Client::try_from(config).context("cannot make a client")?;
    answers(&client, &url).await?;
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
