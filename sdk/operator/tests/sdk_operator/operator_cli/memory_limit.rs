//! `--memory-limit`: what reviews may take follows from it.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use portcullis_testing::{ControlPlane, wait_until};

use super::client_ca::{Listener, SHOP, generate};
use super::process::{PATIENCE, Running};

#[tokio::test]
async fn a_conversion_that_never_fits_into_the_memory_limit_of_the_process_is_not_waited_for() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("shop").await;
    let user = cluster.user_of(&generate(&["rbac", "--namespace", &namespace]).await).await;
    let kubeconfig = user.kubeconfig.to_str().unwrap();
    let running =
        Running::run(SHOP, &["--kubeconfig", kubeconfig, "--namespace", &namespace, "--memory-limit", "64Mi"]);
    let address = running.webhooks().await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin(), &namespace);
    let issued = || async { secrets.get_opt("shop-webhook-tls").await.unwrap()?.data?.remove("ca.crt") };
    let ca_pem = wait_until("the certificate", PATIENCE, issued).await.0;
    let listener = Listener { address, server_name: format!("shop-webhook.{namespace}.svc"), ca_pem };
    let status = async |length| listener.announce("/convert/orders", length, None).await.ok();
    wait_until("the certificate to be served", PATIENCE, || async { (status(2).await == Some(400)).then_some(()) })
        .await;
    // An eighth of the limit is the most that one may have.
    assert_eq!(status(9 * 1024 * 1024).await, Some(413));
}
