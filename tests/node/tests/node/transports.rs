//! Each transport in pods: operator, MCP server, proxy and client each in their own.

use portcullis_node::greeter::{self, ROUTES};
use portcullis_node::{Calls, Node, install_operator};
use serde_json::json;

// P2
#[tokio::test(flavor = "multi_thread")]
async fn servers_of_every_transport_answer_clients_of_every_era() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("transports").await;
    namespace.apply(ROUTES.map(|route| greeter::manifest(route.name, route.spec(json!({}))))).await;
    for route in ROUTES {
        let url = greeter::ready(&namespace, route.name).await;
        let host = format!("http://mcp-{}-proxy.{}.svc.cluster.local:8080/", route.name, namespace.name);
        assert!(url.starts_with(&host), "{url} is not the proxy's Service");
        for &era in route.eras {
            let name = format!("{} {era}", route.name);
            let caller =
                namespace.call(Calls { era, transport: route.client, rate: 5, ..Calls::of(&url, &name) }).await;
            caller.steady(5, &format!("Hi {name}")).await;
            caller.finish().await;
        }
    }
}
