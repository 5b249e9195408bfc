//! The mains of the servers that are compared: each takes a port and a folder with `tls.crt` and `tls.key`, and ends when
//! standard input does, so that none outlives whoever started it.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use kube::ResourceExt as _;
use portcullis::conversion::Convert;
use portcullis::server::{Limits, Server, tls_config};
use portcullis::webhooks::{Context, Mutate, Mutation, Validate, Verdict, Webhooks};
use rustls::ServerConfig;
use tokio::io::AsyncReadExt as _;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use super::entity::{FORBIDDEN, LABEL, OVERWRITE, OVERWRITTEN, REFUSAL, v1_to_v3, v2_to_v3, v3, v3_to_v1, v3_to_v2};

/// The flags of every server.
#[derive(clap::Parser, Debug)]
pub struct Flags {
    /// Port on 127.0.0.1
    #[arg(long)]
    pub port: u16,
    /// Folder with tls.crt and tls.key
    #[arg(long)]
    pub cert_dir: PathBuf,
    /// Log filter; the default is that of the operator's `run`
    #[arg(long, default_value = "info")]
    pub log: String,
}

impl Flags {
    /// The address to listen on.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The certificate to serve.
    pub fn tls(&self) -> Result<ServerConfig> {
        let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let (cert, key) = (read(&self.cert_dir.join("tls.crt"))?, read(&self.cert_dir.join("tls.key"))?);
        Ok(tls_config(Arc::new(rustls::crypto::aws_lc_rs::default_provider()), &cert, &key)?)
    }
}

/// Reads the flags, starts log and runtime, and serves until standard input ends.
pub fn main<R: Future<Output = Result<()>>>(serve: impl FnOnce(Flags) -> R) -> Result<()> {
    let flags = Flags::parse();
    let filter = EnvFilter::try_new(&flags.log)?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    log.try_init().map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let (mut stdin, mut nothing) = (tokio::io::stdin(), Vec::new());
        tokio::select! {
            served = serve(flags) => served,
            _ = stdin.read_to_end(&mut nothing) => Ok(()),
        }
    });
    runtime.shutdown_background();
    ended
}

/// The webhooks, as a user of the SDK writes them.
pub fn webhooks() -> Webhooks {
    Webhooks::new()
        .validate(
            Validate::<v3::Entity>::new("entity")
                .on_create_or_update(|new: Arc<v3::Entity>, _| async move { judge(&new) }),
        )
        .mutate(Mutate::<v3::Entity>::new("entity").on_create(overwrite))
        .convert(Convert::<v3::Entity>::hub().spoke(v1_to_v3, v3_to_v1).spoke(v2_to_v3, v3_to_v2).path("/convert"))
}

fn judge(new: &v3::Entity) -> Verdict {
    if new.spec.username == FORBIDDEN { Verdict::deny(REFUSAL).code(403) } else { Verdict::allow() }
}

async fn overwrite(mut new: v3::Entity, _: Context) -> Mutation<v3::Entity> {
    if new.spec.username != OVERWRITE {
        return Mutation::unchanged();
    }
    new.spec.username = OVERWRITTEN.into();
    new.labels_mut().insert(LABEL.into(), "true".into());
    Mutation::modified(new)
}

/// Serves the webhooks with the SDK.
pub async fn portcullis(flags: Flags) -> Result<()> {
    let server = Server::bind(flags.address(), Limits::default()).await?;
    let tls = Arc::new(arc_swap::ArcSwap::from_pointee(flags.tls()?));
    server.serve_tls(tls, Arc::new(webhooks().routes()?), CancellationToken::new()).await;
    Ok(())
}
