//! `run`: the operator as a process of its own, from its start to its end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use kube::Client;
use rustls::crypto::CryptoProvider;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::connect::connect;
use super::durations::{LeaseFlags, duration};
use super::flags::ListenFlags;
use super::installation::InstallationFlags;
use super::memory_limit::{of_cgroup, quantity};
use super::signals::Signals;
use crate::embed::EmbeddedOperator;
use crate::error::RunError;
use crate::installation::{configurations, label};
use crate::options::EmbedOptions;
use crate::shutdown::LONGEST_DRAIN;
use crate::{Components, Installation, Operator};
use portcullis_certificates::{Configurations, read_published};
use portcullis_listener::{Limits, Server};

/// Probes are answered at once; a client that still reads an answer at the end is not waited for.
const PROBES_DRAIN: Duration = Duration::from_secs(1);
/// The timeout for reading the configurations.
const LOOK: Duration = Duration::from_secs(30);
/// The default log filter of `run`. kube's client logs each failed request without saying which or why; our own lines
/// do.
const LOG: &str = "info,kube_client::client::builder=off";

#[derive(clap::Args, Clone, Debug)]
pub(super) struct RunFlags {
    /// Kubeconfig file [default: KUBECONFIG, then ~/.kube/config, then the cluster that the process runs in]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The operator's own namespace [default: that of the ServiceAccount or the kubeconfig's context]
    #[arg(long, env = "POD_NAMESPACE", value_parser = label)]
    pub(super) namespace: Option<String>,
    #[command(flatten)]
    pub(super) installation: InstallationFlags,
    #[command(flatten)]
    pub(super) listen: ListenFlags,
    #[command(flatten)]
    pub(super) leases: LeaseFlags,
    /// Time to keep serving webhooks after SIGTERM, while callers learn of it; at most 15s
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = drain_delay)]
    pub(super) drain_delay: Duration,
    /// Memory limit of the process, as in 512Mi; reviews in flight may use half of it [default: the limit of its
    /// cgroup]
    #[arg(long, value_name = "BYTES", value_parser = quantity)]
    pub(super) memory_limit: Option<usize>,
    /// Log filter, as in `info` or `warn,portcullis=debug`
    #[arg(long, env = "RUST_LOG", default_value = LOG, value_name = "FILTER")]
    pub(super) log: String,
    /// Log format
    #[arg(long, default_value = "text")]
    pub(super) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogFormat {
    /// Human-readable text
    Text,
    /// One JSON object per line
    Json,
}

pub(super) async fn run<A: clap::Args>(
    operator: &Operator<A>,
    components: Components,
    flags: RunFlags,
    provider: Arc<CryptoProvider>,
) -> anyhow::Result<()> {
    // This comes first: a process with the id 1 does not end by a signal without a handler.
    let mut signals = Signals::new()?;
    let client = connect(flags.kubeconfig.as_deref()).await?;
    let namespace = flags.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let installation = operator.resolve(&flags.installation, Some(&namespace))?;
    let configurations = configurations(&installation, &components.webhooks)?;
    if flags.namespace.is_none() {
        // A kubeconfig's namespace is seldom the operator's own.
        tokio::select! {
            ours = ours(&client, &installation, &configurations) => ours?,
            name = signals.next() => { info!("{name}: shutting down"); return Ok(()) }
        }
    }
    let options = EmbedOptions {
        bind: flags.listen.bind,
        drain_delay: flags.drain_delay,
        leader_elect: flags.leases.leader_elect,
        identity: flags.leases.identity,
        lease_timing: flags.leases.lease_timing,
        memory_limit: flags.memory_limit.or_else(of_cgroup),
        provider,
        ..EmbedOptions::new(installation)
    };
    let operator = EmbeddedOperator::new(operator.name, components, client, options)?;
    let health = operator.readiness().0;

    let limits = Limits { drain: PROBES_DRAIN, ..Limits::default() };
    let address = flags.listen.health_bind;
    let probes = listens("--health-bind", address, Server::bind(address, limits).await)?;
    info!(address = %probes.local_addr()?, "serving /healthz and /readyz");
    let probes_stop = CancellationToken::new();
    let probes = tokio::spawn(probes.serve_plain(Arc::new(health), probes_stop.clone()));

    let operator = match operator.bound().await {
        Err(RunError::Listen { address, source }) => listens("--bind", address, Err(source))?,
        bound => bound?,
    };
    let stop = CancellationToken::new();
    let work = async {
        let result = Box::pin(operator.run(stop.clone())).await;
        probes_stop.cancel();
        probes.await?;
        anyhow::Ok(result?)
    };
    let asked = async {
        let name = signals.next().await;
        info!("{name}: shutting down");
        stop.cancel();
        // A second signal asks for an end without waiting.
        signals.next().await
    };
    tokio::select! {
        result = work => result,
        name = asked => bail!("{name} once more: ended at once, with calls and reconciles cut off"),
    }
}

/// Checks that the configurations do not call another installation's Service. Nothing has been written yet.
async fn ours(client: &Client, installation: &Installation, configurations: &Configurations) -> anyhow::Result<()> {
    let read = timeout(LOOK, read_published(client, configurations)).await;
    let read = read.with_context(|| format!("the API server did not answer within {} s", LOOK.as_secs()))?;
    let (own, namespace) = (installation.server_names(), &installation.namespace);
    for found in read {
        if let Some(other) = found.other_service(&own) {
            let object = &found.object;
            bail!(
                "{object} calls {other}, of another installation, while this one would live in namespace {namespace}, which \
                 is that of the kubeconfig's context: nothing is written there. Give the --namespace of that installation \
                 (and its --service-name), or --release NAME for one of your own"
            );
        }
        found.entries.with_context(|| format!("cannot read {}, to see whose it is; give --namespace", found.object))?;
    }
    Ok(())
}

/// Parses the drain delay. A longer one would leave calls in flight no time to end.
fn drain_delay(text: &str) -> Result<Duration, String> {
    let delay = duration(text)?;
    if delay <= LONGEST_DRAIN { Ok(delay) } else { Err(format!("{LONGEST_DRAIN:?} at most")) }
}

fn listens<T>(flag: &str, address: SocketAddr, bound: std::io::Result<T>) -> anyhow::Result<T> {
    bound.with_context(|| format!("cannot listen on {flag} {address}"))
}
