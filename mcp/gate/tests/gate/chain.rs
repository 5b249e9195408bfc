//! The requests that enter the chain, and the effects of the other middleware.

use std::task::Poll;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use mcp_http::{Body, empty, full};
use serde_json::{Value, json};

use crate::endpoint::{Endpoint, Reply};
use crate::support::{CALL, Files, Proxy, authority, chain, entry, local_server, post, webhook};

/// A `ping` in UTF-8; a `tools/call` to a server that is told to read UTF-7.
const UTF_7: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping","x":"+ACIALAAiAG0AZQB0AGgAbwBkACIAOgAi-tools/call"}"#;

/// A proxy with a webhook of each kind that allows everything.
async fn guarded() -> (Proxy, Endpoint) {
    let (files, ca) = (Files::new(), authority("ours"));
    files.write("/ca.crt", ca.cert_pem());
    let endpoint = Endpoint::start(Some(local_server(&ca)), |_| Reply::allow()).await;
    let hook = webhook(&endpoint.url, "fail", json!({}));
    let entries = ["mutating-webhook", "validating-webhook"].map(|kind| entry(kind, vec![hook.clone()])).to_vec();
    (Proxy::new(&files, chain(entries)), endpoint)
}

fn chunked(parts: &[&'static str]) -> Body {
    let parts: Vec<_> = parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes())))).collect();
    StreamBody::new(futures::stream::iter(parts)).boxed_unsync()
}

#[tokio::test]
async fn nothing_that_the_webhooks_could_not_read_reaches_the_backend() {
    let (proxy, endpoint) = guarded().await;
    let request = |method: &str, content_type: &[&str], body: &str| {
        let mut request = Request::builder().method(method).uri("/mcp");
        for value in content_type {
            request = request.header("content-type", *value);
        }
        request.body(full(body.to_owned())).unwrap()
    };
    let json = &["application/json"];
    let batch = "{\"error\":{\"code\":-32600,\"message\":\"JSON-RPC batch requests are not supported (batching was \
                 removed in MCP revision 2025-06-18)\"},\"jsonrpc\":\"2.0\"}";
    let mismatch = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32020,"#;
    let named = |name: &'static str, values: &[&'static str]| {
        let mut request = request("POST", json, CALL);
        for value in values {
            request.headers_mut().append(name, HeaderValue::from_static(value));
        }
        request
    };
    let mut encoded = request("POST", json, CALL);
    encoded.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    let mut sse = request("POST", json, "x");
    *sse.uri_mut() = "/sse".parse().unwrap();
    for (what, request, status, text) in [
        ("text", request("POST", &["text/plain"], CALL), 415, "application/json"),
        ("no type", request("POST", &[], CALL), 415, "application/json"),
        ("two types", request("POST", &["application/json", "text/plain"], CALL), 415, "application/json"),
        ("type that begins alike", request("POST", &["application/json-seq"], CALL), 415, "application/json"),
        ("another charset", request("POST", &["application/json; charset=utf-7"], UTF_7), 415, "application/json"),
        (
            "a second charset",
            request("POST", &["application/json;charset=utf-8;Charset=\"UTF-7\""], UTF_7),
            415,
            "application/json",
        ),
        ("extended charset", request("POST", &["application/json; charset*=''utf-7"], UTF_7), 415, "application/json"),
        ("coded content", encoded, 415, "application/json"),
        ("another method in the header", named("mcp-method", &["tools/list"]), 400, mismatch),
        ("another name in the header", named("mcp-name", &["other"]), 400, mismatch),
        ("a second name in the headers", named("mcp-name", &["echo", "other"]), 400, mismatch),
        ("batch", request("POST", json, &format!(" [{CALL}]")), 400, batch),
        ("not JSON", request("POST", json, "{"), 400, "-32700"),
        ("no message", request("POST", json, "{}"), 400, "not a JSON-RPC message"),
        ("nothing", request("POST", json, ""), 400, "not a JSON-RPC message"),
        (
            "two methods",
            request("POST", json, r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#),
            400,
            "ambiguous",
        ),
        (
            "null id",
            request("POST", json, r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#),
            400,
            "not a JSON-RPC message",
        ),
        (
            "request with a result",
            request("POST", json, r#"{"jsonrpc":"2.0","id":1,"method":"a","result":1}"#),
            400,
            "",
        ),
        ("path that ends in /sse", sse, 400, "not a JSON-RPC message"),
        ("message on GET", request("GET", json, CALL), 400, "request body is only accepted on POST"),
        ("message on DELETE", request("DELETE", json, CALL), 400, "request body is only accepted on POST"),
        ("PUT", request("PUT", json, CALL), 405, "Method Not Allowed"),
    ] {
        let answer = proxy.send(request).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert!(answer.text.contains(text), "{what}: {answer:?}");
    }
    assert!(proxy.forwarded().is_empty());
    assert!(endpoint.calls().is_empty());
}

#[tokio::test]
async fn every_method_is_reviewed_and_responses_and_requests_without_a_body_are_not() {
    let (proxy, endpoint) = guarded().await;
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    ] {
        let before = endpoint.calls().len();
        assert_eq!(proxy.post(body).await.status, 200);
        assert_eq!(endpoint.calls().len(), before + 2, "{body}");
    }
    let before = endpoint.calls().len();
    assert_eq!(proxy.post(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await.status, 200);
    for method in ["GET", "DELETE"] {
        let request = Request::builder().method(method).uri("/mcp").body(empty()).unwrap();
        assert_eq!(proxy.send(request).await.status, 200);
    }
    assert_eq!(endpoint.calls().len(), before);
    assert_eq!(proxy.forwarded().len(), 6);
}

#[tokio::test]
async fn a_body_in_pieces_is_reviewed_whole() {
    let (proxy, endpoint) = guarded().await;
    let mut request = post("application/json", "");
    request.headers_mut().remove("content-length");
    let (start, end) = CALL.split_at(40);
    *request.body_mut() = chunked(&[start, end]);
    assert_eq!(proxy.send(request).await.status, 200);
    assert_eq!(endpoint.calls()[0].json()["mcp_request"]["id"], 7);
    assert_eq!(proxy.forwarded()[0].body, CALL);
}

/// The operator's chain, and one in which no middleware reads messages.
fn with_and_without_parser() -> [Value; 2] {
    [chain(vec![]), json!([{"type": "bodylimit", "parameters": {}}, {"type": "auth", "parameters": {}}])]
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_ends_its_message_is_answered_after_the_read_timeout_whoever_reads_it() {
    for entries in with_and_without_parser() {
        let proxy = Proxy::new(&Files::new(), entries.clone());
        let mut request = post("application/json", "");
        request.headers_mut().remove("content-length");
        *request.body_mut() = StreamBody::new(futures::stream::pending()).boxed_unsync();
        let started = tokio::time::Instant::now();
        assert_eq!(proxy.send(request).await.status, 408, "{entries}");
        assert_eq!(started.elapsed().as_secs(), 30, "{entries}");
    }
}

#[tokio::test]
async fn what_is_no_message_does_not_reach_the_backend_without_webhooks_either() {
    let proxy = Proxy::new(&Files::new(), chain(vec![]));
    for (body, code, id) in [
        ("", -32700, Value::Null),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}{}"#, -32700, Value::Null),
        ("{}", -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":{"b":1,"B":2}}}"#, -32600, json!(1)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1e1000}}"#, -32600, json!(1)),
    ] {
        let answer = proxy.post(body).await;
        let error: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!((answer.status, &error["error"]["code"], &error["id"]), (400, &json!(code), &id), "{body}: {error}");
    }
    assert!(proxy.forwarded().is_empty());
}

#[tokio::test]
async fn a_byte_order_mark_does_not_reach_the_backend() {
    let (proxy, endpoint) = guarded().await;
    assert_eq!(proxy.post(format!("\u{feff}{CALL}")).await.status, 200);
    assert_eq!(endpoint.calls()[0].json()["mcp_request"]["id"], 7);
    let forwarded = proxy.forwarded().remove(0);
    assert_eq!(forwarded.body, CALL);
    assert_eq!(forwarded.headers["content-length"], CALL.len().to_string());
}

#[tokio::test]
async fn a_body_that_breaks_off_is_no_fault_of_the_proxy() {
    for (entries, text) in with_and_without_parser().into_iter().zip(["-32600", "Invalid request body"]) {
        let proxy = Proxy::new(&Files::new(), entries);
        let mut request = post("application/json", "");
        let frames = [Ok(Frame::data(Bytes::from_static(b"{"))), Err("broken".into())];
        *request.body_mut() = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
        let answer = proxy.send(request).await;
        assert_eq!(answer.status, 400);
        assert!(answer.text.contains(text), "{answer:?}");
        assert!(proxy.forwarded().is_empty());
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_whether_or_not_its_length_was_announced() {
    let body = r#"{"jsonrpc":"2.0","method":"a"}"#;
    let entries = json!([
        {"type": "bodylimit", "parameters": {"max_bytes": body.len()}},
        {"type": "bodylimit", "parameters": {"max_bytes": body.len()}},
    ]);
    for parser in [false, true] {
        let mut entries = entries.as_array().unwrap().clone();
        if parser {
            entries.push(json!({"type": "mcp-parser", "parameters": {}}));
        }
        let proxy = Proxy::new(&Files::new(), entries.into());
        assert_eq!(proxy.post(body).await.status, 200);
        let announced = proxy.post(format!("{body} ")).await;
        let mut request = post("application/json", "");
        request.headers_mut().remove("content-length");
        *request.body_mut() = chunked(&[body, " "]);
        let streamed = proxy.send(request).await;
        for answer in [announced, streamed] {
            assert_eq!((answer.status, answer.text.as_str()), (413, "Request Entity Too Large"), "parser {parser}");
        }
        assert_eq!(proxy.forwarded().len(), 1);
    }
}

/// A request whose body begins and does not end.
fn unfinished(start: &Bytes) -> Request<Body> {
    let frames = futures::stream::iter([Ok(Frame::data(start.clone()))]).chain(futures::stream::pending());
    let mut request = post("application/json", "");
    request.headers_mut().remove("content-length");
    *request.body_mut() = StreamBody::new(frames).boxed_unsync();
    request
}

#[tokio::test]
async fn slow_uploads_do_not_keep_a_quick_client_out() {
    let (hog, other) = ([10, 244, 0, 9], [10, 244, 0, 10]);
    // As much as is allowed, so that four take all that one client may, and little.
    for (length, all_wait) in [(8 << 20, false), (1 << 10, true)] {
        for entries in with_and_without_parser() {
            let proxy = Proxy::new(&Files::new(), entries.clone());
            let start = Bytes::from(vec![b' '; length]);
            let mut uploads: Vec<_> = (0..200).map(|_| Box::pin(proxy.send_from(hog, unfinished(&start)))).collect();
            let mut waiting = Vec::new();
            for upload in &mut uploads {
                match futures::poll!(upload.as_mut()) {
                    Poll::Pending => waiting.push(upload),
                    Poll::Ready(answer) => {
                        assert_eq!((answer.status, answer.text.as_str()), (503, "Too Many Request Bodies"));
                    }
                }
            }
            assert_eq!(waiting.len() == 200, all_wait, "{length}, {entries}: {} wait", waiting.len());
            assert!(waiting.len() > 1, "one client may send several at once");
            for client in [hog, other] {
                let quick = proxy.send_from(client, post("application/json", CALL)).await;
                assert_eq!(quick.status, 200, "{client:?} beside uploads of {length}, {entries}: {quick:?}");
            }
            // Their memory is free again.
            drop(uploads);
            assert!(futures::poll!(Box::pin(proxy.send_from(other, unfinished(&start)))).is_pending());
        }
    }
}

#[tokio::test]
async fn a_body_limit_of_any_size_does_not_panic() {
    for limit in [u64::from(u32::MAX) << 3, i64::MAX as u64] {
        let entries = json!([{"type": "bodylimit", "parameters": {"max_bytes": limit}}, {"type": "mcp-parser", "parameters": {}}]);
        let proxy = Proxy::new(&Files::new(), entries);
        assert_eq!(proxy.post(CALL).await.status, 200, "{limit}");
    }
}

#[tokio::test]
async fn a_panic_further_in_becomes_500() {
    let proxy = Proxy::new(&Files::new(), chain(vec![]));
    let request = Request::get("/panic").body(empty()).unwrap();
    let answer = proxy.send(request).await;
    assert_eq!((answer.status, answer.text.as_str()), (500, "Internal Server Error"));
}
