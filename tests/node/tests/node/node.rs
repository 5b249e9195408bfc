//! The node itself.

use k8s_openapi::api::core::v1::Node as Machine;
use kube::Api;
use kube::api::ListParams;
use portcullis_node::{EVERYTHING_IMAGE, Node};
use serde_json::json;

#[tokio::test]
async fn the_node_is_ready_and_a_service_answers_by_name() {
    let node = Node::running().await;
    let machines: Api<Machine> = Api::all(node.client.clone());
    for machine in machines.list(&ListParams::default()).await.unwrap() {
        let conditions = machine.status.unwrap().conditions.unwrap();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        assert_eq!(ready.status, "True", "{ready:?}");
    }

    let namespace = node.namespace("services").await;
    let probe = json!({ "tcpSocket": { "port": 8080 } });
    namespace.serve("everything", EVERYTHING_IMAGE, &["-http", ":8080"], 8080, probe).await;
    let caller = namespace.caller("stateless", 5, "http://everything:8080/mcp", "Ada").await;
    caller.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
    caller.finish().await;
}
