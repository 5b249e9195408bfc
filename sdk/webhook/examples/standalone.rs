//! Webhooks in a process of your own: certificates from files, no operator, no client.
//!
//! ```text
//! cargo run -p portcullis-webhook --example standalone -- --bind 127.0.0.1:9443 --cert tls.crt --key tls.key
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use clap::Parser;
use k8s_openapi::api::core::v1::ConfigMap;
use portcullis_webhook::conversion::Convert;
use portcullis_webhook::server::{Limits, Server, tls_config};
use portcullis_webhook::{Context, Validate, Verdict, Webhooks};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

#[derive(Parser)]
struct Flags {
    /// Address that the webhooks are served at
    #[arg(long, default_value = "127.0.0.1:9443")]
    bind: SocketAddr,
    /// Certificate chain in PEM
    #[arg(long)]
    cert: PathBuf,
    /// Private key in PEM
    #[arg(long)]
    key: PathBuf,
    /// Maximum number of concurrent reviews of each webhook
    #[arg(long, default_value_t = 256)]
    concurrency: usize,
    /// Memory limit of the process, in bytes
    #[arg(long)]
    memory_limit: Option<usize>,
    /// Log filter, such as `info` or `portcullis_webhook=debug`
    #[arg(long, default_value = "info")]
    log: String,
}

/// A kind in two versions: the second one separates name and surname.
mod v1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "demo.example", version = "v1", kind = "Person", plural = "people", namespaced)]
    pub(crate) struct PersonSpec {
        pub(crate) name: String,
    }
}

mod v2 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "demo.example", version = "v2", kind = "Person", plural = "people", namespaced)]
    pub(crate) struct PersonSpec {
        pub(crate) name: String,
        pub(crate) surname: String,
    }
}

fn to_v2(old: v1::Person) -> v2::Person {
    let (name, surname) = old.spec.name.split_once(' ').unwrap_or((&old.spec.name, ""));
    let spec = v2::PersonSpec { name: name.to_owned(), surname: surname.to_owned() };
    v2::Person { metadata: old.metadata, spec }
}

fn to_v1(new: v2::Person) -> v1::Person {
    let name = format!("{} {}", new.spec.name, new.spec.surname).trim_end().to_owned();
    v1::Person { metadata: new.metadata, spec: v1::PersonSpec { name } }
}

/// Asks an inventory that takes its time, as the ConfigMap says.
async fn inventory(new: Arc<ConfigMap>, _: Context) -> Verdict {
    let think = new.data.as_ref().and_then(|data| data.get("think-ms")?.parse().ok()).unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(think)).await;
    Verdict::allow()
}

/// Decides at once.
async fn no_passwords(new: Arc<ConfigMap>, _: Context) -> Verdict {
    if new.data.iter().flatten().any(|(key, _)| key == "password") {
        return Verdict::deny("passwords belong in Secrets").code(422).cause("data.password", "is a password");
    }
    Verdict::allow()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    tracing_subscriber::fmt().with_env_filter(&flags.log).with_writer(std::io::stderr).with_ansi(false).init();
    let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = tls_config(provider, &read(&flags.cert)?, &read(&flags.key)?)?;

    let mut webhooks = Webhooks::new()
        .convert(Convert::<v2::Person>::hub().spoke::<v1::Person>(to_v2, to_v1))
        .validate(Validate::<ConfigMap>::new("inventory").on_create(inventory).concurrency(flags.concurrency))
        .validate(
            Validate::<ConfigMap>::new("no-passwords").on_create_or_update(no_passwords).concurrency(flags.concurrency),
        );
    if let Some(bytes) = flags.memory_limit {
        webhooks = webhooks.memory_limit(bytes);
    }
    let server = Server::bind(flags.bind, Limits::default()).await?;
    info!(address = %server.local_addr()?, "serving webhooks");

    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let ended = async {
        terminate.recv().await;
        stop.cancel();
    };
    let routes = Arc::new(webhooks.routes()?);
    // Store another configuration there to change certificates.
    let tls = Arc::new(ArcSwap::from_pointee(tls));
    tokio::join!(server.serve_tls(tls, routes, stop.clone()), ended);
    Ok(())
}
