//! From the document to a running proxy, and to its end.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use mcp_credentials::Provided;
use mcp_listener::{Given, Limits, Server, Workers};
use mcp_middleware::ProxySettings;
use mcp_redis::Clients;
use mcp_runconfig::{ProxyMode, RunConfig, TOKEN_EXCHANGE, Transport};
use mcp_transport::Closed;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::RunError;
use crate::app::{App, ENDPOINTS, Late};
use crate::backend::plan;
use crate::check_login::{CheckError, CheckLoginOptions, check_login};
use crate::clients::TrustedProxies;
use crate::config::{demands_login, load, middleware};
use crate::diagnostics::{self, Diagnostics};
use crate::explain::explain;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::options::{Command, Environment, Options, RunOptions};
use crate::registry::registry;
use crate::reports::Reports;
use crate::shared::Shared;

/// More threads than this would outrun any MCP server: each passes some 20,000 calls a second on.
const MAX_WORKERS: usize = 8;
/// The time that a request may take to arrive when the document says nothing.
const READ: Duration = Duration::from_secs(30);
/// The time that everything may take to end after SIGTERM. Kubernetes kills a pod after 30 s.
const SHUTDOWN: Duration = Duration::from_secs(27);
/// The time to serve beyond the drain delay while requests come that are no more than [`QUIET`] apart: a Service still leads here.
const LATE: Duration = Duration::from_secs(3);
const QUIET: Duration = Duration::from_secs(1);
/// The part of that for other things than calls under way: telling those that are cut off, ending the server's
/// process, leaving the webhooks.
const REST: Duration = Duration::from_secs(6);

/// Runs the proxy until a signal asks it to end and the calls under way are answered; or runs another command to its end.
///
/// # Errors
/// Says in one line what to mend. Nothing was served then, but for [`RunError::ServerFailed`].
pub fn run(options: Options, environment: Environment) -> Result<(), RunError> {
    let Options { command, ignored } = options;
    let options = match command {
        Command::Run(options) => *options,
        Command::Explain(options) => return Ok(explain(&options)?),
        Command::CheckLogin(options) => return check(options),
    };
    let (path, config) = load(options.config.as_deref(), environment.run_config_checksum.as_deref())?;
    log(config.debug || options.debug || environment.debug, &environment);
    warn_of_what_is_ignored(&ignored, &config);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| RunError::System { what: "start the runtime", source })?;
    let result = runtime.block_on(serve(Source { path, config, options, environment }));
    // A name server that does not answer keeps a thread busy for longer than Kubernetes waits.
    runtime.shutdown_background();
    result
}

/// The things that a proxy is made of.
struct Source {
    /// The path of the document.
    path: PathBuf,
    config: RunConfig,
    options: RunOptions,
    environment: Environment,
}

/// A proxy that answers nobody yet.
struct Built {
    app: Arc<App>,
    server: Server,
    workers: Workers,
    metrics_server: Option<portcullis_listener::Server>,
}

/// Serves until a signal or the end of the MCP server, and answers the calls under way.
async fn serve(source: Source) -> Result<(), RunError> {
    let mut ending = Ending::new()?;
    let Built { app, server, workers, metrics_server } = source.build().await?;
    // Cancelled when the last answer is given: metrics are read until then.
    let last = CancellationToken::new();
    let serving = tokio::spawn(server.serve(workers, Arc::clone(&app), app.drain.clone()));
    let beside = tokio::spawn(beside(Arc::clone(&app), metrics_server, last.clone()));
    let result = tokio::select! {
        delay = ending.asked(source.options.drain_delay) => {
            app.ending.store(true, Relaxed);
            tracing::info!(?delay, "ending: not ready any more, and serving while clients learn of it");
            // A second signal says that nobody wants to wait.
            tokio::select! {
                () = unlearn(&app, delay) => {}
                _ = ending.asked(Duration::ZERO) => {}
            }
            Ok(())
        }
        closed = app.backend.failed() => Err(match closed {
            Closed::Gone => RunError::ServerFailed,
            Closed::Stays => RunError::ServerStays,
        }),
    };
    app.ending.store(true, Relaxed);
    app.drain.cancel();
    if let Err(error) = serving.await {
        tracing::error!(%error, "the listener broke");
    }
    last.cancel();
    if let Err(error) = beside.await {
        tracing::error!(%error, "the checks of the server or the diagnostics listener broke");
    }
    let mut closed = Closed::Gone;
    if let Some(App { backend, chain, .. }) = Arc::into_inner(app) {
        chain.close().await;
        closed = backend.shut_down().await;
    }
    tracing::info!("ended");
    if closed == Closed::Stays { result.and(Err(RunError::ServerStays)) } else { result }
}

impl Source {
    /// Builds everything, and starts the MCP server. The address comes first, for what the chain checks depends on it.
    async fn build(&self) -> Result<Built, RunError> {
        let Self { path, config, options, environment } = self;
        let address = options.listen.clone().unwrap_or_else(|| address(&config.host, config.port));
        let limits = limits(self.read_timeout(), options.drain_delay, options.connections);
        let server = Server::bind(&address, limits).await;
        let server = server.map_err(|source| RunError::Listen { address, source })?;
        let local = server.local_addr().map_err(|source| RunError::System { what: "name the listener", source })?;
        let entries = middleware(config);
        let login = entries.iter().any(|entry| demands_login(&entry.config));
        let wants_token = login || entries.iter().any(|entry| entry.config.kind == TOKEN_EXCHANGE);
        let settings = self.settings(local, login);
        let (metrics, endpoints_guard) = (settings.metrics.clone(), settings.decisions.guard(ENDPOINTS));
        let (provider, root) = (Arc::clone(&settings.provider), options.files_root.as_deref());
        let clients = Clients::new(environment.redis_password.clone().below(root), root, Arc::clone(&provider));
        let beside_document = Provided {
            client_secret: environment.token_exchange_secret.clone().below(root),
            actor_token_file: config.portcullis.actor_token_file.clone(),
        };
        let chain = registry(&clients, config.portcullis.rate_limits_fail_closed, &beside_document)
            .build_entries(entries, settings)
            .await
            .map_err(|source| RunError::Middleware { path: path.clone(), source: Box::new(source) })?;
        let shared = Shared::new(clients, metrics.clone());
        let plan = plan(path, config, options, environment, &provider, &shared, login)?;
        let forwards = plan.forwards();
        // A server behind a pipe has no other paths.
        let endpoints = plan.endpoints(path, config)?.filter(|_| chain.judges_messages());
        let workers = workers(forwards).map_err(|source| RunError::System { what: "start a thread", source })?;
        let backend = plan.start().await?;
        let diagnostics = Diagnostics::of(config);
        let metrics_server = diagnostics.bind(local).await;
        let elsewhere = metrics_server.as_ref().filter(|_| !diagnostics.on_transport_port);
        let metrics_elsewhere = elsewhere.and_then(|server| server.local_addr().ok()).map(|address| address.port());
        let is_remote = !config.remote_url.is_empty() && options.backend.is_none() && options.server.is_empty();
        let app = App {
            chain,
            transport: backend.service(),
            backend,
            forwards,
            endpoints: endpoints.map(|endpoints| (endpoints, endpoints_guard)),
            stateless: config.stateless,
            trusted_proxies: TrustedProxies(config.portcullis.trusted_proxies.clone()),
            streams: if answers_on_stream(config) { Given::Session } else { Given::Stream },
            health: Health::new(config.transport.as_str(), is_remote, environment),
            shared,
            metrics: Metrics::new(server.places(), metrics),
            reports: Reports::default(),
            metrics_elsewhere,
            login,
            ending: AtomicBool::new(false),
            late: Late::default(),
            drain: CancellationToken::new(),
        };
        app.chain.announce();
        if !wants_token && !app.chain.judges_messages() {
            tracing::warn!(
                "the RunConfig asks for no guard: no login, policies, tool filter, webhooks or rate limits; whoever reaches the proxy may \
                 call every tool"
            );
        }
        tracing::info!(address = %local, name = config.name, transport = %config.transport, "listening");
        Ok(Built { app: Arc::new(app), server, workers, metrics_server })
    }

    fn read_timeout(&self) -> Duration {
        self.config.proxy_read_timeout.unwrap_or(READ)
    }

    /// Returns the settings of the chain, of a proxy that listens at `local`.
    fn settings(&self, local: SocketAddr, login: bool) -> ProxySettings {
        let Self { config, options, environment, .. } = self;
        ProxySettings {
            login,
            read_timeout: self.read_timeout(),
            server_name: config.name.clone(),
            transport: config.transport.to_string(),
            answers_on_stream: answers_on_stream(config),
            files_root: options.files_root.clone(),
            local_user: environment.user.clone().unwrap_or_else(|| "local".to_owned()),
            exempt_endpoints: options.exempt_endpoints.clone(),
            egress: options.egress(),
            secrets: environment.secrets.clone(),
            oidc_client_secret: environment.oidc_client_secret.clone(),
            collector_headers: environment.collector_headers.clone(),
            // Some of ToolHive's hold secrets.
            variables: |name| {
                let is_own = ["TOOLHIVE_", "THV_"].iter().any(|prefix| name.starts_with(prefix));
                std::env::var(name).ok().filter(|_| !is_own)
            },
            ..ProxySettings::new(local, Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        }
    }
}

/// Waits until clients have learned that this pod is not ready any more: for `delay`, and a little longer while they have not.
async fn unlearn(app: &App, delay: Duration) {
    sleep(delay).await;
    let latest = Instant::now() + LATE;
    while !delay.is_zero()
        && let Some(last) = app.late.get()
        && last.elapsed() < QUIET
        && Instant::now() < latest
    {
        sleep_until((last + QUIET).min(latest)).await;
    }
}

/// Whether clients expect answers on a stream of the session, and nothing in the response to what they POST.
fn answers_on_stream(config: &RunConfig) -> bool {
    match config.transport {
        Transport::Sse => true,
        Transport::Stdio => config.proxy_mode == ProxyMode::Sse,
        Transport::StreamableHttp => false,
    }
}

/// The threads that serve clients. All calls of a server behind a pipe go through that one, so that one thread is all they need.
fn workers(forwards: bool) -> std::io::Result<Workers> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    Workers::start(if forwards { cores.min(MAX_WORKERS) } else { 1 })
}

/// The limits of clients on the proxy's port.
fn limits(read_timeout: Duration, drain_delay: Duration, connections: usize) -> Limits {
    Limits {
        connections,
        first_request: Duration::from_mins(2),
        idle: Duration::from_mins(2),
        head: Duration::from_secs(10).min(read_timeout),
        write: Duration::from_mins(1),
        head_bytes: 64 << 10,
        drain: SHUTDOWN.saturating_sub(drain_delay + LATE + REST),
        ..Limits::default()
    }
}

/// Checks the server, waits for Redis, and serves the diagnostics until `last`.
async fn beside(app: Arc<App>, metrics_server: Option<portcullis_listener::Server>, last: CancellationToken) {
    let monitor = async {
        let _ = last.run_until_cancelled(app.health.monitor(&*app.backend, &app.metrics)).await;
    };
    let redis = async {
        let _ = last.run_until_cancelled(app.shared.wait_for_answers()).await;
    };
    let metrics = async {
        if let Some(server) = metrics_server {
            diagnostics::serve(server, Arc::clone(&app), last.clone()).await;
        }
    };
    tokio::join!(monitor, redis, metrics);
}

fn address(host: &str, port: u16) -> String {
    match host {
        "" => format!("0.0.0.0:{port}"),
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        host => format!("{host}:{port}"),
    }
}

/// Variables that other programs take an egress proxy from.
const UNREAD: [&str; 8] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"];

/// Logs the flags, members and variables that have no effect.
fn warn_of_what_is_ignored(flags: &[String], config: &RunConfig) {
    if !flags.is_empty() {
        tracing::warn!(flags = flags.join(", "), "ignoring flags that are not known");
    }
    if !config.unknown_members.is_empty() {
        let members = config.unknown_members.join(", ");
        tracing::warn!(
            members,
            "ignoring members of the RunConfig that are not known: a guard among them does not guard"
        );
    }
    let set = UNREAD.into_iter().filter(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    let set: Vec<_> = set.collect();
    if !set.is_empty() {
        tracing::warn!(variables = set.join(", "), "these variables have no effect; see --egress-proxy and --no-proxy");
    }
}

fn check(options: CheckLoginOptions) -> Result<(), RunError> {
    check_login(options).map_err(|error| match error {
        CheckError::Input(problem) => RunError::Input(problem),
        CheckError::Failed(step) => RunError::Login(step),
    })
}

fn log(debug: bool, environment: &Environment) {
    let default = if debug { "debug" } else { "info" };
    let filter = EnvFilter::try_new(environment.log_filter.as_deref().unwrap_or(default))
        .unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // A second call in one process finds the log in place, which is as good.
    let _ = if environment.json_logs { log.json().try_init() } else { log.try_init() };
}

/// The signals that ask the process to end.
struct Ending([Signal; 3]);

impl Ending {
    fn new() -> Result<Self, RunError> {
        let on = |kind| signal(kind).map_err(|source| RunError::System { what: "listen for signals", source });
        Ok(Self([on(SignalKind::terminate())?, on(SignalKind::interrupt())?, on(SignalKind::quit())?]))
    }

    /// Returns how long to go on serving: `delay` where Kubernetes asks, whose Services learn of it later; nothing where a
    /// person does at a terminal.
    async fn asked(&mut self, delay: Duration) -> Duration {
        let Self([terminate, interrupt, quit]) = self;
        tokio::select! {
            _ = terminate.recv() => delay,
            _ = interrupt.recv() => Duration::ZERO,
            _ = quit.recv() => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_as_long_as_the_whole_request_and_ten_seconds_at_most() {
        for (read_timeout, head) in [(1, 1), (30, 10)] {
            let limits = limits(Duration::from_secs(read_timeout), Duration::ZERO, 1);
            assert_eq!(limits.head, Duration::from_secs(head), "{read_timeout}");
        }
    }
}
