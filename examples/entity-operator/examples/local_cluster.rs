//! An API server to play with, until Ctrl-C: no cluster, no container. The README says what to do with it. Its argument
//! is the release of the operator that will run beside it: `entity-operator` where there is none.

#![allow(clippy::print_stdout, reason = "its output is for people")]

use portcullis_testing::ControlPlane;
use serde_json::json;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let release = std::env::args().nth(1).unwrap_or_else(|| "entity-operator".to_owned());
    // As `generate` names them.
    let (namespace, service) = (format!("{release}-system"), format!("{release}-webhook"));
    let cluster = ControlPlane::builder().controller_manager().start().await?;
    cluster.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})]).await;
    // Calls of the API server to this Service arrive at this machine.
    cluster.route_service(&namespace, &service).await;
    println!("export KUBECONFIG={}", cluster.kubeconfig_path().display());
    tokio::signal::ctrl_c().await?;
    cluster.stop().await;
    Ok(())
}
