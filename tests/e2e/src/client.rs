//! An MCP client made with the official Rust SDK.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rmcp::ServiceExt as _;
use rmcp::model::{CallToolRequestParams, ClientConfig, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _, RoleClient, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};

/// The deadline of one call.
const CALL: Duration = Duration::from_mins(1);

/// A connected MCP client.
#[derive(Debug)]
pub struct McpClient {
    service: RunningService<RoleClient, ClientConfig>,
}

/// The outcome of a tool call.
#[derive(Debug, PartialEq, Eq)]
pub enum Called {
    /// The tool answered with this text.
    Answered(String),
    /// The call was refused on its way.
    Refused {
        /// JSON-RPC error code.
        code: i32,
        /// JSON-RPC error message.
        message: String,
    },
}

impl McpClient {
    /// Connects to the streamable HTTP endpoint `url`.
    pub async fn connect(url: &str) -> Result<Self> {
        let transport = StreamableHttpClientTransport::from_uri(url);
        let connecting = ClientConfig::default().serve(transport);
        let service =
            tokio::time::timeout(CALL, connecting).await.context("the MCP server did not answer in time")??;
        Ok(Self { service })
    }

    /// Connects to `url` and shows `token` with each request.
    pub async fn connect_as(url: &str, token: &str) -> Result<Self> {
        let config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(token);
        let connecting = ClientConfig::default().serve(StreamableHttpClientTransport::from_config(config));
        let service =
            tokio::time::timeout(CALL, connecting).await.context("the MCP server did not answer in time")??;
        Ok(Self { service })
    }

    /// Connects to `url` in the stateless era: no handshake, no session.
    pub async fn connect_stateless(url: &str) -> Result<Self> {
        let transport = StreamableHttpClientTransport::from_uri(url);
        let lifecycle = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
        let connecting = ClientConfig::default().serve_with_lifecycle(transport, lifecycle);
        let service =
            tokio::time::timeout(CALL, connecting).await.context("the MCP server did not answer in time")??;
        Ok(Self { service })
    }

    /// The names of the server's tools.
    pub async fn tools(&self) -> Result<Vec<String>> {
        let tools =
            tokio::time::timeout(CALL, self.service.list_all_tools()).await.context("tools/list took too long")??;
        Ok(tools.into_iter().map(|tool| tool.name.into_owned()).collect())
    }

    /// Calls the `greet` tool of the `everything` server.
    pub async fn greet(&self, name: &str) -> Result<Called> {
        self.greet_by("greet", name).await
    }

    /// Calls a tool that takes what `greet` does.
    pub async fn greet_by(&self, tool: &'static str, name: &str) -> Result<Called> {
        let Value::Object(arguments) = json!({ "name": name }) else { bail!("arguments are an object") };
        let call = CallToolRequestParams::new(tool).with_arguments(arguments);
        match tokio::time::timeout(CALL, self.service.call_tool(call)).await.context("tools/call took too long")? {
            Ok(result) => {
                let content = serde_json::to_value(&result.content)?;
                let text = content[0]["text"].as_str().with_context(|| format!("no text in {content}"))?;
                Ok(Called::Answered(text.to_owned()))
            }
            Err(ServiceError::McpError(error)) => {
                Ok(Called::Refused { code: error.code.0, message: error.message.into_owned() })
            }
            // A refusal comes as HTTP 403 with a JSON-RPC error. This SDK hands such an answer on as an error of the transport, body included.
            Err(ServiceError::TransportSend(error)) => {
                let text = error.to_string();
                let body = text.find('{').and_then(|start| serde_json::from_str::<Value>(&text[start..]).ok());
                let error = body.and_then(|body| body.get("error").cloned()).with_context(|| text.clone())?;
                let code =
                    error["code"].as_i64().and_then(|code| i32::try_from(code).ok()).with_context(|| text.clone())?;
                Ok(Called::Refused { code, message: error["message"].as_str().unwrap_or_default().to_owned() })
            }
            Err(other) => Err(other.into()),
        }
    }

    /// Ends the session.
    pub async fn close(self) -> Result<()> {
        self.service.cancel().await?;
        Ok(())
    }
}
