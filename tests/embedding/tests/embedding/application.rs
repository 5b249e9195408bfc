//! An application outside of the workspace, as its user builds and runs it.

use std::path::Path;
use std::process::Stdio;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use portcullis_embedding::{PATIENCE, built, ended};
use portcullis_testing::{ControlPlane, free_address, wait_until};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

/// The objects that the operator's own command line generates.
async fn generate(binaries: &Path, what: &[&str]) -> Vec<Value> {
    let output =
        Command::new(binaries.join("manifests")).arg("generate").args(what).env_clear().output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

async fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: application\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.ok()?;
    Some(reply)
}

#[tokio::test]
async fn an_axum_application_serves_webhooks_in_its_own_runtime() {
    // One of its own: its webhook fails closed for the ConfigMaps of every namespace.
    let (cluster, binaries) = tokio::join!(ControlPlane::start(), built("axum-application"));
    let cluster = &cluster.unwrap();
    let namespace = cluster.namespace("application").await;
    let user = cluster.user_from_manifests(&generate(&binaries, &["rbac", "--namespace", &namespace]).await).await;
    let [site, webhooks] = [(); 2].map(|()| free_address().port());
    let place = ["webhooks", "--namespace", &namespace, "--service-port", &webhooks.to_string()];
    cluster.install_webhooks(&generate(&binaries, &place).await, webhooks).await;
    let application = Command::new(binaries.join("axum-application"))
        .env_clear()
        .args(["--kubeconfig", user.kubeconfig.to_str().unwrap(), "--namespace", &namespace])
        .args(["--listen", &format!("127.0.0.1:{site}"), "--webhooks", &format!("127.0.0.1:{webhooks}")])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    wait_until("the application's own /readyz", PATIENCE, || async {
        get(site, "/readyz").await.filter(|reply| reply.starts_with("HTTP/1.1 200"))
    })
    .await;
    cluster.wait_for_webhooks().await;

    // A webhook that fails closed for a built-in kind spares the operator's own namespace.
    let team = cluster.namespace("team").await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &team);
    let map = |data: Value| serde_json::from_value(json!({ "metadata": { "name": "one" }, "data": data })).unwrap();
    let refused = maps.create(&PostParams::default(), &map(json!({ "password": "1234" }))).await.unwrap_err();
    let kube::Error::Api(status) = &refused else { panic!("{refused}") };
    assert!(status.code == 422 && status.message.ends_with("passwords belong in Secrets"), "{refused}");
    maps.create(&PostParams::default(), &map(json!({ "colour": "blue" }))).await.unwrap();

    assert!(get(site, "/").await.unwrap().ends_with("Welcome.\n"));
    let metrics = get(site, "/metrics").await.unwrap();
    let counted = |name: &str| metrics.lines().any(|line| line.starts_with(name) && !line.ends_with(" 0"));
    assert!(counted("application_webhook_calls_total ") && counted("portcullis_"), "{metrics}");
    let log = ended(application).await;
    // One logger, the application's, has the lines of both.
    let messages: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = |part: &str| messages.iter().any(|line| line["fields"]["message"].as_str().unwrap().contains(part));
    assert!(
        said("the application listens") && said("ready: the CA is published") && said("listener is drained"),
        "{log}"
    );
}
