//! An operator inside of a process: an application's, or that of the command `run`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::background::Background;
use super::certificate_source::certificate_source;
use super::components::Components;
use super::convertible::convertible;
use super::endpoint::Endpoint;
use super::error::{ComponentsError, RunError};
use super::health::Health;
use super::installation::{SetupContext, configurations};
use super::leases::Leases;
use super::operator::Operator;
use super::options::EmbedOptions;
use super::prompt::prompt_client;
use super::shutdown::{LONGEST_DRAIN, SHUTDOWN, Shutdown};
use super::storage::follow_storage;
use super::tasks::Tasks;
use super::{Installation, Runtime};
use portcullis_certificates::Configurations;
use portcullis_client::error_chain;
use portcullis_listener::{Handler, Limits, Server};
use portcullis_metrics::Metrics;
use portcullis_webhook::Routes;
use portcullis_webhook::conversion::Conversion;

/// The time that controllers wait for the conversion of their kinds to work.
const CONVERTIBLE: Duration = Duration::from_secs(30);
/// The time reserved at the end for everything but calls in flight.
const REST: Duration = Duration::from_secs(2);

/// An operator that is ready to run inside of another process: it reads no command line and no environment, installs
/// no crypto provider and no logger, handles no signals, and spawns nothing that outlives [`run`](Self::run).
///
/// ```no_run
/// # use portcullis::operator::{EmbedOptions, Operator};
/// # use tokio_util::sync::CancellationToken;
/// # async fn application(operator: Operator, client: kube::Client, stop: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
/// let options = EmbedOptions::new(operator.installation("my-namespace")?);
/// let embedded = operator.embed(client, options).await?;
/// // For the application's own /metrics and /readyz.
/// let (metrics, readiness) = (embedded.metrics().clone(), embedded.readiness());
/// embedded.run(stop).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "an operator does nothing until it runs"]
pub struct EmbeddedOperator {
    operator: &'static str,
    /// The client of controllers and tasks.
    client: Client,
    /// The client for what cannot wait: Leases, certificates, and the versions that CRDs store.
    prompt: Client,
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
pub struct Readiness(pub(super) Health);

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

impl Operator {
    /// Prepares the operator to run inside of the caller's process, and binds the address of its webhooks. Nothing is
    /// written to the cluster yet.
    ///
    /// The operator makes all its requests by `client`, so that the application's own layers see them. Requests for
    /// Leases, certificates and their publication are given up and made again if no answer begins within 10 s, so a
    /// layer may retry and limit. But it must not answer from a cache, nor go on with a request whose future was
    /// dropped: a Lease that is written late belongs to another replica already.
    ///
    /// # Errors
    /// When the registration is invalid, or the address cannot be bound.
    pub fn embed(
        &self,
        client: Client,
        options: EmbedOptions,
    ) -> impl Future<Output = Result<EmbeddedOperator, RunError>> + Send + use<> {
        self.embed_with_args(&(), client, options)
    }
}

impl<A> Operator<A> {
    /// Does as [`embed`](Operator::embed), for an operator whose [`setup`](Self::setup) takes arguments.
    ///
    /// # Errors
    /// As `embed`, and with [`RunError::Setup`] if `setup` fails.
    pub fn embed_with_args(
        &self,
        args: &A,
        client: Client,
        options: EmbedOptions,
    ) -> impl Future<Output = Result<EmbeddedOperator, RunError>> + Send + use<A> {
        let prepared = self.prepare(args, client, options);
        async move { prepared?.bound().await }
    }

    fn prepare(&self, args: &A, client: Client, options: EmbedOptions) -> Result<EmbeddedOperator, RunError> {
        let context = SetupContext::from(&options.installation);
        let components = self.components(args, &context)?;
        if self.is_embedded.swap(true, Ordering::Relaxed)
            && (!self.controllers.is_empty() || !self.webhooks.sources().is_empty())
        {
            return Err(RunError::EmbeddedTwice(self.name));
        }
        convertible(&components.webhooks, &self.crds)?;
        EmbeddedOperator::new(self.name, components, client, options)
    }
}

impl EmbeddedOperator {
    pub(super) fn new(
        operator: &'static str,
        mut components: Components,
        client: Client,
        options: EmbedOptions,
    ) -> Result<Self, RunError> {
        if let Some(bytes) = options.memory_limit {
            info!(bytes, "reviews in flight may use half of the memory limit");
            components.webhooks = components.webhooks.memory_limit(bytes);
        }
        let prompt = prompt_client(&client);
        let has_controllers = !components.controllers.is_empty();
        let leases = Leases::new(&prompt, has_controllers, &options)?;
        let scope = leases.scope.clone();
        let routes = components
            .webhooks
            .routes_with_skip(move |namespace| scope.skip_reason(namespace))
            .map_err(ComponentsError::from)?;
        let metrics = routes.metrics().clone();
        metrics.adopt(std::mem::take(&mut components.metrics)).map_err(ComponentsError::from)?;
        leases.register_metrics(&metrics);
        let configurations = configurations(&options.installation, &components.webhooks)?;
        let health = Health::new("the operator to start", metrics);
        Ok(Self { operator, client, prompt, components, leases, routes, health, options, server: None, configurations })
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
        if self.options.installation.webhooks.is_on() {
            info!("Webhooks are enabled - webhooks will validate, controllers will skip validation");
        } else {
            info!("Webhooks are disabled - controllers will validate (defense in depth)");
        }
        let (health, drain_delay) = (self.health.clone(), self.options.drain_delay.min(LONGEST_DRAIN));
        let shutdown = Shutdown::new(self.server.is_some().then_some(drain_delay));
        let mut tasks = self.start(handler, &shutdown)?;
        let result = tokio::select! {
            () = stop.cancelled() => Ok(()),
            Some(ended) = tasks.next() => ended,
        };
        if let Err(failed) = &result {
            error!(error = error_chain(failed), "shutting down: a component of the operator failed");
        }
        shutdown.perform(result, tasks, &health).await
    }

    /// Starts all parts of the operator, each with the token that ends it.
    fn start(mut self, handler: impl Handler, shutdown: &Shutdown) -> Result<Tasks, RunError> {
        let mut tasks = Tasks::default();
        let conversions = self.served_conversions()?;
        let converts = !conversions.is_empty();
        if converts {
            let health = self.health.part("the stored versions of the CRDs");
            let work = follow_storage(self.prompt.clone(), conversions, health, shutdown.serving.clone());
            tasks.spawn("the versions that are stored", &shutdown.serving, work.map(Ok::<_, Infallible>));
        }
        match self.server.take() {
            Some((server, address)) => self.start_server(server, address, handler, shutdown, &mut tasks),
            None => self.health.ready(),
        }
        self.start_background(converts, shutdown, &mut tasks);
        Ok(tasks)
    }

    /// The conversions that the API server calls here.
    fn served_conversions(&self) -> Result<Vec<Conversion>, ComponentsError> {
        if self.server.is_none() || self.configurations.crds.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.components.webhooks.conversions()?)
    }

    fn start_server(
        &self,
        server: Server,
        address: SocketAddr,
        handler: impl Handler,
        shutdown: &Shutdown,
        tasks: &mut Tasks,
    ) {
        let EmbedOptions { installation, provider, .. } = &self.options;
        let (client, provider, metrics) = (self.prompt.clone(), provider.clone(), self.routes.metrics());
        let configurations = self.configurations.clone();
        let endpoint = Endpoint {
            operator: self.operator,
            server: server.with_drain_signal(shutdown.controllers.clone()),
            address,
            server_name: installation.server_name(),
            handler,
            source: certificate_source(installation, &self.components, client, provider, configurations, metrics),
            health: self.health.clone(),
        };
        let (work, last_call) = (endpoint.run(shutdown.serving.clone()), shutdown.caches.clone().drop_guard());
        tasks.spawn("the webhook server", &shutdown.serving, async move {
            let _last_call = last_call;
            work.await
        });
    }

    /// Starts controllers, Leases, caches and tasks. Controllers of kinds that are converted wait for the conversion.
    fn start_background(self, converts: bool, shutdown: &Shutdown, tasks: &mut Tasks) {
        let Self { client, components, leases, routes, health, options, .. } = self;
        let Installation { release, namespace, webhooks, overrides, .. } = options.installation;
        let runtime = Runtime::new(client, namespace, shutdown.controllers.clone())
            .with_validators(components.webhooks.clone().with_overrides(&overrides));
        let runtime = Runtime { release, webhooks, metrics: routes.metrics().clone(), ..runtime };
        let waits = converts && !components.controllers.is_empty();
        let (health_of_leases, serving) = (health.part("leases"), shutdown.serving.clone());
        let convertible = async move {
            if waits {
                convertible_soon(&health).await;
            }
        };
        Background { runtime, leases, health: health_of_leases, serving, answered: shutdown.caches.clone() }.start(
            components,
            convertible,
            tasks,
        );
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
/// version before. They may have to repair the cause themselves, so they start in any case.
async fn convertible_soon(webhooks: &Health) {
    if timeout(CONVERTIBLE, webhooks.until_ready()).await.is_err() {
        let seconds = CONVERTIBLE.as_secs();
        warn!(seconds, "the API server cannot call the conversion yet: starting the controllers, which retry");
    }
}
