//! `run`: the process from its start to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::join;
use kube::Client;
use rustls::crypto::CryptoProvider;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::accounts::Accounts;
use super::cli::RunFlags;
use super::client_ca::ClientCaFile;
use super::connect::connect;
use super::endpoint::Endpoint;
use super::health::Health;
use super::leases::Leases;
use super::tasks::Tasks;
use super::work::Work;
use super::{Installation, Operator, Parts, Runtime};
use crate::certificates::{Configurations, published};
use crate::server::{Limits, Server};
use crate::words::WEBHOOKS_OFF;

/// How long everything may take to end after SIGTERM. Kubernetes' own patience is 30 s.
pub(super) const SHUTDOWN: Duration = Duration::from_secs(27);
/// How long controllers may take of that: then there is time left to give the Lease back.
pub(super) const CONTROLLERS: Duration = Duration::from_secs(22);
/// How long controllers of kinds that are converted wait for the conversion.
const CONVERTIBLE: Duration = Duration::from_secs(30);
/// How long a Pod is given to end: as long as the process takes at most, and some time to be started again.
pub(super) const GRACE: Duration = Duration::from_secs(30);
/// What is left of that for other things than calls under way.
const REST: Duration = Duration::from_secs(2);
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
    parts: Parts,
    flags: RunFlags,
    provider: Arc<CryptoProvider>,
) -> anyhow::Result<()> {
    // First of all: a process with the id 1 does not end by a signal that it does not listen to.
    let mut signals = Signals::new()?;
    let clients = connect(flags.kubeconfig.as_deref()).await?;
    let client = clients.client.clone();
    let namespace = flags.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let installation = flags.installation.resolve(operator.name, Some(&namespace))?;
    let configurations = installation.configurations(&parts.webhooks)?;
    if flags.namespace.is_none() {
        // A kubeconfig's namespace is seldom meant as an operator's home.
        tokio::select! {
            ours = ours(&client, &installation, &configurations) => ours?,
            name = signals.next() => { info!("{name}: ending"); return Ok(()) }
        }
    }
    let has_controllers = !parts.controllers.is_empty();
    let leases = Leases::new(&client, &installation, &operator.scope_leases, has_controllers, &flags.leases)?;
    let client_ca = flags.client_ca.as_deref().map(|file| ClientCaFile::open(file, provider.clone())).transpose()?;
    let routes = parts.webhooks.routes_in(&leases.scope)?;
    let routes = if client_ca.is_some() { routes.demanding_client_certificates() } else { routes };
    let metrics = routes.metrics().clone();
    leases.counted_in(&metrics);
    let accounts = Accounts::new(&clients, &installation, &parts, &metrics)?;
    let health = Health::new("the operator to start", metrics.clone());
    let mut tasks = Tasks::default();
    let end = End::default();

    let limits = Limits { drain: PROBES_DRAIN, ..Limits::default() };
    let probes = listen("--health-bind", flags.health_bind, limits).await?;
    info!(address = %probes.local_addr()?, "serving /healthz and /readyz");
    let probes_stop = CancellationToken::new();
    let probes = tokio::spawn(probes.serve_plain(Arc::new(health.clone()), probes_stop.clone()));

    if installation.webhooks.is_on() {
        info!("Webhooks are enabled - webhooks will validate, controllers will skip validation");
    } else {
        info!("{WEBHOOKS_OFF} - controllers will validate (defense in depth)");
    }
    let serves = !parts.webhooks.is_empty() && installation.webhooks.is_on();
    // Endpoints learn of the end later than this process; who calls no webhooks is not waited for.
    let drain_delay = if serves { flags.drain_delay } else { Duration::ZERO };
    let mut converts = false;
    // What webhooks read goes after the last of their calls.
    let mut answered = end.serving.clone();
    if serves {
        converts = !configurations.crds.is_empty();
        let source = installation.certificate_source(&parts, client.clone(), provider, configurations, &metrics);
        let source = source.asking(client_ca.as_ref().map(ClientCaFile::authorities));
        if let Some(client_ca) = client_ca {
            let stop = end.serving.clone();
            tasks.spawn("the authorities of callers", &end.serving, async move {
                client_ca.follow(stop).await;
                Ok(())
            });
        }
        let limits = Limits { drain: SHUTDOWN.saturating_sub(drain_delay + REST), ..Limits::default() };
        let endpoint = Endpoint {
            operator: operator.name,
            server: listen("--bind", flags.bind, limits).await?,
            server_name: installation.server_name(),
            routes,
            source,
            health: health.clone(),
        };
        answered = CancellationToken::new();
        let last = answered.clone().drop_guard();
        let work = endpoint.run(end.serving.clone());
        tasks.spawn("the webhook server", &end.serving, async move {
            let _last = last;
            work.await
        });
    } else {
        health.ready();
    }
    let runtime = Runtime::new(client, namespace, end.working.clone());
    let release = installation.release.clone();
    let runtime = Runtime { release, webhooks: installation.webhooks, metrics, ..runtime };
    let endpoint = health.clone();
    let first = async move {
        if converts && has_controllers {
            convertible(&endpoint).await;
        }
    };
    let (health_of_leases, serving) = (health.part("leases"), end.serving.clone());
    let (patience, only) = (CONTROLLERS, Vec::new());
    Work { runtime, accounts, leases, only, health: health_of_leases, serving, answered, patience }
        .start(parts, first, &mut tasks);
    let (result, asked) = tokio::select! {
        name = signals.next() => { info!("{name}: ending"); (Ok(()), true) }
        Some(ended) = tasks.next() => (ended, false),
    };
    let failed = result.as_ref().err().map(|error| format!("{error:#}; ")).unwrap_or_default();
    let ending = async {
        let result = until_the_end(result, tasks, &health, &end, drain_delay).await;
        probes_stop.cancel();
        probes.await?;
        result
    };
    tokio::select! {
        result = ending => result,
        name = signals.once_more(asked) => bail!("{failed}{name} once more: ended at once, with calls and reconciles cut off"),
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

/// Until the API server can call our conversion, controllers can read nothing that is stored in another version. What
/// keeps it from that may be theirs to mend, so they begin in any case.
async fn convertible(webhooks: &Health) {
    if timeout(CONVERTIBLE, webhooks.until_ready()).await.is_err() {
        let seconds = CONVERTIBLE.as_secs();
        warn!(seconds, "the conversion cannot be called yet; the controllers begin, and try again what fails");
    }
}

/// What ends when.
#[derive(Default)]
struct End {
    /// Controllers: at once.
    working: CancellationToken,
    /// Webhooks: when nobody calls them any more. What they read goes when they have ended.
    serving: CancellationToken,
}

async fn listen(flag: &str, address: SocketAddr, limits: Limits) -> anyhow::Result<Server> {
    Server::bind(address, limits).await.with_context(|| format!("cannot listen on {flag} {address}"))
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

    /// The second one: whoever sends it does not want to wait for an orderly end.
    async fn once_more(&mut self, asked: bool) -> &'static str {
        if !asked {
            let _ = self.next().await;
        }
        self.next().await
    }
}

/// Asks all to end and gives them time: the webhooks are still served for `drain_delay`, because they are still called.
/// Returns the first error, beginning with `result`.
async fn until_the_end(
    mut result: anyhow::Result<()>,
    mut tasks: Tasks,
    health: &Health,
    end: &End,
    drain_delay: Duration,
) -> anyhow::Result<()> {
    // Nobody calls what was never ready.
    let drain_delay = if health.is_ready() { drain_delay } else { Duration::ZERO };
    end.working.cancel();
    health.waiting_for("the process to end");
    let lame_duck = async {
        sleep(drain_delay).await;
        end.serving.cancel();
    };
    let rest = async {
        while let Some(ended) = tasks.next().await {
            result = std::mem::replace(&mut result, Ok(())).and(ended);
        }
    };
    if timeout(SHUTDOWN, join(lame_duck, rest)).await.is_err() {
        warn!("not everything ended in time");
    }
    result
}
