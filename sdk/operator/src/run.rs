//! `run`: the operator as a process of its own, from its start to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Client;
use rustls::crypto::CryptoProvider;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::cli::RunFlags;
use super::client_ca::ClientCaFile;
use super::connect::connect;
use super::embed::{EmbedOptions, EmbeddedOperator};
use super::error::RunError;
use super::installation::configurations;
use super::memory_limit::of_cgroup;
use super::{Components, Installation, Operator};
use portcullis_certificates::{Configurations, published};
use portcullis_listener::{Limits, Server};

/// How long everything may take to end after SIGTERM. Kubernetes' own patience is 30 s.
pub(super) const SHUTDOWN: Duration = Duration::from_secs(27);
/// How long controllers may take of that: then there is time left to give the Lease back.
pub(super) const CONTROLLERS: Duration = Duration::from_secs(22);
/// How long a Pod is given to end: as long as the process takes at most, and some time to be started again.
pub(super) const GRACE: Duration = Duration::from_secs(30);
/// The longest that a listener may go on after SIGTERM: calls under way need time to end after it.
pub(super) const LONGEST_DRAIN: Duration = Duration::from_secs(15);
/// Probes are answered at once; what still reads an answer when the process ends is not waited for any longer.
const PROBES_DRAIN: Duration = Duration::from_secs(1);
/// How long reading the configurations may take.
const LOOK: Duration = Duration::from_secs(30);
/// Signals this close are one: `timeout`, and whoever passes a terminal's signal on to its children, send it twice.
const ECHO: Duration = Duration::from_millis(500);

pub(super) async fn run<A: clap::Args>(
    operator: &Operator<A>,
    components: Components,
    flags: RunFlags,
    provider: Arc<CryptoProvider>,
) -> anyhow::Result<()> {
    // First of all: a process with the id 1 does not end by a signal that it does not listen to.
    let mut signals = Signals::new()?;
    let clients = connect(flags.kubeconfig.as_deref()).await?;
    let namespace = flags.namespace.clone().unwrap_or_else(|| clients.client.default_namespace().to_owned());
    let installation = flags.installation.resolve(operator.name, Some(&namespace))?;
    let configurations = configurations(&installation, &components.webhooks)?;
    if flags.namespace.is_none() {
        // A kubeconfig's namespace is seldom meant as an operator's home.
        tokio::select! {
            ours = ours(&clients.client, &installation, &configurations) => ours?,
            name = signals.next() => { info!("{name}: ending"); return Ok(()) }
        }
    }
    let client_ca = flags.client_ca.as_deref().map(|file| ClientCaFile::open(file, provider.clone())).transpose()?;
    let options = EmbedOptions {
        bind: flags.bind,
        drain_delay: flags.drain_delay,
        leader_elect: flags.leases.leader_elect,
        identity: flags.leases.identity,
        lease_timing: flags.leases.lease_timing,
        memory_limit: flags.memory_limit.or_else(of_cgroup),
        provider,
        ..EmbedOptions::new(installation)
    };
    let operator = EmbeddedOperator::new(operator.name, &operator.scope_leases, components, clients, options)?;
    let operator = operator.asking(client_ca);
    let health = operator.health().clone();

    let limits = Limits { drain: PROBES_DRAIN, ..Limits::default() };
    let probes = listens("--health-bind", flags.health_bind, Server::bind(flags.health_bind, limits).await)?;
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
        info!("{name}: ending");
        stop.cancel();
        // Whoever sends it twice does not want to wait for an orderly end.
        signals.next().await
    };
    tokio::select! {
        result = work => result,
        name = asked => bail!("{name} once more: ended at once, with calls and reconciles cut off"),
    }
}

/// That the configurations do not call another installation's Service. Nothing has been written yet.
async fn ours(client: &Client, installation: &Installation, configurations: &Configurations) -> anyhow::Result<()> {
    let read = timeout(LOOK, published(client, configurations)).await;
    let read = read.with_context(|| format!("the API server did not answer within {} s", LOOK.as_secs()))?;
    let (own, namespace) = (installation.server_names(), &installation.namespace);
    for found in read {
        if let Some(other) = found.calls_another(&own) {
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

fn listens<T>(flag: &str, address: SocketAddr, bound: std::io::Result<T>) -> anyhow::Result<T> {
    bound.with_context(|| format!("cannot listen on {flag} {address}"))
}

/// The signals that ask the process to end.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    last: Option<Instant>,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, last: None })
    }

    pub(super) async fn next(&mut self) -> &'static str {
        loop {
            let name = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
            };
            if self.is_new() {
                return name;
            }
        }
    }

    /// Whether a signal that comes now is more than an echo of the last one that counted; it counts then.
    pub(super) fn is_new(&mut self) -> bool {
        let now = Instant::now();
        let new = self.last.is_none_or(|last| now.duration_since(last) > ECHO);
        if new {
            self.last = Some(now);
        }
        new
    }
}
