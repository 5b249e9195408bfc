//! An HTTPS server for one admission webhook. Its certificate comes from files; no client of the API server is compiled.
//!
//! ```text
//! webhook-server --cert tls.crt --key tls.key --bind 0.0.0.0:9443
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use clap::Parser;
use k8s_openapi::api::core::v1::ConfigMap;
use portcullis_webhook::server::{Limits, Server, tls_config};
use portcullis_webhook::{Context, Validate, Verdict, Webhooks};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

#[derive(Parser)]
struct Flags {
    /// Address to serve HTTPS on
    #[arg(long, env = "WEBHOOK_BIND", default_value = "127.0.0.1:9443")]
    bind: SocketAddr,
    /// Certificate chain (PEM)
    #[arg(long, env = "WEBHOOK_CERT")]
    cert: PathBuf,
    /// Private key (PEM)
    #[arg(long, env = "WEBHOOK_KEY")]
    key: PathBuf,
}

/// The rule. A handler is an async function: it may ask other services before it answers.
async fn no_passwords(new: Arc<ConfigMap>, _: Context) -> Verdict {
    if new.data.iter().flatten().any(|(key, _)| key == "password") {
        return Verdict::deny("passwords belong in Secrets").code(422).cause("data.password", "is a password");
    }
    Verdict::allow()
}

/// The webhooks: one, at `/validate/no-passwords`.
fn webhooks() -> Webhooks {
    let webhook = Validate::<ConfigMap>::new("no-passwords").on_create_or_update(no_passwords);
    Webhooks::new().validate(webhook)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Flags { bind, cert, key } = Flags::parse();
    tracing_subscriber::fmt().with_env_filter("info").with_writer(std::io::stderr).with_ansi(false).init();

    // To renew the certificate without a restart, store another configuration in this cell.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = tls_config(provider, &read(&cert)?, &read(&key)?)?;
    let tls = Arc::new(ArcSwap::from_pointee(tls));

    let routes = Arc::new(webhooks().routes()?);
    let server = Server::bind(bind, Limits::default()).await?;
    info!(address = %server.local_addr()?, paths = ?routes.paths(), "serving webhooks");

    // After SIGTERM the server accepts nothing more, and finishes the requests that it has.
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let terminated = async {
        terminate.recv().await;
        stop.cancel();
    };
    tokio::join!(server.serve_tls(tls, routes, stop.clone()), terminated);
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
