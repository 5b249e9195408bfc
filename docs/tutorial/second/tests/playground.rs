//! The second half of the tutorial as a reader types it: the binary's own manifests, the binary, and its manifests to play with.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::{Api, Client};
use portcullis_testing::{ControlPlane, OperatorBinary};
use serde_json::{Value, json};
use tokio::process::Command;

const PATIENCE: Duration = Duration::from_mins(1);

fn operator(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backup-operator"));
    command
        .args(arguments)
        .kill_on_drop(true)
        .stdin(Stdio::null())
        .env_remove("KUBECONFIG")
        .env_remove("POD_NAMESPACE");
    command
}

async fn output(arguments: &[&str]) -> String {
    let output = tokio::time::timeout(PATIENCE, operator(arguments).output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let types: TypeMeta = serde_json::from_value(object.clone()).unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
    // The manifests of the tutorial name a namespace wherever there is one; a Backup goes to the default one.
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None if types.kind == "Backup" => Api::namespaced_with(client.clone(), "default", &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// As `kubectl apply --server-side`, and strict about members that no schema has.
async fn apply(client: &Client, yaml: &str, dry_run: bool) -> kube::Result<()> {
    apply_as("reader", client, yaml, dry_run).await
}

async fn apply_as(manager: &str, client: &Client, yaml: &str, dry_run: bool) -> kube::Result<()> {
    for object in serde_saphyr::from_multiple::<Value>(yaml).unwrap() {
        let mut parameters = PatchParams::apply(manager).force().validation_strict();
        parameters.dry_run = dry_run;
        let name = object["metadata"]["name"].as_str().unwrap();
        api(client, &object).patch(name, &parameters, &Patch::Apply(&object)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_tutorial_ends_as_it_says() {
    let cluster = ControlPlane::shared().await;
    let (client, kubeconfig) = (cluster.admin(), cluster.kubeconfig_path().display().to_string());
    let binary = OperatorBinary::new(env!("CARGO_BIN_EXE_backup-operator"));
    let _operator = binary.namespace("backup-operator-system").install(cluster).await;

    let nightly = read("../first/manifests/nightly.yaml");
    apply(&client, &nightly, false).await.unwrap();
    let refused = apply(&client, &read("../first/manifests/daily.yaml"), false).await.unwrap_err().to_string();
    assert!(refused.contains("'daily' is no schedule"), "{refused}");

    apply(&client, &read("manifests/weekly.yaml"), false).await.unwrap();
    apply_as("another", &client, &read("manifests/weekly-v1.yaml"), false).await.unwrap();
    let v2 = json!({"apiVersion": "tutorial.example/v2", "kind": "Backup", "metadata": {}});
    let weekly = api(&client, &v2).get("weekly").await.unwrap();
    assert_eq!(weekly.data["spec"]["retention"], json!({"copies": 3, "days": 120}));
    // The manager that applied the copies takes them back by a manifest without them, in whatever version.
    apply(&client, &read("manifests/weekly-v1.yaml"), false).await.unwrap();
    let weekly = api(&client, &v2).get("weekly").await.unwrap();
    assert_eq!(weekly.data["spec"]["retention"], json!({"days": 120}));
    let nightly = api(&client, &v2).get("nightly").await.unwrap();
    assert_eq!(nightly.data["spec"]["retention"], json!({"days": 7}));
    assert_eq!(nightly.data["spec"]["schedule"], "0 3 * * *");

    output(&["migrate-storage", "--kubeconfig", &kubeconfig]).await;
    // The API server takes the generated installation.
    let image = "registry.example/backup-operator:0.1.0";
    apply(&client, &output(&["generate", "operator", "--image", image]).await, true).await.unwrap();
}

/// The lines that a chapter shows, in their order; `...` stands for what it leaves out.
#[tokio::test]
async fn what_generate_prints_is_what_the_tutorial_shows() {
    let chapter = read("../../src/tutorial/first.md");
    let shown = chapter.split("$ cargo run -- generate webhooks\n").nth(1).unwrap().split("```").next().unwrap();
    let printed = output(&["generate", "webhooks"]).await;
    let mut lines = printed.lines();
    for line in shown.lines().filter(|line| *line != "...") {
        assert!(lines.any(|printed| printed == line), "{line:?} is not printed, or not in this order:\n{printed}");
    }
}
