//! The stateless era in front of a process: what a server behind a pipe cannot check of HTTP.

use serde_json::json;
use tempfile::TempDir;

use crate::stdio::{kill, recorded};
use crate::support::{Runner, go};

pub(crate) const META: &str =
    r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// Lists one tool, whose argument `region` travels in a header, and answers everything else with an empty result.
const SERVER: &str = r#"while read -r line; do id=${line#*'"id":'}; id=${id%%,*}; case $line in
    *tools/list*) result='{"tools":[{"name":"t","inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}';;
    *) result='{}';;
    esac; echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'; done"#;

fn request(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{META}{params}}}}}"#)
}

#[tokio::test]
async fn a_modern_request_whose_headers_do_not_say_what_it_says_does_not_reach_the_process() {
    let runner = Runner::stdio(&["sh".into(), "-c".into(), SERVER.into()], &json!({})).await;
    let list = request("tools/list", "");
    let call = request("tools/call", r#","name":"t","arguments":{"region":"eu"}"#);
    let read = request("resources/read", r#","uri":"file:///a""#);
    let [method_list, method_call] = ["tools/list", "tools/call"].map(|method| ("mcp-method", method));
    let (name, region) = (("mcp-name", "t"), ("mcp-param-region", "eu"));
    for (body, headers, status, code) in [
        (&list, vec![], 400, -32020),
        (&call, vec![method_call], 400, -32020),
        (&read, vec![("mcp-method", "resources/read")], 400, -32020),
        // Nothing is known of a tool that nobody has listed.
        (&call, vec![method_call, name], 200, 0),
        (&list, vec![method_list], 200, 0),
        (&call, vec![method_call, name], 400, -32020),
        (&call, vec![method_call, name, ("mcp-param-region", "us")], 400, -32020),
        (&call, vec![method_call, name, region], 200, 0),
        (&call, vec![method_call, name, region, ("mcp-param-other", "x")], 200, 0),
    ] {
        let mut all = vec![("mcp-protocol-version", "2026-07-28")];
        all.extend_from_slice(&headers);
        let answer = runner.post(&all, body).await;
        assert_eq!(answer.status, status, "{headers:?} {body}: {answer:?}");
        assert_eq!(answer.message()["error"]["code"].as_i64().unwrap_or(0), code, "{headers:?} {body}: {answer:?}");
    }
}

#[tokio::test]
async fn subscriptions_of_the_legacy_era_are_no_methods_of_the_modern_one() {
    let runner = Runner::stdio(&["sh".into(), "-c".into(), SERVER.into()], &json!({})).await;
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", "file:///a")];
        let answer = runner.post(&headers, &request(method, r#","uri":"file:///a""#)).await;
        assert_eq!((answer.status, &answer.message()["error"]["code"]), (404, &json!(-32601)), "{answer:?}");
    }
}

/// Serves the era of its first message alone, as processes of the Python SDK do.
const ONE_ERA: &str = r#"era=; while read -r line; do case $line in *'"id":'*) ;; *) continue;; esac
    id=${line#*'"id":'}; id=${id%%,*}; case $line in *2026-07-28*) now=modern;; *) now=legacy;; esac
    if [ "${era:=$now}" = $now ]; then says='"result":{"era":"'$era'"}'; else says='"error":{"code":-32600,"message":"not my era"}'; fi
    echo '{"jsonrpc":"2.0","id":'"$id,$says}"; done"#;

#[tokio::test]
async fn a_modern_client_that_comes_first_locks_no_legacy_client_out() {
    let runner = Runner::stdio(&["sh".into(), "-c".into(), ONE_ERA.into()], &json!({})).await;
    let modern = |method| [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    // Clients of both eras go on with a handshake after this; others learn why they are not served.
    let discovered = runner.post(&modern("server/discover"), &request("server/discover", "")).await;
    assert_eq!(discovered.message()["error"]["code"], -32600, "{discovered:?}");
    let listed = runner.post(&modern("tools/list"), &request("tools/list", "")).await;
    assert_eq!((listed.status, &listed.message()["error"]["code"]), (400, &json!(-32022)), "{listed:?}");
    assert_eq!(listed.message()["error"]["data"]["requested"], "2026-07-28");
    let session = runner.session().await;
    let list = r#"{"jsonrpc":"2.0","id":8,"method":"tools/list"}"#;
    let listed = runner.post(&[("mcp-session-id", &session)], list).await;
    assert_eq!(listed.message()["result"]["era"], "legacy", "{listed:?}");
}

/// A process of the Go SDK answers calls of the Modern era as those of the other until it is asked for that era.
#[tokio::test]
async fn a_process_that_serves_both_eras_serves_both_after_a_restart_too() {
    let directory = TempDir::new().unwrap();
    let command = recorded(directory.path(), &format!("'{}'", go().display()));
    let runner = Runner::stdio(&command, &json!({})).await;
    let session = runner.session().await;
    let call = request("tools/call", r#","name":"greet","arguments":{"name":"Ada"}"#);
    let modern = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "greet")];
    for restart in [false, true] {
        if restart {
            kill(directory.path());
            runner.logged("opening it again after a pause").await;
        }
        let called = runner.post(&modern, &call).await;
        assert_eq!(called.message()["result"]["resultType"], "complete", "{called:?}");
        let call =
            r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}"#;
        let called = runner.post(&[("mcp-session-id", &session)], call).await;
        assert_eq!(called.message()["result"]["content"][0]["text"], "Hi Ada", "{called:?}");
    }
}

#[tokio::test]
async fn a_process_that_a_modern_client_used_first_serves_legacy_clients_too() {
    let runner = Runner::stdio(&[go().into()], &json!({})).await;
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    let listed = runner.post(&headers, &request("tools/list", "")).await;
    assert!(listed.message()["result"]["tools"].is_array(), "{listed:?}");

    let initialize = r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-06-18",
        "capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let opened = runner.post(&[], initialize).await;
    let answer = opened.message();
    assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!(7), &json!("2025-06-18")), "{opened:?}");
    assert!(answer["result"]["capabilities"]["tools"].is_object(), "{opened:?}");
    assert!(answer["result"]["serverInfo"]["name"].is_string(), "{opened:?}");
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let legacy = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-06-18")];
    let initialized = runner.post(&legacy, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    assert_eq!(initialized.status, 202, "{initialized:?}");
    let again = runner.post(&legacy, r#"{"jsonrpc":"2.0","id":8,"method":"tools/list"}"#).await;
    assert_eq!(again.message()["result"]["tools"], listed.message()["result"]["tools"], "{again:?}");
}
