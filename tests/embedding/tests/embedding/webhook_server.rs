//! `examples/webhook-server`: webhooks without an operator.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use portcullis_embedding::{PATIENCE, built, ended};
use portcullis_pki::{Ca, CertificateParams, Usage};
use portcullis_testing::ControlPlane;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Writes a certificate for this machine into the folder; returns the authority that issued it.
fn certificate(folder: &Path) -> Ca {
    let now = Timestamp::now();
    let (not_before, not_after) = (now - SignedDuration::from_mins(5), now + SignedDuration::from_hours(1));
    let ca = Ca::generate("webhook-server ca", not_before, not_after).unwrap();
    let wanted = CertificateParams {
        common_name: "webhook-server",
        organizations: &[],
        dns_names: &[],
        ip_addresses: &[Ipv4Addr::LOCALHOST.into()],
        not_before,
        not_after,
        usage: Usage::Server,
    };
    let pair = ca.issue(&wanted).unwrap();
    std::fs::write(folder.join("tls.crt"), pair.cert_pem).unwrap();
    std::fs::write(folder.join("tls.key"), pair.key_pem).unwrap();
    ca
}

/// The address that it logs once it listens. The log stays open.
async fn address(server: &mut Child) -> SocketAddr {
    let mut log = BufReader::new(server.stderr.take().unwrap());
    let address = async {
        let mut line = String::new();
        while log.read_line(&mut line).await.unwrap() > 0 {
            if let Some((_, rest)) = line.split_once("address=") {
                return rest.split_whitespace().next().unwrap().parse().unwrap();
            }
            line.clear();
        }
        panic!("the server ended before it served")
    };
    let address = timeout(PATIENCE, address).await.expect("the server serves");
    server.stderr = Some(log.into_inner());
    address
}

#[tokio::test]
async fn a_plain_webhook_server_denies_and_drains_on_sigterm() {
    let (cluster, binaries) = tokio::join!(ControlPlane::shared(), built("webhook-server"));
    let folder = tempfile::tempdir().unwrap();
    let ca = certificate(folder.path());
    let mut server = Command::new(binaries.join("webhook-server"))
        .env_clear()
        .args(["--bind", "127.0.0.1:0"])
        .args(["--cert".into(), folder.path().join("tls.crt")])
        .args(["--key".into(), folder.path().join("tls.key")])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let url = format!("https://{}/validate/no-passwords", address(&mut server).await);

    let namespace = cluster.namespace("served").await;
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": format!("webhook-server-{namespace}") },
        "webhooks": [{
            "name": "no-passwords.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": { "url": url, "caBundle": STANDARD.encode(ca.cert_pem()) },
            // Other tests have the same API server.
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE", "UPDATE"],
            }],
        }],
    });
    cluster.apply(&[configuration]).await;
    cluster.wait_for_webhooks().await;

    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &namespace);
    let map = |data: Value| serde_json::from_value(json!({ "metadata": { "name": "one" }, "data": data })).unwrap();
    let refused = maps.create(&PostParams::default(), &map(json!({ "password": "1234" }))).await.unwrap_err();
    let kube::Error::Api(status) = &refused else { panic!("{refused}") };
    assert!(status.code == 422 && status.message.ends_with("passwords belong in Secrets"), "{refused}");
    maps.create(&PostParams::default(), &map(json!({ "colour": "blue" }))).await.unwrap();

    let log = ended(server).await;
    assert!(log.contains("listener is drained"), "{log}");
}
