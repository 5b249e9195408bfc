//! An API server to play with, until Ctrl-C: no cluster, no container. The README says what to do with it.

#![allow(clippy::print_stdout, reason = "its output is for people")]

use portcullis_testing::ControlPlane;
use serde_json::json;

/// As `generate` names them for this operator.
const NAMESPACE: &str = "entity-operator-system";
const SERVICE: &str = "entity-operator-webhook";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = ControlPlane::builder().controller_manager().start().await?;
    cluster.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})]).await;
    // Calls of the API server to this Service arrive at this machine.
    cluster.route_service(NAMESPACE, SERVICE).await;
    println!("export KUBECONFIG={}", cluster.kubeconfig_path().display());
    tokio::signal::ctrl_c().await?;
    cluster.stop().await;
    Ok(())
}
