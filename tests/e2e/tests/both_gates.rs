//! The whole way, start to end, with nothing in it that is not real.

use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use portcullis_e2e::apply::apply;
use portcullis_e2e::client::{Called, McpClient};
use portcullis_e2e::gate::Gate;
use portcullis_e2e::process::EVERYTHING_VERSION;
use portcullis_e2e::runner::{Everything, Runner};
use portcullis_e2e::stage::{Stage, settled};
use portcullis_testing::wait_until;

const SERVER: &str = "gated-greeter";

// M4, K2: the demo checks each of its claims and fails on the first that does not hold.
#[test]
fn the_demo_shows_both_gates_at_work_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_demo")).env("TMPDIR", folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for claim in [
        "refused by an enum",
        "refused by a CEL rule",
        "refused by the operator's admission webhook",
        "with a warning",
        "passed:",
        "mutated:",
        "denied:",
    ] {
        assert!(text.contains(claim), "the demo does not show '{claim}':\n{text}");
    }
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    let left = || std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    while !left().is_empty() && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert!(left().is_empty(), "left behind: {:?}", left());
}

// M3: what reaches a proxy as a file is mounted as a directory and read again when it changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_edit_reaches_the_running_runner_without_a_restart() {
    let stage = Stage::start(|_| {}).await.unwrap();
    let client = stage.cluster.admin();
    let namespace = stage.cluster.namespace("rotate").await;
    let mut gate = Gate::start(b"the-first-key").await.unwrap();
    let install = async |object| apply(&client, &object).await.unwrap().unwrap();
    install(gate.secret(&namespace).unwrap()).await;
    for object in gate.manifests(&namespace).unwrap() {
        install(object).await;
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let deployment = settled("the gated proxy", async || {
        let there = maps.get_opt(&format!("{SERVER}-runconfig")).await?.is_some();
        Ok(deployments.get_opt(SERVER).await?.filter(|_| there))
    })
    .await
    .unwrap();
    let everything = Everything::start(stage.folder.path()).await.unwrap();
    let runner = Runner::start(&client, &namespace, SERVER, everything.address, stage.folder.path()).await.unwrap();
    let mcp = McpClient::connect(&runner.url).await.unwrap();
    assert_eq!(mcp.greet("Ada").await.unwrap(), Called::Answered("Hi Ada".into()));

    gate.rotate(b"the-second-key").await;
    let refused = mcp.greet("Ada").await.unwrap();
    assert!(matches!(refused, Called::Refused { .. }), "a signature that does not fit any more passed: {refused:?}");

    install(gate.secret(&namespace).unwrap()).await;
    runner.refresh_files(&client, &deployment).await.unwrap();
    let answer = wait_until("a call signed with the new key to pass", Duration::from_secs(20), || async {
        mcp.greet("Ada").await.ok().filter(|called| matches!(called, Called::Answered(_)))
    })
    .await;
    assert_eq!(answer, Called::Answered("Hi Ada".into()));

    let after = deployments.get(SERVER).await.unwrap();
    assert_eq!(after.metadata.generation, deployment.metadata.generation, "the Secret's edit rolled the proxy");
    mcp.close().await.unwrap();
    runner.stop().await.unwrap();
    everything.stop().await.unwrap();
    stage.stop().await.unwrap();
}

#[test]
fn the_real_mcp_server_is_the_one_that_is_pinned() {
    let module = include_str!("../../../hack/mcp-servers/go.mod");
    assert!(module.contains(&format!("github.com/modelcontextprotocol/go-sdk {EVERYTHING_VERSION}")), "{module}");
}
