//! An operator inside of a process that is somebody else's, and the one of our own binary.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use kube::Config;
use rustls::crypto::CryptoProvider;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::accounts::Accounts;
use super::cli::{BIND, in_one_line};
use super::client_ca::ClientCaFile;
use super::connect::Clients;
use super::endpoint::Endpoint;
use super::error::RunError;
use super::health::Health;
use super::leases::{LeaseFlags, LeaseTiming, Leases};
use super::run::{CONTROLLERS, LONGEST_DRAIN, SHUTDOWN};
use super::tasks::Tasks;
use super::work::Work;
use super::{Installation, Operator, Parts, Runtime, Switch};
use crate::certificates::Configurations;
use crate::conversion::convertible;
use crate::metrics::Metrics;
use crate::server::{Handler, Limits, Server};
use crate::webhooks::{RegistrationError, Routes};
use crate::words::WEBHOOKS_OFF;

/// How long webhooks are served after the end was asked for, unless another time is said.
pub(super) const DRAIN_DELAY: Duration = Duration::from_secs(5);
/// How long controllers of kinds that are converted wait for the conversion.
const CONVERTIBLE: Duration = Duration::from_secs(30);
/// What is left of the time to end for other things than calls under way.
const REST: Duration = Duration::from_secs(2);

/// How an operator runs inside of a process that is not its own. The defaults are those of the flags of `run`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EmbedOptions {
    /// Which installation it is: names, Service, source of certificates, restriction to a namespace
    /// ([`Operator::installation`]).
    pub installation: Installation,
    /// Address of the webhooks (HTTPS): `0.0.0.0:9443`.
    pub bind: SocketAddr,
    /// How long to go on serving webhooks after the end was asked for, while callers learn of it: 5 s, and 15 s at most.
    pub drain_delay: Duration,
    /// Whether one replica at a time runs the controllers. A restricted operator always elects one.
    pub leader_elect: Switch,
    /// Name of this replica, for people who read its Leases: the release's.
    pub identity: Option<String>,
    /// Bytes of memory that the operator may take of what the process has ([`Webhooks::memory_limit`](crate::webhooks::Webhooks::memory_limit)): not limited.
    pub memory_limit: Option<usize>,
    /// What TLS is done with: rustls' aws-lc-rs. It is not installed for the process.
    pub provider: Arc<CryptoProvider>,
    pub(super) lease_timing: Option<LeaseTiming>,
}

impl EmbedOptions {
    /// The defaults, for this installation.
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

/// An operator that is ready to run inside of a process that is somebody else's: it reads no command line and no
/// environment, installs no crypto provider and no logger, listens for no signal, and spawns nothing that outlives
/// [`run`](Self::run).
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
    parts: Parts,
    leases: Leases,
    accounts: Accounts,
    routes: Routes,
    health: Health,
    options: EmbedOptions,
    /// With its address; none where there is nothing to serve.
    server: Option<(Server, SocketAddr)>,
    /// Where its CA is published.
    configurations: Configurations,
    /// Whose certificates callers of admission are asked for.
    client_ca: Option<ClientCaFile>,
}

/// Whether an operator can do its work: the API server can call its webhooks, and the owners of namespaces are known.
/// Ready once, it stays so until it ends.
#[derive(Clone, Debug)]
pub struct Readiness(Health);

impl Readiness {
    /// What it waits for; `None` when it is ready.
    pub fn waiting_for(&self) -> Option<Arc<str>> {
        self.0.first_missing()
    }

    /// Returns when it is ready.
    pub async fn ready(&self) {
        self.0.until_all_ready().await;
    }
}

impl<A: clap::Args> Operator<A> {
    /// Makes the operator ready to run inside of the caller's process, and binds the address of its webhooks. Nothing is
    /// written to the cluster yet.
    ///
    /// It takes a configuration and makes its own clients, because each controller acts under
    /// [an account of its own](Parts::controller).
    ///
    /// # Errors
    /// When the registration does not fit together, no client can be made, or the address cannot be bound.
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
        let context = options.installation.setup_context();
        let parts = (self.setup)(args, &context).map_err(|error| RunError::Setup(error.into()))?;
        parts.checked()?;
        convertible(&parts.webhooks, &self.crds)?;
        let clients = Clients::new(config).map_err(|error| RunError::Client(error.into()))?;
        EmbeddedOperator::new(self.name, &self.scope_leases, parts, clients, options)
    }
}

impl EmbeddedOperator {
    pub(super) fn new(
        operator: &'static str,
        scope_leases: &[&'static str],
        mut parts: Parts,
        clients: Clients,
        options: EmbedOptions,
    ) -> Result<Self, RunError> {
        if let Some(bytes) = options.memory_limit {
            info!(bytes, "reviews under way take half of the memory limit at most");
            parts.webhooks = parts.webhooks.memory_limit(bytes);
        }
        let EmbedOptions { installation, leader_elect, identity, lease_timing, .. } = &options;
        let flags = LeaseFlags::new(*leader_elect, identity.clone(), *lease_timing);
        let has_controllers = !parts.controllers.is_empty();
        let leases = Leases::new(&clients.prompt, installation, scope_leases, has_controllers, &flags)?;
        let routes = parts.webhooks.routes_in(&leases.scope)?;
        let metrics = routes.metrics().clone();
        metrics.adopt(std::mem::take(&mut parts.metrics)).map_err(RegistrationError::from)?;
        leases.counted_in(&metrics);
        let accounts = Accounts::new(&clients, installation, &parts, &metrics)?;
        let configurations = installation.configurations(&parts.webhooks)?;
        let health = Health::new("the operator to start", metrics);
        let (server, client_ca) = (None, None);
        Ok(Self {
            operator,
            clients,
            parts,
            leases,
            accounts,
            routes,
            health,
            options,
            server,
            configurations,
            client_ca,
        })
    }

    /// Asks callers of admission for a certificate of these authorities.
    pub(super) fn asking(self, client_ca: Option<ClientCaFile>) -> Self {
        let routes = if client_ca.is_some() { self.routes.demanding_client_certificates() } else { self.routes };
        Self { routes, client_ca, ..self }
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
        !self.parts.webhooks.is_empty() && self.options.installation.webhooks.is_on()
    }

    /// What is counted, in the text format of Prometheus ([`Metrics::encode`]): for the process's own `/metrics`.
    pub fn metrics(&self) -> &Metrics {
        self.routes.metrics()
    }

    /// Whether it can do its work, while it runs: for the process's own `/readyz`.
    pub fn readiness(&self) -> Readiness {
        Readiness(self.health.clone())
    }

    pub(super) fn health(&self) -> &Health {
        &self.health
    }

    /// The webhooks behind HTTP: a `tower::Service`, to be put behind the process's own router and middleware, and served
    /// by [`run_with`](Self::run_with).
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The address of the webhooks; `None` where it has none.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(|(_, address)| *address)
    }

    /// Serves the webhooks and runs the controllers until `stop`, and then until all has ended: controllers end at once,
    /// webhooks are served for [`EmbedOptions::drain_delay`] more, and the calls under way are answered, within 27 s. When
    /// the future is dropped, all ends at once.
    ///
    /// # Errors
    /// With the first part that failed. The others have then ended too.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let routes = self.routes.clone();
        self.run_with(routes, stop).await
    }

    /// The same, where `handler` answers what comes in on the address of the webhooks. It leaves to
    /// [`routes`](Self::routes) what is theirs.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_with(self, handler: impl Handler, stop: CancellationToken) -> Result<(), RunError> {
        let serves = self.serves();
        let Self { operator, clients, parts, leases, accounts, routes, health, options, server, .. } = self;
        let (configurations, client_ca) = (self.configurations, self.client_ca);
        let EmbedOptions { installation, provider, drain_delay, .. } = options;
        let metrics = routes.metrics().clone();
        if installation.webhooks.is_on() {
            info!("Webhooks are enabled - webhooks will validate, controllers will skip validation");
        } else {
            info!("{WEBHOOKS_OFF} - controllers will validate (defense in depth)");
        }
        // Endpoints learn of the end later than this process; who calls no webhooks is not waited for.
        let drain_delay = if serves { drain_delay.min(LONGEST_DRAIN) } else { Duration::ZERO };
        let (mut tasks, end) = (Tasks::default(), End::default());
        let converts = serves && !configurations.crds.is_empty();
        // What webhooks read goes after the last of their calls.
        let mut answered = end.serving.clone();
        if let Some((server, address)) = server {
            let client = clients.prompt.clone();
            let source = installation.certificate_source(&parts, client, provider, configurations, &metrics);
            let source = source.asking(client_ca.as_ref().map(ClientCaFile::authorities));
            if let Some(client_ca) = client_ca {
                let stop = end.serving.clone();
                tasks.spawn("the authorities of callers", &end.serving, async move {
                    client_ca.follow(stop).await;
                    Ok::<_, RunError>(())
                });
            }
            let (server_name, health) = (installation.server_name(), health.clone());
            let endpoint = Endpoint { operator, server, address, server_name, handler, source, health };
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
        let overrides = installation.overrides.clone();
        let runtime = Runtime::new(clients.client, namespace, end.working.clone());
        let runtime = Runtime { release, webhooks: installation.webhooks, overrides, metrics, ..runtime };
        let (endpoint, has_controllers) = (health.clone(), !parts.controllers.is_empty());
        let first = async move {
            if converts && has_controllers {
                convertible_soon(&endpoint).await;
            }
        };
        let (health_of_leases, serving) = (health.part("leases"), end.serving.clone());
        let (patience, only) = (CONTROLLERS, Vec::new());
        Work { runtime, accounts, leases, only, health: health_of_leases, serving, answered, patience }
            .start(parts, first, &mut tasks);
        let result = tokio::select! {
            () = stop.cancelled() => Ok(()),
            Some(ended) = tasks.next() => ended,
        };
        if let Err(failed) = &result {
            error!(error = in_one_line(failed), "ending, because a part of the operator failed");
        }
        until_the_end(result, tasks, &health, &end, drain_delay).await
    }
}

impl std::fmt::Debug for EmbeddedOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedOperator")
            .field("operator", &self.operator)
            .field("parts", &self.parts)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Until the API server can call our conversion, controllers can read nothing that is stored in another version. What
/// keeps it from that may be theirs to mend, so they begin in any case.
async fn convertible_soon(webhooks: &Health) {
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

/// Asks all to end and gives them time: the webhooks are still served for `drain_delay`, because they are still called.
/// Returns the first error, beginning with `result`.
async fn until_the_end(
    mut result: Result<(), RunError>,
    mut tasks: Tasks,
    health: &Health,
    end: &End,
    drain_delay: Duration,
) -> Result<(), RunError> {
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
