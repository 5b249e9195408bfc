//! From the document to a running proxy, and to its end.

use std::sync::Arc;
use std::time::Duration;

use mcp_middleware::ProxySettings;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing_subscriber::EnvFilter;

use crate::app::App;
use crate::backend::{Backend, plan};
use crate::config::{load, middleware};
use crate::deadlines::READ;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::options::{Command, Environment, Options};
use crate::{RunError, server};

/// How long the connections to webhooks may take to end once nobody calls over them.
const LEAVE: Duration = Duration::from_secs(2);

/// Runs the proxy until a signal asks it to end and the calls under way are answered.
///
/// # Errors
/// Says in one line what to mend. Nothing was served then, but for [`RunError::ServerFailed`].
pub fn run(options: Options, environment: Environment) -> Result<(), RunError> {
    let Options { command: Command::Run(options) } = options;
    let (path, config) = load(options.config.as_deref(), environment.run_config_checksum.as_deref())?;
    log(config.debug || options.debug || environment.debug, &environment);
    let configs = middleware(&config).map_err(|field| {
        let problem = "asks for a guard that is not built yet; remove it, or use a proxy that has it".to_owned();
        RunError::Unserved { path: path.clone(), field, problem }
    })?;
    let address = options.listen.clone().unwrap_or_else(|| address(&config.host, config.port));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| RunError::System { what: "start the runtime", source })?;
    runtime.block_on(async {
        let mut ending = Ending::new()?;
        let tasks = TaskTracker::new();
        let settings = ProxySettings {
            server_name: config.name.clone(),
            transport: config.transport.to_string(),
            files_root: options.files_root.clone(),
            local_user: environment.user.clone().unwrap_or_else(|| "local".to_owned()),
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            tasks: tasks.clone(),
        };
        let chain = mcp_gate::registry()
            .build(&configs, &settings)
            .map_err(|source| RunError::Middleware { path: path.clone(), source: Box::new(source) })?;
        let plan = plan(&path, &config, &options, &environment, chain.body_limit())?;
        let listener = TcpListener::bind(&address).await;
        let listener = listener.map_err(|source| RunError::Listen { address, source })?;
        let local = listener.local_addr().map_err(|source| RunError::System { what: "name the listener", source })?;
        let backend = plan.start()?;
        let drain = CancellationToken::new();
        let app = Arc::new(App {
            chain: chain.clone(),
            transport: backend.service(),
            backend,
            stateless: config.stateless,
            read_timeout: config.proxy_read_timeout.unwrap_or(READ),
            health: Health::new(config.transport.as_str()),
            metrics: Metrics::default(),
            drain: drain.clone(),
        });
        chain.announce();
        tracing::info!(address = %local, name = config.name, transport = %config.transport, "listening");
        let serving = tokio::spawn(server::serve(listener, Arc::clone(&app)));
        let result = tokio::select! {
            () = ending.asked() => Ok(()),
            () = failed(&app.backend) => Err(RunError::ServerFailed),
        };
        drain.cancel();
        if let Err(error) = serving.await {
            tracing::error!(%error, "the listener broke");
        }
        drop(chain);
        if let Some(App { backend: Backend::Stdio(front), .. }) = Arc::into_inner(app) {
            front.shut_down().await;
        }
        tasks.close();
        let _ = tokio::time::timeout(LEAVE, tasks.wait()).await;
        tracing::info!("ended");
        result
    })
}

async fn failed(backend: &Backend) {
    match backend {
        Backend::Http(_) => std::future::pending().await,
        Backend::Stdio(front) => front.failed().await,
    }
}

fn address(host: &str, port: u16) -> String {
    match host {
        "" => format!("0.0.0.0:{port}"),
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        host => format!("{host}:{port}"),
    }
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

    async fn asked(&mut self) {
        let Self([terminate, interrupt, quit]) = self;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = quit.recv() => {}
        }
    }
}
