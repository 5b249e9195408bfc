//! An axum application that serves its users on one address and webhooks on another. It has its own runtime, logger, command
//! line and metrics.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis::metrics::Metrics;
use portcullis::operator::{EmbedOptions, Readiness};
use portcullis::server::Incoming;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::info;

#[derive(Parser)]
struct Flags {
    /// Kubeconfig file
    #[arg(long, env)]
    kubeconfig: std::path::PathBuf,
    /// Namespace of the application
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: String,
    /// Address for users (HTTP)
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Address for the API server (HTTPS)
    #[arg(long, default_value = "127.0.0.1:9443")]
    webhooks: SocketAddr,
}

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().json().with_env_filter("info").with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("application")
        .enable_all()
        .build()?;
    runtime.block_on(application(Flags::parse()))
}

async fn application(flags: Flags) -> Result<(), Box<dyn Error>> {
    let kubeconfig = Kubeconfig::read_from(&flags.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = kube::Client::try_from(config)?;
    let operator = axum_application::operator();
    let mut options = EmbedOptions::new(operator.installation(&flags.namespace)?);
    options.bind = flags.webhooks;
    let embedded = operator.embed(client, options).await?;

    // The application's own metrics, and its own middleware in front of the webhooks.
    let (mut registry, calls) = (Registry::default(), Counter::<u64>::default());
    registry.register("application_webhook_calls", "Calls that came from the API server", calls.clone());
    let webhooks = Router::new().fallback_service(embedded.routes().clone()).layer(from_fn_with_state(calls, count));
    let answer = move |request: axum::http::Request<Incoming>| {
        let webhooks = webhooks.clone();
        async move { webhooks.oneshot(request).await.unwrap_or_else(|never| match never {}) }
    };

    let shown = Shown { own: registry.into(), operator: embedded.metrics().clone(), readiness: embedded.readiness() };
    let site = Router::new()
        .route("/", get(|| async { "Welcome.\n" }))
        .route("/metrics", get(metrics))
        .route("/readyz", get(readyz))
        .with_state(shown);
    let listener = tokio::net::TcpListener::bind(flags.listen).await?;
    info!(address = %listener.local_addr()?, "the application listens");

    let stop = CancellationToken::new();
    let serve = axum::serve(listener, site).with_graceful_shutdown(stop.clone().cancelled_owned());
    let asked = stop.clone();
    tokio::spawn(async move {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        terminate.recv().await;
        asked.cancel();
        std::io::Result::Ok(())
    });
    // The application ends when one of them fails.
    let operator = async { embedded.run_with_handler(answer, stop).await.map_err(Box::<dyn Error>::from) };
    let serve = async { serve.await.map_err(Box::<dyn Error>::from) };
    tokio::try_join!(operator, serve)?;
    Ok(())
}

async fn count(State(calls): State<Counter>, request: Request, next: middleware::Next) -> Response {
    calls.inc();
    next.run(request).await
}

#[derive(Clone)]
struct Shown {
    own: std::sync::Arc<Registry>,
    operator: Metrics,
    readiness: Readiness,
}

async fn metrics(State(shown): State<Shown>) -> Result<String, StatusCode> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode_registry(&mut text, &shown.own)
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    // The operator's part comes last, because it ends with `# EOF`.
    Ok(text + &shown.operator.encode())
}

async fn readyz(State(shown): State<Shown>) -> Response {
    match shown.readiness.waiting_for() {
        None => "ok\n".into_response(),
        Some(what) => (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {what}\n")).into_response(),
    }
}
