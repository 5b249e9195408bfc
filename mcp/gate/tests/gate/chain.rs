//! What enters the chain, in which form, and what the other middleware do.

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use mcp_http::{Body, empty, full};
use serde_json::json;

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
        ("message on GET", request("GET", json, CALL), 400, "POST only"),
        ("message on DELETE", request("DELETE", json, CALL), 400, "POST only"),
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

#[tokio::test(start_paused = true)]
async fn a_client_that_never_ends_its_message_is_answered_after_half_a_minute() {
    let proxy = Proxy::new(&Files::new(), chain(vec![]));
    let mut request = post("application/json", "");
    request.headers_mut().remove("content-length");
    *request.body_mut() = StreamBody::new(futures::stream::pending()).boxed_unsync();
    let started = tokio::time::Instant::now();
    assert_eq!(proxy.send(request).await.status, 408);
    assert_eq!(started.elapsed().as_secs(), 30);
}

#[tokio::test]
async fn without_webhooks_what_is_no_message_is_not_left_to_the_backend_either() {
    let proxy = Proxy::new(&Files::new(), chain(vec![]));
    for (body, code) in [("{}", "-32600"), ("{", "-32700"), ("", "-32700")] {
        let answer = proxy.post(body).await;
        assert!(answer.status == 400 && answer.text.contains(code), "{body:?}: {answer:?}");
    }
    assert!(proxy.forwarded().is_empty());
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_whether_or_not_its_length_was_announced() {
    let entries = json!([
        {"type": "bodylimit", "parameters": {"max_bytes": 32}},
        {"type": "bodylimit", "parameters": {"max_bytes": 32}},
    ]);
    let ping = r#"{"jsonrpc":"2.0","method":"m"}"#;
    for parser in [false, true] {
        let mut entries = entries.as_array().unwrap().clone();
        if parser {
            entries.push(json!({"type": "mcp-parser", "parameters": {}}));
        }
        let proxy = Proxy::new(&Files::new(), entries.into());
        assert_eq!(proxy.post(format!("{ping:32}")).await.status, 200);
        let announced = proxy.post(format!("{ping:33}")).await;
        let mut request = post("application/json", "");
        request.headers_mut().remove("content-length");
        *request.body_mut() = chunked(&[r#"{"jsonrpc":"#, r#""2.0","method":"m"}"#, "   "]);
        let streamed = proxy.send(request).await;
        for answer in [announced, streamed] {
            assert_eq!((answer.status, answer.text.as_str()), (413, "Request Entity Too Large"), "parser {parser}");
        }
        assert_eq!(proxy.forwarded().len(), 1);
    }
}

#[tokio::test]
async fn bodies_have_64_mib_in_all_and_what_finds_no_room_is_answered_at_once() {
    let proxy = Proxy::new(&Files::new(), chain(vec![]));
    let unfinished = || {
        let most = Bytes::from(vec![b' '; (8 << 20) - 64]);
        let frames = futures::stream::iter([Ok(Frame::data(most))]).chain(futures::stream::pending());
        let mut request = post("application/json", "");
        request.headers_mut().remove("content-length");
        *request.body_mut() = StreamBody::new(frames).boxed_unsync();
        request
    };
    let mut held: Vec<_> = (0..8).map(|_| Box::pin(proxy.send(unfinished()))).collect();
    for request in &mut held {
        assert!(futures::poll!(request).is_pending());
    }
    let refused = proxy.send(unfinished()).await;
    assert_eq!((refused.status, refused.text.as_str()), (503, "Too Many Request Bodies"));
    assert_eq!(proxy.post(CALL).await.status, 200, "there is room left for a short one");
    held.clear();
    assert!(futures::poll!(Box::pin(proxy.send(unfinished()))).is_pending(), "what they held is free again");
}

#[tokio::test]
async fn a_panic_further_in_becomes_500() {
    let proxy = Proxy::new(&Files::new(), chain(vec![]));
    let request = Request::get("/panic").body(empty()).unwrap();
    let answer = proxy.send(request).await;
    assert_eq!((answer.status, answer.text.as_str()), (500, "Internal Server Error"));
}
