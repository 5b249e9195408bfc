//! `--memory-limit`: what reviews may take follows from it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use portcullis_testing::{ControlPlane, wait_until};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::process::{PATIENCE, Running, output_of};

/// The example with a rule, a default and a conversion.
const SHOP: &str = "shop_operator";

async fn generate(arguments: &[&str]) -> Vec<Value> {
    let output = output_of(SHOP, &[&["generate"], arguments].concat()).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// Sends `head`, the head of a request, and two bytes of its body; returns the status of the answer.
async fn status(connector: &TlsConnector, name: &ServerName<'static>, port: u16, head: &str) -> std::io::Result<u16> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut stream = connector.connect(name.clone(), stream).await?;
    stream.write_all(format!("{head}\r\n\r\n{{}}").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split(' ').nth(1).unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_conversion_that_never_fits_the_memory_limit_is_refused() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("shop").await;
    let user = cluster.user_from_manifests(&generate(&["rbac", "--namespace", &namespace]).await).await;
    let kubeconfig = user.kubeconfig.to_str().unwrap();
    let running =
        Running::run(SHOP, &["--kubeconfig", kubeconfig, "--namespace", &namespace, "--memory-limit", "64Mi"]);
    let address = running.webhooks().await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin(), &namespace);
    let issued = || async { secrets.get_opt("shop-webhook-tls").await.unwrap()?.data?.remove("ca.crt") };
    let ca_pem = wait_until("the certificate", PATIENCE, issued).await.0;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&ca_pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let connector = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    let name = ServerName::try_from(format!("shop-webhook.{namespace}.svc")).unwrap();
    let status = async |length| {
        let head = format!(
            "POST /convert/orders HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}"
        );
        status(&connector, &name, address.port(), &head).await.ok()
    };
    wait_until("the certificate to be served", PATIENCE, || async { (status(2).await == Some(400)).then_some(()) })
        .await;
    // An eighth of the limit is the most that one may have.
    assert_eq!(status(9 * 1024 * 1024).await, Some(413));
}
