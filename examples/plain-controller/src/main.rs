//! A controller beside plain kube: the client, the runtime and the logger are this program's own.
//!
//! ```text
//! plain-controller crd | kubectl apply -f -
//! plain-controller run
//! ```

use std::collections::BTreeMap;
use std::error::Error;

use clap::Parser;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, CustomResource, CustomResourceExt as _, ResourceExt as _};
use portcullis_controller::{Action, Applied, Controller, ControllerError, Namespaces, Reconcile, Runtime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

#[derive(Parser)]
enum Command {
    /// Prints the CRD
    Crd,
    /// Reconciles until SIGTERM
    Run {
        /// Namespaces to watch, separated by commas; all of them unless given
        #[arg(long, env = "WATCH_NAMESPACES", default_value = "")]
        namespaces: String,
    },
}

/// A kind of which each object makes a ConfigMap of the same name, with this content.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "plain.example", version = "v1", kind = "ConfigMapGenerator", namespaced)]
struct ConfigMapGeneratorSpec {
    content: String,
}

/// The child as it should be: a function without IO. Its namespace and its owner reference are added when it is applied.
fn child(generator: &ConfigMapGenerator) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(generator.name_any());
    map.data = Some(BTreeMap::from([("content".to_owned(), generator.spec.content.clone())]));
    map
}

/// Called when a generator or its ConfigMap has changed; nothing is written where nothing differs.
async fn reconcile(cx: Reconcile<ConfigMapGenerator>) -> Result<Action, ControllerError> {
    if cx.apply(&child(&cx.object)).await? == Applied::Written {
        info!(generator = %cx.key, "wrote the ConfigMap");
    }
    Ok(Action::await_change())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("info").with_writer(std::io::stderr).with_ansi(false).init();
    let Command::Run { namespaces } = Command::parse() else {
        println!("{}", serde_json::to_string_pretty(&ConfigMapGenerator::crd())?);
        return Ok(());
    };
    let namespaces = Namespaces::parse(&namespaces);
    // Any client of kube: here from $KUBECONFIG, or in a Pod from its ServiceAccount.
    let client = Client::try_default().await?;
    let namespace = client.default_namespace().to_owned();
    let stop = CancellationToken::new();
    // This runtime has one replica, which always leads; with more of them, take `portcullis-lease` or the operator.
    let runtime = Runtime::new(client, namespace, stop.clone());
    let controller =
        Controller::<ConfigMapGenerator>::new("plain-controller").owns::<ConfigMap>().namespaces(namespaces);

    let mut terminate = signal(SignalKind::terminate())?;
    let terminated = async {
        terminate.recv().await;
        stop.cancel();
    };
    info!("reconciling ConfigMapGenerators");
    tokio::join!(controller.run(runtime, reconcile), terminated);
    Ok(())
}
