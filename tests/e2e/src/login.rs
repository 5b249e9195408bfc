//! The login of the examples: a running identity provider, and the manifests pointed at it.

use anyhow::Result;
use portcullis_identity::Provider;
use serde_json::{Value, json};

use crate::gate::in_namespace;

/// Where the example says its identity provider is; a run of its own has it on a loopback port, without TLS.
const EXAMPLE_ISSUER: &str = "https://login.example";
const EXAMPLE: &str = include_str!("../../../examples/login.yaml");

/// The audience that a token must have to open the server of the example.
pub const AUDIENCE: &str = "https://greeter.example/mcp";

/// The manifests of examples/login.yaml in `namespace`, with the real issuer: the MCPOIDCConfig, and the MCPServer that refers to it.
pub fn manifests(provider: &Provider, namespace: &str) -> Result<Vec<Value>> {
    let mut objects = in_namespace(&EXAMPLE.replace(EXAMPLE_ISSUER, provider.issuer()), namespace)?;
    objects[0]["spec"]["inline"]["insecureAllowHTTP"] = json!(provider.issuer().starts_with("http:"));
    Ok(objects)
}
