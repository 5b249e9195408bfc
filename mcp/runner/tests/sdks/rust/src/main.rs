//! A server and a client made with the official Rust SDK.
//!
//! Usage: `greeter serve ADDRESS`, `greeter serve stdio`, `greeter call URL ERA`.
//! A client reads one name a line, and writes one answer a line.

use std::error::Error;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolRequestParams, ClientConfig, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ServerHandler, ServiceExt as _, tool, tool_handler, tool_router};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};
use tokio::net::TcpListener;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Greeting {
    name: String,
}

struct Greeter;

#[tool_router]
impl Greeter {
    #[tool(description = "say hi")]
    fn greet(&self, Parameters(Greeting { name }): Parameters<Greeting>) -> String {
        format!("Hi {name} from {}", std::process::id())
    }
}

#[tool_handler]
impl ServerHandler for Greeter {}

async fn serve(place: &str) -> Result<(), Box<dyn Error>> {
    if place == "stdio" {
        Greeter.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(|| Ok(Greeter), sessions, Default::default());
    let listener = TcpListener::bind(place).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn call(url: &str, era: &str) -> Result<(), Box<dyn Error>> {
    let lifecycle = match era {
        "session" => ClientLifecycleMode::Initialize,
        "stateless" => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
        _ => {
            ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None }
        }
    };
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = ClientConfig::default().serve_with_lifecycle(transport, lifecycle).await?;
    let mut names = BufReader::new(stdin()).lines();
    while let Some(name) = names.next_line().await? {
        let Value::Object(arguments) = json!({ "name": name }) else { unreachable!() };
        let call = CallToolRequestParams::new("greet").with_arguments(arguments);
        let line = match client.call_tool(call).await {
            Ok(result) => json!({ "text": serde_json::to_value(&result.content)?[0]["text"] }),
            Err(error) => json!({ "failed": error.to_string() }),
        };
        println!("{line}");
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    rustls::crypto::ring::default_provider().install_default().map_err(|_| "a TLS provider is there already")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", place] => serve(place).await,
        ["call", url, era] => call(url, era).await,
        _ => Err("usage: greeter serve ADDRESS | serve stdio | call URL ERA".into()),
    }
}
