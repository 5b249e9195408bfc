//! Idle attachments. The node closes them after a minute (`run.sh`), others after four hours.

use std::time::Duration;

use portcullis_node::greeter::{self, STDIO};
use portcullis_node::{Calls, Node, install_operator, kubectl};
use serde_json::{Value, json};

/// Longer than the node lets an attachment be silent.
const SILENCE: Duration = Duration::from_secs(80);

// P2
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_stdio_server_answers_again() {
    let node = Node::running().await;
    install_operator().await;
    let kubelet = kubectl(&["get", "--raw", "/api/v1/nodes/node1/proxy/configz"]);
    let kubelet: Value = serde_json::from_str(&kubelet).unwrap();
    assert_eq!(
        kubelet["kubeletconfig"]["streamingConnectionIdleTimeout"], "1m0s",
        "on this node an attachment may be silent for longer than this test is: run 'make node-down', and then 'make e2e'"
    );
    let namespace = node.namespace("idle").await;
    let url = greeter::start_on(&namespace, &STDIO, json!({})).await;
    for era in STDIO.eras {
        let calls = Calls { era, ..Calls::of(&url, "Ada") };
        let caller = namespace.call(calls.clone()).await;
        caller.steady(3, "Hi Ada").await;
        caller.finish().await;
        // The time itself is what is tested.
        tokio::time::sleep(SILENCE).await;
        let caller = namespace.call(calls.clone()).await;
        caller.steady(3, "Hi Ada").await;
        let outcomes = caller.finish().await;
        println!("after {SILENCE:?} of silence, {era}: {:?}", outcomes.first());
    }
}
