//! `run`: the process from its start to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls::crypto::CryptoProvider;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::cli::RunFlags;
use super::connect::connect;
use super::endpoint::Endpoint;
use super::health::Health;
use super::tasks::Tasks;
use super::{Operator, Parts, Runtime};
use crate::server::{Limits, Server};

/// How long everything may take to end after SIGTERM. Kubernetes' own patience is 30 s.
const SHUTDOWN: Duration = Duration::from_secs(27);
/// How long a Pod is given to end: as long as the process takes at most, and some time to be started again.
pub(super) const GRACE: Duration = Duration::from_secs(30);
/// Probes are answered at once; what still reads an answer when the process ends is not waited for any longer.
const PROBES_DRAIN: Duration = Duration::from_secs(1);

pub(super) async fn run<A: clap::Args>(
    operator: &Operator<A>,
    parts: Parts,
    flags: RunFlags,
    provider: Arc<CryptoProvider>,
) -> anyhow::Result<()> {
    // First of all: a process with the id 1 does not end by a signal that it does not listen to.
    let mut signals = Signals::new()?;
    let client = connect(flags.kubeconfig.as_deref()).await?;
    let namespace = flags.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let installation = flags.installation.resolve(operator.name, Some(&namespace))?;
    let (stop, probes_stop) = (CancellationToken::new(), CancellationToken::new());
    let routes = parts.webhooks.routes()?;
    let health = Health::new("the operator to start", routes.metrics().clone());
    let mut tasks = Tasks::default();

    let limits = Limits { drain: PROBES_DRAIN, ..Limits::default() };
    let probes = listen("--health-bind", flags.health_bind, limits).await?;
    info!(address = %probes.local_addr()?, "serving /healthz and /readyz");
    let probes = tokio::spawn(probes.serve_plain(Arc::new(health.clone()), probes_stop.clone()));

    if parts.webhooks.is_empty() || !installation.webhooks.is_on() {
        health.ready();
    } else {
        let configurations = installation.configurations(&parts.webhooks)?;
        let source = installation.certificate_source(client.clone(), provider, configurations, routes.metrics());
        let endpoint = Endpoint {
            operator: operator.name,
            server: listen("--bind", flags.bind, Limits::default()).await?,
            server_name: installation.server_name(),
            routes,
            source: flags.rotation.applied_to(source),
            health: health.clone(),
        };
        tasks.spawn("the webhook server", &stop, endpoint.run(stop.clone()));
    }
    for (name, controller) in parts.everywhere.into_iter().chain(parts.controllers) {
        let mut runtime = Runtime::new(client.clone(), namespace.clone(), stop.clone());
        runtime.webhooks = installation.webhooks;
        runtime.metrics = health.metrics().clone();
        tasks.spawn(format!("controller {name}"), &stop, controller(runtime));
    }
    let result = until_the_end(tasks, &mut signals, &health, &stop).await;
    probes_stop.cancel();
    probes.await?;
    result
}

async fn listen(flag: &str, address: SocketAddr, limits: Limits) -> anyhow::Result<Server> {
    Server::bind(address, limits).await.with_context(|| format!("cannot listen on {flag} {address}"))
}

/// The signals that ask the process to end.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Waits for a signal or for the first task that ends, then asks all to end and gives them time.
async fn until_the_end(
    mut tasks: Tasks,
    signals: &mut Signals,
    health: &Health,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut result = tokio::select! {
        name = signals.next() => { info!("{name}: ending"); Ok(()) }
        Some(ended) = tasks.next() => ended,
    };
    stop.cancel();
    health.waiting_for("the process to end");
    let rest = async {
        while let Some(ended) = tasks.next().await {
            result = std::mem::replace(&mut result, Ok(())).and(ended);
        }
    };
    if timeout(SHUTDOWN, rest).await.is_err() {
        warn!("not everything ended in time");
    }
    result
}
