//! An operator inside of a process that is somebody else's, and the one of our own binary.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join;
use kube::Config;
use rustls::crypto::CryptoProvider;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::background::Background;
use super::certs::certificate_source;
use super::connect::Clients;
use super::convertible::convertible;
use super::endpoint::Endpoint;
use super::error::{ComponentsError, RunError};
use super::flags::BIND;
use super::health::Health;
use super::installation::configurations;
use super::leases::{LeaseFlags, LeaseTiming, Leases};
use super::shutdown::{LONGEST_DRAIN, SHUTDOWN};
use super::storage::follow_storage;
use super::tasks::Tasks;
use super::{Components, Installation, Operator, Runtime, SetupContext, Switch};
use portcullis_certificates::Configurations;
use portcullis_client::in_one_line;
use portcullis_listener::{Handler, Limits, Server};
use portcullis_metrics::Metrics;
use portcullis_webhook::Routes;

/// The default time for which webhooks are served after a stop was requested.
pub(super) const DRAIN_DELAY: Duration = Duration::from_secs(5);
/// The time that controllers wait for the conversion of their kinds to work.
const CONVERTIBLE: Duration = Duration::from_secs(30);
/// The time reserved at the end for everything but calls in flight.
const REST: Duration = Duration::from_secs(2);

/// Settings of an operator that runs inside of another process. The defaults are those of the flags of `run`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EmbedOptions {
    /// The installation: names, Service, source of certificates, restriction to a namespace
    /// ([`Operator::installation`]).
    pub installation: Installation,
    /// Address of the webhooks (HTTPS); by default `0.0.0.0:9443`, which is every address of IPv4 and of IPv6.
    pub bind: SocketAddr,
    /// Time to keep serving webhooks after the stop was requested, while callers learn of it; 5 s by default, at most
    /// 15 s.
    pub drain_delay: Duration,
    /// Whether replicas elect a leader, which alone runs the controllers. A restricted operator always elects one.
    pub leader_elect: Switch,
    /// Name of this replica in its Leases; the release's by default.
    pub identity: Option<String>,
    /// Bytes of the process's memory that the operator may use
    /// ([`Webhooks::memory_limit`](portcullis_webhook::Webhooks::memory_limit)); not limited by default.
    pub memory_limit: Option<usize>,
    /// The crypto provider for TLS; rustls' aws-lc-rs by default. It is not installed for the process.
    pub provider: Arc<CryptoProvider>,
    pub(super) lease_timing: Option<LeaseTiming>,
}

impl EmbedOptions {
    /// The default settings for this installation.
    pub fn new(installation: Installation) -> Self {
        Self {
            installation,
            bind: BIND,
            drain_delay: DRAIN_DELAY,
            leader_elect: Switch::default(),
            identity: None,
            memory_limit: None,
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            lease_timing: None,
        }
    }
}

/// An operator that is ready to run inside of another process: it reads no command line and no environment, installs
/// no crypto provider and no logger, handles no signals, and spawns nothing that outlives [`run`](Self::run).
///
/// ```no_run
/// # use portcullis::operator::{EmbedOptions, NoArgs, Operator};
/// # use tokio_util::sync::CancellationToken;
/// # async fn application(operator: Operator, config: kube::Config, stop: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
/// let options = EmbedOptions::new(operator.installation("my-namespace")?);
/// let embedded = operator.embed(&NoArgs {}, config, options).await?;
/// // For the application's own /metrics and /readyz.
/// let (metrics, readiness) = (embedded.metrics().clone(), embedded.readiness());
/// embedded.run(stop).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "an operator does nothing until it runs"]
pub struct EmbeddedOperator {
    operator: &'static str,
    clients: Clients,
    components: Components,
    leases: Leases,
    routes: Routes,
    health: Health,
    options: EmbedOptions,
    /// The server with its address; `None` without webhooks.
    server: Option<(Server, SocketAddr)>,
    /// The objects in which its CA is published.
    configurations: Configurations,
}

/// Readiness of an operator: the API server can call its webhooks, and the owners of namespaces are known. Once ready,
/// it stays ready until it stops.
#[derive(Clone, Debug)]
pub struct Readiness(Health);

impl Readiness {
    /// The condition that the operator waits for; `None` when it is ready.
    pub fn waiting_for(&self) -> Option<Arc<str>> {
        self.0.first_missing()
    }

    /// Waits until the operator is ready.
    pub async fn ready(&self) {
        self.0.until_all_ready().await;
    }
}

impl<A: clap::Args> Operator<A> {
    /// Prepares the operator to run inside of the caller's process, and binds the address of its webhooks. Nothing is
    /// written to the cluster yet.
    ///
    /// It takes a configuration and not a client, because it needs two clients: one for Leases and certificates does
    /// not repeat a request by itself, since kube's pauses between tries are longer than a Lease lasts.
    ///
    /// # Errors
    /// When the registration is invalid, no client can be made, or the address cannot be bound.
    pub fn embed(
        &self,
        args: &A,
        config: Config,
        options: EmbedOptions,
    ) -> impl Future<Output = Result<EmbeddedOperator, RunError>> + Send + use<A> {
        let prepared = self.prepare(args, config, options);
        async move { prepared?.bound().await }
    }

    fn prepare(&self, args: &A, config: Config, options: EmbedOptions) -> Result<EmbeddedOperator, RunError> {
        let context = SetupContext::from(&options.installation);
        let components = self.components(args, &context)?;
        if self.is_embedded.swap(true, Ordering::Relaxed)
            && (!self.controllers.is_empty() || !self.webhooks.sources().is_empty())
        {
            return Err(RunError::EmbeddedTwice(self.name));
        }
        convertible(&components.webhooks, &self.crds)?;
        let clients = Clients::new(config).map_err(|error| RunError::Client(error.into()))?;
        EmbeddedOperator::new(self.name, components, clients, options)
    }
}

impl EmbeddedOperator {
    pub(super) fn new(
        operator: &'static str,
        mut components: Components,
        clients: Clients,
        options: EmbedOptions,
    ) -> Result<Self, RunError> {
        if let Some(bytes) = options.memory_limit {
            info!(bytes, "reviews in flight may use half of the memory limit");
            components.webhooks = components.webhooks.memory_limit(bytes);
        }
        let EmbedOptions { installation, leader_elect, identity, lease_timing, .. } = &options;
        let flags = LeaseFlags { leader_elect: *leader_elect, identity: identity.clone(), lease_timing: *lease_timing };
        let has_controllers = !components.controllers.is_empty();
        let leases = Leases::new(&clients.prompt, installation, has_controllers, &flags)?;
        let scope = leases.scope.clone();
        let routes = components
            .webhooks
            .routes_with_skip(move |namespace| scope.passes(namespace))
            .map_err(ComponentsError::from)?;
        let metrics = routes.metrics().clone();
        metrics.adopt(std::mem::take(&mut components.metrics)).map_err(ComponentsError::from)?;
        leases.register_metrics(&metrics);
        let configurations = configurations(installation, &components.webhooks)?;
        let health = Health::new("the operator to start", metrics);
        Ok(Self { operator, clients, components, leases, routes, health, options, server: None, configurations })
    }

    /// Binds the address of the webhooks, if there are any.
    pub(super) async fn bound(mut self) -> Result<Self, RunError> {
        if self.serves() {
            let EmbedOptions { bind: address, drain_delay, .. } = self.options;
            let drain = SHUTDOWN.saturating_sub(drain_delay.min(LONGEST_DRAIN) + REST);
            let limits = Limits { drain, ..Limits::default() };
            let bound = Server::bind(address, limits).await.and_then(|server| Ok((server.local_addr()?, server)));
            let (address, server) = bound.map_err(|source| RunError::Listen { address, source })?;
            self.server = Some((server, address));
        }
        Ok(self)
    }

    fn serves(&self) -> bool {
        !self.components.webhooks.is_empty() && self.options.installation.webhooks.is_on()
    }

    /// The operator's metrics, for the process's own `/metrics` ([`Metrics::encode`]).
    pub fn metrics(&self) -> &Metrics {
        self.routes.metrics()
    }

    /// The operator's readiness while it runs, for the process's own `/readyz`.
    pub fn readiness(&self) -> Readiness {
        Readiness(self.health.clone())
    }

    pub(super) fn health(&self) -> &Health {
        &self.health
    }

    /// The webhooks as a `tower::Service`, to put behind the process's own router and middleware and serve by
    /// [`run_with_handler`](Self::run_with_handler).
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The address that the webhooks are served on; `None` when none are served.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(|(_, address)| *address)
    }

    /// Serves the webhooks and runs the controllers until `stop` is cancelled, and then shuts down: controllers end at
    /// once, webhooks are served for [`EmbedOptions::drain_delay`] more, and the calls in flight are answered, within
    /// 27 s. When the future is dropped, everything ends at once.
    ///
    /// # Errors
    /// With the error of the first component that failed. All the rest has then ended too.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let routes = self.routes.clone();
        self.run_with_handler(routes, stop).await
    }

    /// Does as [`run`](Self::run), with `handler` answering the requests on the address of the webhooks. It must pass
    /// the webhooks' own requests on to [`routes`](Self::routes).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_with_handler(self, handler: impl Handler, stop: CancellationToken) -> Result<(), RunError> {
        let serves = self.serves();
        let Self { operator, clients, components, leases, routes, health, options, server, configurations } = self;
        let EmbedOptions { installation, provider, drain_delay, .. } = options;
        let metrics = routes.metrics().clone();
        if installation.webhooks.is_on() {
            info!("Webhooks are enabled - webhooks will validate, controllers will skip validation");
        } else {
            info!("Webhooks are disabled - controllers will validate (defense in depth)");
        }
        // Endpoints learn of the end later than this process; who calls no webhooks is not waited for.
        let drain_delay = if serves { drain_delay.min(LONGEST_DRAIN) } else { Duration::ZERO };
        let (mut tasks, end) = (Tasks::default(), End::default());
        let converts = serves && !configurations.crds.is_empty();
        if converts {
            let conversions = components.webhooks.conversions().map_err(ComponentsError::from)?;
            let health = health.part("the versions that are stored, as the CRDs tell them");
            let work = follow_storage(clients.prompt.clone(), conversions, health, end.serving.clone());
            tasks.spawn("the versions that are stored", &end.serving, async move {
                work.await;
                Ok::<_, RunError>(())
            });
        }
        // Caches end after the last webhook call, because webhooks read them.
        let mut answered = end.serving.clone();
        if let Some((server, address)) = server {
            let client = clients.prompt.clone();
            let source = certificate_source(&installation, &components, client, provider, configurations, &metrics);
            let (server_name, health) = (installation.server_name(), health.clone());
            // Connections close after their next answer from the first signal on, while callers learn of the end, so
            // that none is left to be used again.
            let bound = server.ending(end.working.clone());
            let endpoint = Endpoint { operator, server: bound, address, server_name, handler, source, health };
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
        let (release, namespace) = (installation.release.clone(), installation.namespace.clone());
        let runtime = Runtime::new(clients.client, namespace, end.working.clone())
            .with_validators(components.webhooks.clone().with_overrides(&installation.overrides));
        let runtime = Runtime { release, webhooks: installation.webhooks, metrics, ..runtime };
        let (endpoint, has_controllers) = (health.clone(), !components.controllers.is_empty());
        let first = async move {
            if converts && has_controllers {
                convertible_soon(&endpoint).await;
            }
        };
        let (health_of_leases, serving) = (health.part("leases"), end.serving.clone());
        Background { runtime, leases, health: health_of_leases, serving, answered }
            .start(components, first, &mut tasks);
        let result = tokio::select! {
            () = stop.cancelled() => Ok(()),
            Some(ended) = tasks.next() => ended,
        };
        if let Err(failed) = &result {
            error!(error = in_one_line(failed), "shutting down: a component of the operator failed");
        }
        until_the_end(result, tasks, &health, &end, drain_delay).await
    }
}

impl std::fmt::Debug for EmbeddedOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedOperator")
            .field("operator", &self.operator)
            .field("components", &self.components)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Waits until the API server can call our conversion, because controllers can read nothing that is stored in another
/// version before. What prevents that may be theirs to repair, so they start in any case.
async fn convertible_soon(webhooks: &Health) {
    if timeout(CONVERTIBLE, webhooks.until_ready()).await.is_err() {
        let seconds = CONVERTIBLE.as_secs();
        warn!(seconds, "the API server cannot call the conversion yet: starting the controllers, which retry");
    }
}

/// The tokens that end the parts of an operator, one after another.
#[derive(Default)]
struct End {
    /// Controllers: at once.
    working: CancellationToken,
    /// Webhooks: when nobody calls them any more. What they read goes when they have ended.
    serving: CancellationToken,
}

/// Asks all to end and gives them time: the webhooks are still served for `drain_delay`, because they are still called.
/// Returns the first error, beginning with `result`.
async fn until_the_end(
    mut result: Result<(), RunError>,
    mut tasks: Tasks,
    health: &Health,
    end: &End,
    drain_delay: Duration,
) -> Result<(), RunError> {
    // An operator that was never ready is not called.
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
        warn!("shutdown timed out: ending what still runs");
    }
    result
}
