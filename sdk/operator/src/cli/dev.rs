//! `dev`: a session of the crate `portcullis-dev`.

use std::path::PathBuf;
use std::sync::Arc;

use portcullis_dev::{Development, Flags};
use portcullis_metrics::Metrics;
use rustls::crypto::CryptoProvider;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::connect;
use super::installation::InstallationFlags;
use super::signals::Signals;
use crate::background::start_replica_tasks;
use crate::caches::Caches;
use crate::health::Health;
use crate::installation::label;
use crate::tasks::Tasks;
use crate::{Components, Operator, Runtime};

#[derive(clap::Args, Clone, Debug)]
pub(super) struct DevFlags {
    /// Kubeconfig file [default: KUBECONFIG, then ~/.kube/config, then the cluster that the process runs in]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Namespace that the operator is installed in [default: <release>-system]
    #[arg(long, value_parser = label)]
    pub(super) namespace: Option<String>,
    #[command(flatten)]
    pub(super) installation: InstallationFlags,
    #[command(flatten)]
    session: Flags,
}

pub(super) async fn perform<A: clap::Args>(
    operator: &Operator<A>,
    components: Components,
    flags: DevFlags,
    provider: Arc<CryptoProvider>,
) -> anyhow::Result<()> {
    let (names, ends) = mpsc::channel(1);
    let signals = signals(names)?;
    let session = async {
        let installation = operator.resolve(&flags.installation, flags.namespace.as_deref())?;
        let connect::Cluster { client, url, context } = connect::cluster(flags.kubeconfig.as_deref()).await?;
        let (answered, metrics) = (CancellationToken::new(), Metrics::new());
        let runtime = Runtime::new(client.clone(), installation.namespace.clone(), answered.clone());
        let runtime = Runtime { release: installation.release.clone(), metrics: metrics.clone(), ..runtime };
        let (caches, mut tasks) = (Caches::of(&components.webhooks), Tasks::default());
        let health = Health::new("the caches", metrics);
        let until = answered.clone();
        let beside = async move {
            start_replica_tasks(components.replica_tasks, &caches, runtime, &health, &mut tasks);
            while let Some(ended) = tasks.next().await {
                ended?;
            }
            until.cancelled().await;
            Ok(())
        };
        let webhooks = components.webhooks;
        let development = Development { webhooks, installation, client, url, context, provider };
        let ended = Box::pin(development.run(&flags.session, ends, answered, beside)).await;
        ended.map_err(anyhow::Error::from_boxed)
    };
    tokio::select! {
        ended = session => ended,
        () = signals => Ok(()),
    }
}

/// Sends the name of each signal that asks the session to end: those of `run`, and the end of the terminal. An echo of
/// the last one is none.
fn signals(names: mpsc::Sender<&'static str>) -> std::io::Result<impl Future<Output = ()>> {
    let (mut signals, mut hangup) = (Signals::new()?, signal(SignalKind::hangup())?);
    Ok(async move {
        loop {
            let name = tokio::select! {
                name = signals.next() => name,
                _ = hangup.recv() => {
                    if !signals.is_new() {
                        continue;
                    }
                    "SIGHUP"
                }
            };
            if names.send(name).await.is_err() {
                return std::future::pending().await;
            }
        }
    })
}
