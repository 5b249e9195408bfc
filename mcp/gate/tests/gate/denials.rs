//! The record of a refusal, as an outer middleware sees it.

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};
use http::{Method, Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use mcp_http::{Body, BoxError, BoxService, full};
use mcp_middleware::{Middleware, Next};
use mcp_runconfig::NoParameters;
use serde_json::{Value, json};

use crate::support::{CALL, Files, configs, entry, post, webhook};

/// The refused caller and the refusing middleware, as an outer middleware sees them.
struct Audit(Arc<Mutex<Vec<Option<String>>>>);

impl Middleware for Audit {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let context = next.context();
        Box::pin(async move {
            let response = next.call(request).await;
            let denial = context.denial();
            assert!(denial.as_ref().is_none_or(|denial| !denial.reason.is_empty()), "{denial:?}");
            self.0.lock().unwrap().push(denial.map(|denial| denial.middleware.to_string()));
            response
        })
    }
}

/// Makes another request of what it is given.
struct Rewrite;

impl Middleware for Rewrite {
    fn call<'a>(&'a self, mut request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        *request.method_mut() = Method::POST;
        next.call(request)
    }
}

/// A request whose length nobody announced.
fn chunked(pieces: Vec<Result<&'static str, BoxError>>, more: bool) -> Request<Body> {
    let pieces = stream::iter(pieces).map(|piece| piece.map(|piece| Frame::data(Bytes::from(piece))));
    let body = if more { pieces.chain(stream::pending()).boxed() } else { pieces.boxed() };
    Request::post("/mcp").header("content-type", "application/json").body(Body::new(StreamBody::new(body))).unwrap()
}

/// Answers with an encoded body, which no filter can read.
async fn serve(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    assert!(request.uri().path() != "/panic", "the backend's own fault");
    Ok(Response::builder().header("content-encoding", "gzip").body(full("zipped")).unwrap())
}

#[tokio::test]
async fn no_refusal_is_hidden_from_the_middleware_outside_of_it() {
    let (files, denials) = (Files::new(), Arc::new(Mutex::new(Vec::new())));
    let mut registry = mcp_gate::registry();
    let seen = Arc::clone(&denials);
    registry.register("audit", move |_: NoParameters, _| ready(Ok(Audit(Arc::clone(&seen)))));
    registry.register("rewrite", |_: NoParameters, _| ready(Ok(Rewrite)));
    let [limit, parser] =
        [json!({"type": "bodylimit", "parameters": {"max_bytes": 200}}), json!({"type": "mcp-parser"})];
    let tools = |kind: &str| json!({"type": kind, "parameters": {"filter_tools": ["other"]}});
    let hook = webhook("http://127.0.0.1:1/", "fail", json!({"tls_config": {"insecure_skip_verify": true}}));
    let get = || Request::get("/mcp").body(full(Bytes::new())).unwrap();
    let broken = || chunked(vec![Ok("{"), Err("reset".into())], false);
    let long: &str = Box::leak(format!("{CALL}{}", " ".repeat(300)).into_boxed_str());
    let mut panic = post("application/json", CALL);
    *panic.uri_mut() = "/panic".parse().unwrap();
    let mut mismatch = post("application/json", CALL);
    mismatch.headers_mut().insert("mcp-method", "tools/list".parse().unwrap());
    let post = |body: &'static str| post("application/json", body);
    for (what, entries, request, status, denied) in [
        ("nothing", json!([limit, parser]), post(CALL), 200, None),
        ("no JSON", json!([limit, parser]), post("x"), 400, Some("mcp-parser")),
        ("another header", json!([limit, parser]), mismatch, 400, Some("mcp-parser")),
        ("too long", json!([limit, parser]), post(long), 413, Some("bodylimit")),
        (
            "too long, not announced",
            json!([limit, parser]),
            chunked(vec![Ok(CALL), Ok(long)], false),
            413,
            Some("bodylimit"),
        ),
        (
            "too long for the transport",
            json!([limit]),
            chunked(vec![Ok(CALL), Ok(long)], false),
            413,
            Some("bodylimit"),
        ),
        ("too slow", json!([parser]), chunked(vec![Ok("{")], true), 408, Some("body")),
        ("broken off", json!([parser]), broken(), 400, Some("body")),
        ("broken off for the transport", json!([]), broken(), 400, Some("body")),
        ("hidden", json!([tools("tool-call-filter"), parser]), post(CALL), 200, Some("tool-call-filter")),
        ("withheld", json!([tools("tool-filter"), parser]), post(CALL), 500, Some("tool-filter")),
        (
            "failed",
            json!([parser, entry("mutating-webhook", vec![hook.clone()])]),
            post(CALL),
            500,
            Some("mutating-webhook"),
        ),
        (
            "unread",
            json!([parser, {"type": "rewrite"}, entry("validating-webhook", vec![hook])]),
            get(),
            400,
            Some("validating-webhook"),
        ),
        ("panicked", json!([parser, {"type": "recovery"}]), panic, 500, Some("recovery")),
    ] {
        let entries: Vec<Value> =
            std::iter::once(json!({"type": "audit"})).chain(entries.as_array().unwrap().clone()).collect();
        let mut settings = files.settings();
        settings.read_timeout = Duration::from_millis(50);
        let chain = registry.build(&configs(entries.into()), settings).await.unwrap_or_else(|error| panic!("{error}"));
        let context = chain.context(([10, 0, 0, 9], 4711).into());
        let response = chain.serve(&context, request, &BoxService::new(tower::service_fn(serve))).await;
        assert_eq!(response.status(), status, "{what}");
        assert_eq!(denials.lock().unwrap().pop().flatten().as_deref(), denied, "{what}");
    }
}
