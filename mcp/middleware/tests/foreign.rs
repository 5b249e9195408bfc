//! A middleware and a transport of another crate, in a chain with those of `mcp-gate`.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use mcp_http::{Body, BoxService, collect, full};
use mcp_middleware::{Chain, Middleware, Next, ProxySettings, Registry, RequestContext};
use mcp_runconfig::MiddlewareConfig;
use serde::Deserialize;
use serde_json::{Value, json};

/// Parameters that only serde knows.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditParameters {
    label: String,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    limit: u8,
}

/// An audit record, one line for each request.
struct Audit {
    label: String,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Middleware for Audit {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let context = next.context();
        assert!(context.message().is_none() && context.identity().is_none(), "nobody has found anything yet");
        Box::pin(async move {
            let response = next.call(request).await;
            let message = context.message().map(|message| String::from_utf8(message.body().to_vec()).unwrap());
            let line = format!(
                "{}: {} as {:?} sent {:?}, refused {:?}, answered {}",
                self.label,
                context.peer().ip(),
                context.identity().map(|identity| identity.subject.clone()),
                message,
                context.denial().map(|denial| (denial.middleware.to_string(), denial.reason.to_string())),
                response.status(),
            );
            self.lines.lock().unwrap().push(line);
            response
        })
    }
}

/// The lines that are written, and a registry with the middleware that writes them.
fn registry() -> (Arc<Mutex<Vec<String>>>, Registry) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let mut registry = mcp_gate::registry();
    mcp_authn::register(&mut registry);
    let written = Arc::clone(&lines);
    registry.register("example.com/audit", move |parameters: AuditParameters, _| {
        let limits: u8 = parameters.rules.iter().map(|rule| rule.limit).sum();
        ready(Ok(Audit { label: format!("{}{limits}", parameters.label), lines: Arc::clone(&written) }))
    });
    (lines, registry)
}

fn chain(registry: &Registry, entries: &[(&str, Value)]) -> Result<Chain, mcp_middleware::BuildError> {
    let configs: Vec<_> =
        entries.iter().map(|(kind, parameters)| MiddlewareConfig::new(*kind, parameters.clone())).collect();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let settings = ProxySettings::new(SocketAddr::from(([10, 0, 0, 1], 8080)), provider);
    let settings = ProxySettings { local_user: "alice".to_owned(), ..settings };
    registry.build(&configs, settings).now_or_never().unwrap()
}

/// Answers with the name of the tool that is called.
fn transport() -> BoxService {
    BoxService::new(tower::service_fn(async |request: Request<Body>| {
        let context = Arc::clone(RequestContext::of(request.extensions()).unwrap());
        let body = collect(request.into_body(), 1 << 20).await.unwrap();
        let message = context.message().unwrap();
        assert_eq!(message.body(), &body, "the context has the message that the request carries");
        let tool = message.message().target().unwrap().unwrap_or_default().into_owned();
        Ok::<_, Infallible>(Response::new(full(tool)))
    }))
}

async fn call(chain: &Chain, tool: &str) -> String {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool}}).to_string();
    let request = Request::post("/mcp").header("content-type", "application/json").body(full(body)).unwrap();
    let context = chain.context(SocketAddr::from(([10, 0, 0, 9], 4711)));
    let response = chain.serve(&context, request, &transport()).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn a_foreign_middleware_sees_on_the_way_back_what_those_inside_of_it_found() {
    let (lines, registry) = registry();
    let tools = json!({"filter_tools": ["say"], "tools_override": {"greet": {"name": "say"}}});
    let chain = chain(
        &registry,
        &[
            ("example.com/audit", json!({"label": "L", "rules": [{"limit": 7}]})),
            ("auth", json!({})),
            ("tool-call-filter", tools),
            ("mcp-parser", json!({})),
        ],
    )
    .unwrap();
    assert_eq!(call(&chain, "say").await, "greet");
    assert!(call(&chain, "greet").await.contains("tool not found"));
    let lines = lines.lock().unwrap().clone();
    let message = |tool: &str| {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool}});
        format!("L7: 10.0.0.9 as Some(\"alice\") sent Some({:?})", message.to_string())
    };
    assert_eq!(lines[0], format!("{}, refused None, answered 200 OK", message("greet")));
    assert!(
        lines[1].starts_with(&format!("{}, refused Some((\"tool-call-filter\", ", message("greet")))
            && lines[1].contains("there is no tool \\\"greet\\\" for clients"),
        "{}",
        lines[1]
    );
}

#[tokio::test]
async fn a_foreign_parameter_that_does_not_fit_stops_the_start_with_its_member() {
    let (_, registry) = registry();
    for (parameters, field) in [
        (json!({"label": "L", "rules": [{"limit": 7}, {"limit": "x"}]}), "parameters.rules[1].limit"),
        (json!({"rules": []}), "parameters.label"),
        (json!([]), "parameters"),
    ] {
        let error = chain(&registry, &[("recovery", Value::Null), ("example.com/audit", parameters)]).unwrap_err();
        assert_eq!(error.field, format!("middleware_configs[1].{field}"), "{error}");
    }
    let error = chain(&Registry::default(), &[("example.com/audit", Value::Null)]).unwrap_err().to_string();
    assert!(error.contains("\"example.com/audit\" is not supported"), "{error}");
}

#[tokio::test]
async fn the_narrowest_limit_bounds_what_a_transport_must_take() {
    let limit = |bytes: i64| ("bodylimit", json!({"max_bytes": bytes}));
    let (_, registry) = registry();
    let transport = BoxService::new(tower::service_fn(async |_| Ok::<_, Infallible>(Response::new(full("taken")))));
    for (limits, longest) in [
        (vec![], 8 << 20),
        (vec![limit(5), limit(0)], 5),
        (vec![limit(0), limit(5)], 5),
        (vec![limit(16 << 20)], 16 << 20),
    ] {
        let chain = chain(&registry, &limits).unwrap();
        for (length, status) in [(longest, 200), (longest + 1, 413)] {
            let request = Request::post("/mcp").body(full(vec![b' '; length])).unwrap();
            let context = chain.context(SocketAddr::from(([10, 0, 0, 9], 4711)));
            let response = chain.serve(&context, request, &transport).await;
            assert_eq!(response.status(), status, "{limits:?} {length}");
        }
    }
}
