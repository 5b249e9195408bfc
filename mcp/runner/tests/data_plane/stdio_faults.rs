//! Processes that misbehave.

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{INITIALIZE, Runner, eventually, modules};

pub(crate) fn faults(record: &Path) -> Vec<OsString> {
    // Says what to install when Node.js is not there.
    modules();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data_plane/faults.mjs");
    vec!["node".into(), script.into(), record.into()]
}

fn call(tool: &str, meta: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": tool, "_meta": meta}}).to_string()
}

#[tokio::test]
async fn what_a_process_prints_beside_its_answers_harms_nobody() {
    let directory = TempDir::new().unwrap();
    let runner = Runner::stdio(&faults(&directory.path().join("read")), &json!({})).await;
    let session = runner.session().await;
    let headers = [("mcp-session-id", session.as_str())];
    for (tool, text) in [("garbage", "after garbage"), ("strangers", "once"), ("ok", "fine")] {
        let answer = runner.post(&headers, &call(tool, &json!({}))).await;
        assert_eq!(answer.message()["result"]["content"][0]["text"], text, "{tool}");
        assert_eq!(answer.message()["id"], "c", "{tool}");
    }
    runner.logged("too long").await;
    // However many notifications there are and however few fit, the answer comes, last.
    let answer = runner.post(&headers, &call("flood", &json!({"progressToken": "mine"}))).await;
    assert_eq!(answer.message()["result"]["content"][0]["text"], "after the flood");
    let progress = answer.body.matches(r#""progressToken":"mine""#).count();
    assert!((1..=20_000).contains(&progress), "{progress}");
}

#[tokio::test]
async fn a_process_that_closes_its_output_and_stays_is_killed_and_replaced() {
    let directory = TempDir::new().unwrap();
    let runner = Runner::stdio(&faults(&directory.path().join("read")), &json!({})).await;
    let session = runner.session().await;
    let headers = [("mcp-session-id", session.as_str())];
    let [mute, plain, streamed] = [("mute", json!({})), ("ok", json!({})), ("ok", json!({"progressToken": 1}))]
        .map(|(tool, meta)| call(tool, &meta));
    // What comes from here on until the next process runs, the process that was mute has never read.
    let meanwhile = async {
        eventually("the report to say so", || async {
            (runner.get("/health").await.message()["status"] == "degraded").then_some(())
        })
        .await;
        tokio::join!(runner.post(&headers, &plain), runner.post(&headers, &streamed))
    };
    let (lost, (one, other)) = tokio::join!(runner.post(&headers, &mute), meanwhile);
    assert_eq!(lost.status, 502, "{lost:?}");
    assert_eq!(lost.message()["id"], "c");
    for answer in [one, other] {
        assert_eq!(answer.message()["result"]["content"][0]["text"], "fine", "{answer:?}");
    }
    let calls = std::fs::read_to_string(directory.path().join("read")).unwrap().matches("tools/call").count();
    assert_eq!(calls, 3, "each was written once");
}

#[tokio::test]
async fn a_process_that_starts_late_is_told_of_and_asked_for_its_handshake_once_whoever_has_left_meanwhile() {
    let directory = TempDir::new().unwrap();
    let go = directory.path().join("go");
    // As one that fetches its packages first: its input waits in the pipe.
    let late = r#"until [ -e "$0" ]; do sleep 0.05; done; exec "$@""#;
    let mut command: Vec<OsString> = ["sh".into(), "-c".into(), late.into(), go.clone().into()].into();
    command.extend(faults(&directory.path().join("read")));
    let environment = [("TOOLHIVE_PROXY_REQUEST_TIMEOUT", "300ms"), ("TOOLHIVE_HEALTH_CHECK_INTERVAL", "500ms")];
    let runner = Runner::stdio_with(&command, &json!({}), &environment).await;
    for _ in 0..2 {
        let (one, other) = tokio::join!(runner.post(&[], INITIALIZE), runner.post(&[], INITIALIZE));
        assert_eq!((one.status, other.status), (502, 502), "{one:?} {other:?}");
    }
    let is = |status: &'static str| {
        let runner = &runner;
        eventually(
            status,
            move || async move { (runner.get("/health").await.message()["status"] == status).then_some(()) },
        )
    };
    is("degraded").await;
    runner.logged("has answered nothing").await;
    std::fs::write(&go, "").unwrap();
    let opened = || async { Some(runner.post(&[], INITIALIZE).await).filter(|answer| answer.status == 200) };
    let opened = eventually("the process to start", opened).await;
    assert_eq!(opened.message()["result"]["serverInfo"]["name"], "faults");
    is("healthy").await;
    let session = opened.header("mcp-session-id").unwrap();
    let answer = runner.post(&[("mcp-session-id", session)], &call("ok", &json!({}))).await;
    assert_eq!(answer.message()["result"]["content"][0]["text"], "fine");
    let handshakes = std::fs::read_to_string(directory.path().join("read")).unwrap().matches(r#""initialize""#).count();
    assert_eq!(handshakes, 1, "many servers refuse a second one");
}

#[tokio::test]
async fn a_call_that_is_not_answered_in_time_fails_and_is_cancelled_at_the_process() {
    let directory = TempDir::new().unwrap();
    let read = directory.path().join("read");
    let environment = [("TOOLHIVE_PROXY_REQUEST_TIMEOUT", "300ms")];
    let runner = Runner::stdio_with(&faults(&read), &json!({}), &environment).await;
    // Until the process has started, the handshake is not answered in time either.
    eventually("the process to start", || async { (runner.post(&[], INITIALIZE).await.status == 200).then_some(()) })
        .await;
    let session = runner.session().await;
    let headers = [("mcp-session-id", session.as_str())];
    let answer = runner.post(&headers, &call("deaf", &json!({}))).await;
    assert_eq!((answer.status, answer.body.as_str()), (504, "Timeout"));
    let answer = runner.post(&headers, &call("deaf", &json!({"progressToken": 1}))).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(answer.message(), json!({"jsonrpc": "2.0", "id": "c", "error": {"code": -32000, "message": "Timeout"}}));
    eventually("both cancellations", || async {
        let read = std::fs::read_to_string(&read).unwrap_or_default();
        (read.matches("notifications/cancelled").count() == 2).then_some(())
    })
    .await;
    // The process is fine and so is the session.
    let answer = runner.post(&headers, &call("ok", &json!({}))).await;
    assert_eq!(answer.message()["result"]["content"][0]["text"], "fine");
}
