//! The whole way, start to end, with nothing in it that is not real.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use portcullis_e2e::apply::apply;
use portcullis_e2e::client::{Called, McpClient};
use portcullis_e2e::gate::Gate;
use portcullis_e2e::process::EVERYTHING_VERSION;
use portcullis_e2e::runner::{Everything, Runner};
use portcullis_e2e::stage::settled;
use portcullis_testing::wait_until;

use crate::stage;

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
        "WebhookConfigValidated=False (WebhookConfigNotFound)",
        "NetworkPolicy   mcp-greeter",
        "passed:",
        "mutated:",
        "denied:",
        "tools/list     hello, ping",
        "tool not found",
        "401, WWW-Authenticate: Bearer realm=",
        "for https://another.example/mcp   denied:  401",
        "for https://greeter.example/mcp   passed:",
        "referencingWorkloads: []",
    ] {
        assert!(text.contains(claim), "the demo does not show '{claim}':\n{text}");
    }
    assert_empties(folder.path());
}

#[test]
fn a_demo_that_is_killed_half_way_leaves_no_process_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    let mut demo = command.env("TMPDIR", folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut stdout = BufReader::new(demo.stdout.take().unwrap());
    while !said.contains("calls the tool `greet`") {
        assert!(stdout.read_line(&mut said).unwrap() > 0, "the demo ended before its first call:\n{said}");
    }
    let children = children_of(demo.id());
    assert!(children.len() >= 3, "operator, server and runner are up: {children:?}");
    demo.kill().unwrap();
    demo.wait().unwrap();
    until("its processes to end", || children.iter().all(|pid| !is_running(*pid)));
    assert_empties(folder.path());
}

fn assert_empties(folder: &Path) {
    let left = || std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    until(&format!("{} to be empty", folder.display()), || left().is_empty());
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// State and parent of a process, from /proc (proc(5)).
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

fn children_of(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(_, of)| of == parent)).collect()
}

// M3: what reaches a proxy as a file is mounted as a directory and read again when it changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_edit_reaches_the_running_runner_without_a_restart() {
    let (stage, folder) = (stage().await, tempfile::tempdir().unwrap());
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
    let everything = Everything::start(folder.path()).await.unwrap();
    let runner = Runner::start(&client, &namespace, SERVER, everything.address, folder.path()).await.unwrap();
    let mcp = McpClient::connect(&runner.url).await.unwrap();
    assert_eq!(mcp.greet("Ada").await.unwrap(), Called::Answered("Hi Ada".into()));

    gate.rotate(b"the-second-key").await;
    let refused = mcp.greet("Ada").await.unwrap();
    assert!(matches!(refused, Called::Refused { .. }), "a signature that does not fit any more passed: {refused:?}");

    install(gate.secret(&namespace).unwrap()).await;
    runner.refresh_files(&client, &deployment).await.unwrap();
    let answer = wait_until("a call signed with the new key to pass", Duration::from_mins(1), || async {
        mcp.greet("Ada").await.ok().filter(|called| matches!(called, Called::Answered(_)))
    })
    .await;
    assert_eq!(answer, Called::Answered("Hi Ada".into()));

    let after = deployments.get(SERVER).await.unwrap();
    assert_eq!(after.metadata.generation, deployment.metadata.generation, "the Secret's edit rolled the proxy");
    mcp.close().await.unwrap();
    runner.stop().await.unwrap();
    everything.stop().await.unwrap();
}

#[test]
fn the_real_mcp_server_is_the_one_that_is_pinned() {
    let module = include_str!("../../../../hack/mcp-servers/go.mod");
    assert!(module.contains(&format!("github.com/modelcontextprotocol/go-sdk {EVERYTHING_VERSION}")), "{module}");
}
