//! The MCP server that the tests call, of both eras, behind a proxy.

use k8s_openapi::api::apps::v1::Deployment;
use mcp_api::v1beta1::MCPServer;
use portcullis_testing::wait_for_object;
use serde_json::{Value, json};

use crate::Namespace;
use crate::node::{DEADLINE, POD_IMAGE};

/// Its name, and that of its proxy's Deployment.
pub const NAME: &str = "greeter";

/// Applies the MCPServer with these members of its spec beside the image, and returns its URL when its proxy serves.
///
/// # Panics
/// When it does not come to that.
pub async fn start(namespace: &Namespace, members: Value) -> String {
    let mut spec = json!({
        "image": POD_IMAGE, "transport": "streamable-http", "args": ["serve", ":3001"], "mcpPort": 3001,
    });
    if let (Some(spec), Some(members)) = (spec.as_object_mut(), members.as_object()) {
        spec.extend(members.clone());
    }
    namespace
        .apply([json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": NAME }, "spec": spec,
        })])
        .await;
    let server = wait_for_object(&namespace.api::<MCPServer>(), NAME, "its URL", DEADLINE, |server| {
        server.status.as_ref().is_some_and(|status| status.url.is_some())
    })
    .await;
    wait_for_object(&namespace.api::<Deployment>(), NAME, "the proxy's Deployment", DEADLINE, |_| true).await;
    namespace.available(NAME).await;
    server.status.and_then(|status| status.url).unwrap_or_default()
}
