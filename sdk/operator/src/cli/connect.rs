//! A client for the cluster that a command line names.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::timeout;
use tower::BoxError;
use tower::util::MapErrLayer;

use portcullis_client::error_message;

/// The timeout of the first request.
const ANSWER: Duration = Duration::from_secs(10);

/// Creates a client for the cluster of this file, or for the one that the process runs in.
pub(super) async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    client(config(kubeconfig).await?)
}

/// A request without an answer. Its message names the API server and the cause, because kube's own names only the part
/// of the client that failed.
#[derive(Debug, thiserror::Error)]
#[error("the API server at {url} does not answer: {why}")]
struct Unanswered {
    url: http::Uri,
    why: String,
}

fn client(config: Config) -> anyhow::Result<Client> {
    let url = config.cluster_url.clone();
    let named = move |error: BoxError| -> BoxError {
        // For example, a credential that cannot be obtained.
        if error.is::<kube::Error>() {
            return error;
        }
        Box::new(Unanswered { url: url.clone(), why: cause(&*error) })
    };
    let builder = ClientBuilder::try_from(config).context("cannot make a client")?;
    Ok(builder.with_layer(&MapErrLayer::new(named)).build())
}

/// Connects and waits until the API server has answered anything: for commands that a person waits for.
pub(super) async fn answering(file: Option<&Path>) -> anyhow::Result<Client> {
    Ok(cluster(file).await?.client)
}

async fn answers(client: &Client, url: &http::Uri) -> anyhow::Result<()> {
    let request = http::Request::get("/version").body(kube::client::Body::empty())?;
    let silent = || format!("the API server at {url} does not answer: nothing said within {} s", ANSWER.as_secs());
    let why = match timeout(ANSWER, client.send(request)).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => error_message(&error),
        Err(_) => silent(),
    };
    anyhow::bail!("{why}; check --kubeconfig or its current context")
}

/// The innermost error: those above it name parts of our client.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let root = std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error);
    match root.downcast_ref::<std::io::Error>() {
        Some(error) if error.raw_os_error().is_some() => error.kind().to_string(),
        _ => root.to_string(),
    }
}

/// A cluster, and how the kubeconfig calls it.
#[cfg_attr(not(feature = "dev"), expect(dead_code, reason = "a session says which cluster it serves"))]
pub(super) struct Cluster {
    pub(super) client: Client,
    /// The address of its API server.
    pub(super) url: http::Uri,
    /// Name of the context; empty within a cluster.
    pub(super) context: String,
}

/// Does as [`answering`], and returns also the names by which a person knows the cluster.
pub(super) async fn cluster(file: Option<&Path>) -> anyhow::Result<Cluster> {
    let config = config(file).await?;
    let kubeconfig = file.map_or_else(Kubeconfig::read, Kubeconfig::read_from).ok();
    let (url, context) = (config.cluster_url.clone(), kubeconfig.and_then(|file| file.current_context));
    let client = client(config)?;
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
