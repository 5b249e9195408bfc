//! The tool filter as a client made with the official Rust SDK meets it, in both eras.

use portcullis_e2e::client::{Called, McpClient};
use portcullis_e2e::process::{Process, binary, everything_server};
use portcullis_e2e::stage::ready;
use portcullis_testing::free_address;
use serde_json::json;
use tokio::process::Command;

#[tokio::test]
async fn a_hidden_tool_is_neither_listed_nor_callable_in_both_eras() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("runconfig.json");
    let document = json!({
        "schema_version": "v0.1.0", "name": "tools", "transport": "stdio", "host": "127.0.0.1", "port": 0,
        "tools_filter": ["say"], "tools_override": {"greet": {"name": "say"}},
    });
    std::fs::write(&config, document.to_string()).unwrap();
    let address = free_address();
    let mut command = Command::new(binary("mcp-runner").unwrap());
    command.arg("run").arg("--config").arg(&config).args(["--listen", &address.to_string(), "--"]);
    command.arg(everything_server().unwrap());
    let mut runner = Process::start("mcp-runner", folder.path(), command).unwrap();
    ready(&mut runner, address, "/health").await.unwrap();

    // The client's library needs this option, even for a URL without TLS.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let url = format!("http://{address}/mcp");
    for client in [McpClient::connect(&url).await.unwrap(), McpClient::connect_stateless(&url).await.unwrap()] {
        assert_eq!(client.tools().await.unwrap(), ["say"]);
        assert_eq!(client.greet_by("say", "Ada").await.unwrap(), Called::Answered("Hi Ada".to_owned()));
        for tool in ["greet", "ping", "absent"] {
            let refused = Called::Refused { code: -32602, message: "tool not found".to_owned() };
            assert_eq!(client.greet_by(tool, "Ada").await.unwrap(), refused, "{tool}");
        }
        client.close().await.unwrap();
    }
    runner.stop().await.unwrap();
}
