//! `run`: the process from its start to its end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use arc_swap::ArcSwap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use portcullis_manifest::ServiceRef;
use rustls::crypto::CryptoProvider;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::cli::RunFlags;
use super::health::Health;
use super::{Operator, Parts, Runtime, service_names};
use crate::certificates::{Automatic, Bundle, Configurations, Material, probe};
use crate::server::{Limits, Server};
use crate::webhooks::Webhooks;

/// How long everything may take to end after SIGTERM. Kubernetes' own patience is 30 s.
const SHUTDOWN: Duration = Duration::from_secs(28);
/// First and longest pause between tries at start.
const RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// Tries to get certificates before the process gives up and is started again.
const CERTIFICATE_TRIES: u32 = 10;

pub(super) async fn run<A: clap::Args>(
    operator: &Operator<A>,
    parts: Parts,
    flags: RunFlags,
    provider: Arc<CryptoProvider>,
) -> anyhow::Result<()> {
    let client = client(&flags).await?;
    let namespace = flags.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let stop = CancellationToken::new();
    let health = Health::new("the operator to start");
    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();

    let probes = Server::bind(flags.health_bind, Limits::default()).await;
    let probes = probes.with_context(|| format!("cannot listen on --health-bind {}", flags.health_bind))?;
    info!(address = %probes.local_addr()?, "serving /healthz and /readyz");
    let (health_handler, health_stop) = (Arc::new(health.clone()), CancellationToken::new());
    let probes = tokio::spawn(probes.serve_plain(health_handler, health_stop.clone()));

    if parts.webhooks.is_empty() {
        health.ready();
    } else {
        let name = flags.place.service_name.clone().unwrap_or_else(|| operator.names().service());
        let service = ServiceRef { namespace: namespace.clone(), name, port: flags.place.service_port };
        let source = Automatic {
            client: client.clone(),
            namespace: namespace.clone(),
            secret: operator.names().secret(),
            dns_names: service_names(&service),
            provider,
        };
        let configurations = operator.names().configurations(&parts.webhooks)?;
        health.waiting_for("certificates");
        let endpoint = Endpoint { bind: flags.bind, server_name: service.server_name(), configurations, source };
        endpoint.start(operator.name, &parts.webhooks, &health, &stop, &mut tasks).await?;
    }
    for (name, controller) in parts.controllers {
        let runtime = Runtime { client: client.clone(), namespace: namespace.clone(), stop: stop.clone() };
        let stop = stop.clone();
        tasks.spawn(async move {
            controller(runtime).await.with_context(|| format!("controller {name} failed"))?;
            if stop.is_cancelled() { Ok(()) } else { bail!("controller {name} ended on its own") }
        });
    }
    let result = until_the_end(&mut tasks, &stop).await;
    health_stop.cancel();
    probes.await?;
    result
}

async fn client(flags: &RunFlags) -> anyhow::Result<Client> {
    let config = match &flags.kubeconfig {
        None => Config::infer().await.context("no cluster found; give --kubeconfig FILE")?,
        Some(file) => {
            let kubeconfig =
                Kubeconfig::read_from(file).with_context(|| format!("cannot read --kubeconfig {}", file.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
        }
    };
    Client::try_from(config).context("cannot make a client")
}

/// Waits for a signal or for the first task that fails, then asks all to end and gives them time.
async fn until_the_end(tasks: &mut JoinSet<anyhow::Result<()>>, stop: &CancellationToken) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut result = tokio::select! {
        _ = terminate.recv() => { info!("SIGTERM: ending"); Ok(()) }
        _ = interrupt.recv() => { info!("SIGINT: ending"); Ok(()) }
        Some(ended) = tasks.join_next() => ended?,
    };
    stop.cancel();
    let rest = async {
        while let Some(ended) = tasks.join_next().await {
            if let (true, Ok(Err(error))) = (result.is_ok(), ended) {
                result = Err(error);
            }
        }
    };
    if tokio::time::timeout(SHUTDOWN, rest).await.is_err() {
        warn!("not everything ended in time");
    }
    result
}

/// Where the webhooks are served, and with which certificates.
struct Endpoint {
    bind: SocketAddr,
    server_name: String,
    configurations: Configurations,
    source: Automatic,
}

impl Endpoint {
    async fn start(
        self,
        operator: &str,
        webhooks: &Webhooks,
        health: &Health,
        stop: &CancellationToken,
        tasks: &mut JoinSet<anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let Self { bind, server_name, configurations, source } = self;
        let material = certificates(&source).await?;
        let tls = Arc::new(ArcSwap::from_pointee(source.tls_config(&material)?));
        let bundle = Bundle::new(operator, &material.ca_pem);
        let server =
            Server::bind(bind, Limits::default()).await.with_context(|| format!("cannot listen on --bind {bind}"))?;
        let address = server.local_addr()?;
        info!(%address, %server_name, "serving webhooks");
        let routes = Arc::new(webhooks.routes()?);
        let (serving, serve_stop) = (Arc::clone(&tls), stop.clone());
        tasks.spawn(async move {
            server.serve_tls(serving, routes, serve_stop).await;
            Ok(())
        });
        let (publisher, published, publish_stop) = (bundle.clone(), configurations.clone(), stop.clone());
        let client = source.client.clone();
        tasks.spawn(async move {
            publisher.maintain(&client, &published, &publish_stop).await;
            Ok(())
        });
        let readiness = first_readiness(
            source.provider.clone(),
            address,
            server_name,
            bundle.clone(),
            configurations,
            health.clone(),
        );
        let ready_stop = stop.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = ready_stop.cancelled() => {}
                () = readiness => ready_stop.cancelled().await,
            }
            Ok(())
        });
        let stop = stop.clone();
        tasks.spawn(async move {
            source.maintain(material, &tls, &bundle, &stop).await;
            Ok(())
        });
        Ok(())
    }
}

async fn certificates(source: &Automatic) -> anyhow::Result<Material> {
    let mut pause = RETRY;
    let mut tries = 1;
    loop {
        match source.ensure().await {
            Ok(material) => return Ok(material),
            Err(error) if tries == CERTIFICATE_TRIES => {
                return Err(error).context("no certificates to serve webhooks with");
            }
            Err(error) => warn!(%error, retry_in = ?pause, "no certificates yet"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY);
        tries += 1;
    }
}

/// Ready when the bundle is published everywhere and a call like the API server's succeeds under it.
async fn first_readiness(
    provider: Arc<CryptoProvider>,
    address: SocketAddr,
    server_name: String,
    bundle: Bundle,
    configurations: Configurations,
    health: Health,
) {
    health.waiting_for("the CA to be published; are the webhook configurations installed? See 'generate webhooks'");
    let mut pause = RETRY;
    loop {
        let ca_pem = bundle.published(&configurations).await;
        match probe(Arc::clone(&provider), reachable(address), &server_name, &ca_pem).await {
            Ok(()) => break,
            Err(error) => {
                warn!(%error, retry_in = ?pause, "webhooks cannot be called yet");
                health.waiting_for(format!("a call to our own webhooks to succeed: {error}"));
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY);
    }
    health.ready();
    info!("ready: the API server can call the webhooks");
}

/// A listener on all addresses is called on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
