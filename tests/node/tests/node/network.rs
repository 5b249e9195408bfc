//! NetworkPolicies at work: hack/node enforces them.

use portcullis_node::greeter::{self, NAME};
use portcullis_node::{Calls, Node, Outcome, POD_IMAGE, install_operator};
use serde_json::json;

// P6
#[tokio::test(flavor = "multi_thread")]
async fn no_pod_but_the_proxy_reaches_the_port_of_an_mcp_server() {
    let node = Node::running().await;
    install_operator().await;
    let [namespace, other] = [node.namespace("network").await, node.namespace("elsewhere").await];
    let url = greeter::start(&namespace, json!({})).await;
    // The same program without a policy: what a client gets where it is let in.
    let probe = json!({ "tcpSocket": { "port": 3001 } });
    namespace.serve("open", POD_IMAGE, &["serve", ":3001"], 3001, probe).await;
    let address = async |pod: &str| {
        let status = namespace.pod(pod).await.status.unwrap();
        format!("http://{}:3001/mcp", status.pod_ip.unwrap())
    };
    let (open, guarded) = (address(&namespace.pods("open").await[0]).await, address(&format!("{NAME}-0")).await);

    for from in [&namespace, &other] {
        for let_in in [&url, &open] {
            let caller = from.call(Calls::of(let_in, "Ada")).await;
            caller.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
            caller.finish().await;
        }
        let caller = from.call(Calls { rate: 5, ..Calls::of(&guarded, "Ada") }).await;
        caller
            .next(
                "no way to the server",
                |outcome| matches!(outcome, Outcome::Lost { text } if text.contains("no route to host")),
            )
            .await;
        let outcomes = caller.finish().await;
        assert!(!outcomes.iter().any(|outcome| outcome.answers("Hi Ada")), "{}: {outcomes:?}", from.name);
    }
}
