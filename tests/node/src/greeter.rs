//! The MCP server that the tests call, behind a proxy, over each transport.

use k8s_openapi::api::apps::v1::Deployment;
use mcp_api::v1beta1::MCPServer;
use portcullis_testing::wait_for_object;
use serde_json::{Value, json};

use crate::Namespace;
use crate::node::{DEADLINE, POD_IMAGE};

/// Its name, and that of its proxy's Deployment.
pub const NAME: &str = "greeter";

/// A way from clients to an MCP server.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Name in objects and in tables.
    pub name: &'static str,
    /// `spec.transport` and `spec.proxyMode`.
    transport: &'static str,
    mode: &'static str,
    /// The transport of its clients.
    pub client: &'static str,
    /// The MCP eras of its clients.
    pub eras: &'static [&'static str],
}

/// Streamable HTTP all the way.
pub const STREAMABLE: Route = Route {
    name: "streamable",
    transport: "streamable-http",
    mode: "streamable-http",
    client: "streamable",
    eras: &["legacy", "stateless"],
};
/// A stdio server whose clients speak streamable HTTP.
pub const STDIO: Route = Route { name: "stdio", transport: "stdio", ..STREAMABLE };
/// HTTP with server-sent events all the way. MCP 2026-07-28 does not have it.
pub const SSE: Route = Route { name: "sse", transport: "sse", mode: "sse", client: "sse", eras: &["legacy"] };
/// A stdio server whose clients speak HTTP with server-sent events.
pub const STDIO_BEHIND_SSE: Route = Route { name: "stdio-sse", transport: "stdio", ..SSE };

/// Every way that there is.
pub const ROUTES: [Route; 4] = [STREAMABLE, STDIO, SSE, STDIO_BEHIND_SSE];

impl Route {
    /// The spec of a server on it, with these members beside.
    pub fn spec(&self, members: Value) -> Value {
        let mut spec = match self.transport {
            "stdio" => json!({ "args": ["serve", "stdio"] }),
            "sse" => json!({ "args": ["serve", "sse", ":3001"], "mcpPort": 3001 }),
            _ => json!({ "args": ["serve", ":3001"], "mcpPort": 3001 }),
        };
        spec["image"] = json!(POD_IMAGE);
        spec["transport"] = json!(self.transport);
        spec["proxyMode"] = json!(self.mode);
        if let (Some(spec), Value::Object(members)) = (spec.as_object_mut(), members) {
            spec.extend(members);
        }
        spec
    }
}

/// The MCPServer of this name and spec.
pub fn manifest(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": name }, "spec": spec,
    })
}

/// Applies the MCPServer [`NAME`] over streamable HTTP with these members of its spec, and returns its URL when its proxy serves.
///
/// # Panics
/// When it does not come to that.
pub async fn start(namespace: &Namespace, members: Value) -> String {
    start_on(namespace, &STREAMABLE, members).await
}

/// [`start`] on another route.
///
/// # Panics
/// When it does not come to that.
pub async fn start_on(namespace: &Namespace, route: &Route, members: Value) -> String {
    namespace.apply([manifest(NAME, route.spec(members))]).await;
    ready(namespace, NAME).await
}

/// Returns the URL of an MCPServer when its proxy serves.
///
/// # Panics
/// When it does not come to that.
pub async fn ready(namespace: &Namespace, name: &str) -> String {
    let server = wait_for_object(&namespace.api::<MCPServer>(), name, "its URL", DEADLINE, |server| {
        server.status.as_ref().is_some_and(|status| status.url.is_some())
    })
    .await;
    wait_for_object(&namespace.api::<Deployment>(), name, "the proxy's Deployment", DEADLINE, |_| true).await;
    namespace.available(name).await;
    server.status.and_then(|status| status.url).unwrap_or_default()
}
