//! An API server to play with, until Ctrl-C. No cluster, no container.

use std::io::{Write as _, stdout};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use portcullis_testing::ControlPlane;
use serde_json::{from_value, json};

/// As `generate` names them for this operator.
const NAMESPACE: &str = "backup-operator-system";
const SERVICE: &str = "backup-operator-webhook";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = ControlPlane::start().await?;
    let namespace: Namespace = from_value(json!({ "metadata": { "name": NAMESPACE } }))?;
    Api::all(cluster.admin()).create(&PostParams::default(), &namespace).await?;
    // Calls of the API server to this Service arrive at this machine.
    cluster.route_service(NAMESPACE, SERVICE).await;
    writeln!(stdout(), "export KUBECONFIG={}", cluster.kubeconfig_path().display())?;
    tokio::signal::ctrl_c().await?;
    cluster.stop().await;
    Ok(())
}
