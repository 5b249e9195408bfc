//! The tool filter between real clients and real servers, in both eras (toolhive-runner §2.10).

use serde_json::{Value, json};

use crate::support::{INITIALIZE, Recorder, Runner, SdkClient, Server, go, node_server};

/// Shows `shown`, and the tool `real` under the name `say`.
pub(crate) fn filter(real: &str, shown: &[&str]) -> Value {
    let parameters = json!({
        "filter_tools": shown,
        "tools_override": {real: {"name": "say", "description": "Says it."}},
    });
    json!({"middleware_configs": [
        {"type": "bodylimit", "parameters": {"max_bytes": 8_388_608}},
        {"type": "auth", "parameters": {}},
        {"type": "tool-filter", "parameters": parameters},
        {"type": "tool-call-filter", "parameters": parameters},
        {"type": "mcp-parser", "parameters": {}},
        {"type": "recovery"},
    ]})
}

/// What a client of the official TypeScript SDK sees: the tools that are shown, and none that is not.
async fn sees_the_shown_tools_alone(runner: &Runner, real: &str, argument: &str, greeting: &str, hidden: &str) {
    let mut client = SdkClient::connect(&runner.url()).await;
    let listed = client.ask(json!({"do": "list"})).await;
    let tools = listed["tools"].as_array().unwrap();
    assert_eq!(tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect::<Vec<_>>(), ["say"], "{listed}");
    assert_eq!(tools[0]["description"], "Says it.");
    assert!(tools[0]["inputSchema"]["properties"][argument].is_object(), "{listed}");
    assert_eq!(client.call("say", json!({argument: "Ada"})).await, format!("{greeting}Ada"));
    for name in [real, hidden, "absent"] {
        let failed = client.fails(json!({"do": "call", "name": name, "args": {argument: "Ada"}})).await;
        assert_eq!(failed["code"], -32602, "{name}: {failed}");
        assert!(failed["failed"].as_str().unwrap().contains("tool not found"), "{name}: {failed}");
    }
}

#[tokio::test]
async fn a_client_of_the_go_server_neither_sees_nor_calls_a_hidden_tool_and_a_renamed_one_by_its_new_name_only() {
    let server = Server::go().await;
    let http = Runner::http(&server.url(), &filter("greet", &["say"])).await;
    sees_the_shown_tools_alone(&http, "greet", "name", "Hi ", "ping").await;
    let stdio = Runner::stdio(&[go().into()], &filter("greet", &["say"])).await;
    sees_the_shown_tools_alone(&stdio, "greet", "name", "Hi ", "ping").await;
}

#[tokio::test]
async fn a_client_of_the_node_server_neither_sees_nor_calls_a_hidden_tool_and_a_renamed_one_by_its_new_name_only() {
    let server = Server::node().await;
    let http = Runner::http(&server.url(), &filter("echo", &["say"])).await;
    sees_the_shown_tools_alone(&http, "echo", "message", "Echo: ", "get-sum").await;
    let stdio = Runner::stdio(&["node".into(), node_server().into(), "stdio".into()], &filter("echo", &["say"])).await;
    sees_the_shown_tools_alone(&stdio, "echo", "message", "Echo: ", "get-sum").await;
}

#[tokio::test]
async fn in_the_stateless_era_the_same_tools_are_seen_and_called() {
    // Over HTTP the Go server is not stateless; one of our own in front of its process is.
    let stateless = Runner::stdio(&[go().into()], &json!({})).await;
    let runners = [
        Runner::http(&stateless.url(), &filter("greet", &["say"])).await,
        Runner::stdio(&[go().into()], &filter("greet", &["say"])).await,
    ];
    for runner in &runners {
        let ask = async |method: &str, name: Option<&str>, mut params: Value| {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            });
            let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
            let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
            headers.extend(name.map(|name| ("mcp-name", name)));
            runner.post(&headers, &message).await
        };
        let listed = ask("tools/list", None, json!({})).await;
        let tools = listed.message()["result"]["tools"].clone();
        assert_eq!(tools.as_array().unwrap().len(), 1, "{listed:?}");
        assert_eq!((&tools[0]["name"], &tools[0]["description"]), (&json!("say"), &json!("Says it.")));
        let call =
            async |name| ask("tools/call", Some(name), json!({"name": name, "arguments": {"name": "Ada"}})).await;
        // The server compares `Mcp-Name` with the body: the header follows the real name.
        let said = call("say").await;
        assert_eq!(said.message()["result"]["content"][0]["text"], "Hi Ada", "{said:?}");
        for name in ["greet", "ping"] {
            let refused = call(name).await;
            let error = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "tool not found"}});
            assert_eq!((refused.status, refused.message()), (200, error), "{name}");
        }
    }
}

#[tokio::test]
async fn a_list_that_cannot_be_filtered_is_withheld_and_nothing_of_a_call_is_lost() {
    let mut backend = Recorder::start().await;
    let members = json!({
        "middleware_configs": [], "tools_filter": ["say", "other"], "tools_override": {"greet": {"name": "say"}},
    });
    let runner = Runner::http(&backend.url(), &members).await;
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let withheld = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32603, "message": "internal error"}});
    for (headers, body) in [
        ("", r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"say","NAME":"hidden"}]}}"#),
        ("", r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"hid"#),
        ("content-encoding: gzip\r\n", r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[]}}"#),
    ] {
        let answer = async {
            let request = backend.next().await;
            assert_eq!(request.header("accept-encoding"), None, "{}", request.head);
            request.json("200 OK", headers, body).await;
        };
        let (answer, ()) = tokio::join!(runner.post(&[("accept-encoding", "gzip")], list), answer);
        assert_eq!((answer.status, answer.message(), answer.header("content-encoding")), (500, withheld.clone(), None));
    }

    let call = r#"{"jsonrpc":"2.0", "id":1e0,"method":"tools/call","params":{"arguments":{"n":1.50,"name":"say"},"name":"say"}}"#
        .replace("1e0", "7");
    let seen = async {
        let request = backend.next().await;
        let body = String::from_utf8(request.body.clone()).unwrap();
        assert_eq!(request.header("content-length"), Some(body.len().to_string().as_str()));
        request.json("200 OK", "", r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#).await;
        body
    };
    let (answer, body) = tokio::join!(runner.post(&[], &call), seen);
    assert_eq!(answer.status, 200);
    assert_eq!(body, call.replace(r#""name":"say"}}"#, r#""name":"greet"}}"#));
    // What is hidden does not reach the server.
    let hidden = call.replace(r#""name":"say"}}"#, r#""name":"greet"}}"#);
    assert_eq!(runner.post(&[], &hidden).await.message()["error"]["message"], "tool not found");
    let accept = [("content-type", "application/json"), ("accept", "text/event-stream")];
    let bare = runner.request(http::Method::POST, "/mcp", &accept, &hidden).await;
    assert_eq!((bare.status, bare.body.as_str()), (400, ""));
    assert!(backend.is_quiet());
    // `initialize` is no list, however much it says of tools.
    let initialized = async {
        let answer = r#"{"jsonrpc":"2.0","id":"init","result":{"capabilities":{"tools":{"listChanged":true}}}}"#;
        backend.next().await.json("200 OK", "", answer).await;
    };
    let (answer, ()) = tokio::join!(runner.post(&[], INITIALIZE), initialized);
    assert_eq!(answer.message()["result"]["capabilities"]["tools"]["listChanged"], true);
}
