//! The webhooks' part of the process: certificates, listener, bundle, readiness.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::error::RunError;
use super::health::Health;
use portcullis_certificates::{Bundle, CertificateError, CertificateSource, ServingCertificate, probe};
use portcullis_listener::{Handler, Server};

/// First and longest pause between tries at start.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Tries to get certificates before the process gives up and is started again.
const CERTIFICATE_TRIES: u32 = 10;

/// The address of the webhooks, and the source of their certificates.
pub(super) struct Endpoint<H> {
    pub(super) operator: &'static str,
    pub(super) server: Server,
    /// The bound address.
    pub(super) address: SocketAddr,
    pub(super) server_name: String,
    pub(super) handler: H,
    pub(super) source: CertificateSource,
    pub(super) health: Health,
}

impl<H: Handler> Endpoint<H> {
    /// Serves until `stop`, and then until the calls in flight are answered.
    pub(super) async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let Self { operator, server, address, server_name, handler, source, health } = self;
        info!(%address, "Starting webhook server");
        health.waiting_for("certificates");
        let material = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            material = certificates(&source, &health) => material.map_err(RunError::Certificates)?,
        };
        let tls = source.tls_config(&material).map_err(|error| RunError::Certificates(error.into()))?;
        let tls = Arc::new(ArcSwap::from_pointee(tls));
        let bundle = source.bundle(operator, &material);
        // This is controller-runtime's message, which people search logs for. It goes on with `Starting certificate
        // poll+watcher` and an interval: here the Secret is watched, and no file is polled.
        info!(server_name, "Updated current TLS certificate");
        info!("Starting certificate watcher");
        info!(host = %address.ip(), port = address.port(), %address, server_name, "Serving webhook server");
        let ends = async {
            stop.cancelled().await;
            info!("Shutting down webhook server");
        };
        let ready = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = callable(&source, reachable(address), &server_name, &bundle, &health) => {}
            }
        };
        tokio::join!(
            server.serve_tls(Arc::clone(&tls), Arc::new(handler), stop.clone()),
            bundle.maintain(source.client(), source.configurations(), &stop),
            source.maintain(material, &tls, &bundle, &stop),
            ready,
            ends,
        );
        Ok(())
    }
}

fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::default().with_min_delay(FIRST_PAUSE).with_max_delay(LONGEST_PAUSE).without_max_times().build()
}

async fn certificates(source: &CertificateSource, health: &Health) -> Result<ServingCertificate, CertificateError> {
    let mut pauses = pauses();
    let mut tries = 1;
    loop {
        match source.ensure().await {
            Ok(material) => return Ok(material),
            // A restart would not help: another program or a user has to repair this pair, so wait for it.
            Err(error @ CertificateError::ProvidedCertificates { .. }) => {
                warn!(%error, "no certificates yet: no webhook is served until this Secret is repaired");
                health.waiting_for(format!("certificates: {error}"));
            }
            // A permanent error stays until a user does what it says.
            Err(error) if error.is_permanent() || tries == CERTIFICATE_TRIES => {
                return Err(error);
            }
            Err(error) => {
                health.waiting_for(format!("certificates: {error}"));
                warn!(
                    %error,
                    attempt = tries,
                    last_attempt = CERTIFICATE_TRIES,
                    "no certificates yet: no webhook is served, retrying"
                );
                tries += 1;
            }
        }
        sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

/// Ready when the bundle is published everywhere and a call like the API server's succeeds under it. The call goes to
/// our own listener: a Service leads nowhere before its Pods are ready.
async fn callable(
    source: &CertificateSource,
    address: SocketAddr,
    server_name: &str,
    bundle: &Bundle,
    health: &Health,
) {
    let mut pauses = pauses();
    loop {
        let published = bundle.wait_until_published(source.configurations(), |missing| health.waiting_for(missing));
        let ca_pem = health.logged_during(published).await;
        match probe(Arc::clone(source.provider()), address, server_name, &ca_pem).await {
            Ok(()) => break,
            Err(error) => {
                warn!(
                    %error,
                    %address,
                    server_name,
                    "webhooks cannot be called yet: not ready, calling this listener again"
                );
                health.waiting_for(format!("a call to our own webhooks to succeed: {error}"));
            }
        }
        sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    }
    health.ready();
    info!("ready: the CA is published, and our own listener answers under it");
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
