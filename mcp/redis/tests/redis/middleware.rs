//! The middleware `ratelimit`: its place in a chain, its parameters, and messages that change behind it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use mcp_http::{Body, BoxService, full};
use mcp_middleware::{
    BuildError, Chain, Identity, Middleware, Next, ProxySettings, Registry, ReplaceError, SecretSource,
};
use mcp_redis::Clients;
use mcp_runconfig::{MiddlewareConfig, NoParameters};
use serde_json::{Value, json};

use crate::server;

/// Says who calls.
struct Caller;

impl Middleware for Caller {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        next.context().identify(Arc::new(Identity { subject: "alice".to_owned(), ..Identity::default() }));
        next.call(request)
    }
}

/// Puts this message in the place of each.
struct Instead(&'static str);

impl Middleware for Instead {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        async move {
            let context = next.context();
            let request = context.read(request).await.unwrap();
            match context.replace(request, Bytes::from_static(self.0.as_bytes())).await {
                Ok(request) => next.call(request).await,
                Err(ReplaceError::Refused(refusal)) => *refusal,
                Err(error) => panic!("{error}"),
            }
        }
        .boxed()
    }
}

/// Hands each request on.
struct Passes;

impl Middleware for Passes {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        next.call(request)
    }
}

const SAY: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":{}}}"#;
const ECHO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":1}}}"#;
const OTHER: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"other"}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

fn build(entries: &Value) -> Result<Chain, BuildError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut registry = Registry::default();
    mcp_redis::register(&mut registry, &Clients::new(SecretSource::None, None, Arc::clone(&provider)), false);
    registry.register("auth", |_: NoParameters, _| async { Ok(Caller) });
    for (kind, message) in [("says", SAY), ("echoes", ECHO), ("calls-other", OTHER), ("lists", LIST)] {
        registry.register(kind, move |_: NoParameters, _| async move { Ok(Instead(message)) });
    }
    for kind in ["mutating-webhook", "validating-webhook", "tool-call-filter", "tool-filter", "authorization"] {
        registry.register(kind, |_: NoParameters, _| async { Ok(Passes) });
    }
    let entries = entries.as_array().unwrap().iter();
    let configs: Vec<_> = entries
        .map(|entry| MiddlewareConfig::new(entry["type"].as_str().unwrap(), entry["parameters"].clone()))
        .collect();
    let settings = ProxySettings::new(SocketAddr::from(([10, 0, 0, 1], 8080)), provider);
    registry.build(&configs, settings).now_or_never().expect("no middleware here waits")
}

fn hourly(tokens: u32) -> Value {
    json!({"maxTokens": tokens, "refillPeriod": "1h"})
}

fn limited(config: Value, address: &str) -> Value {
    let parameters = json!({"namespace": "ns", "server_name": "demo", "config": config, "redis_addr": address});
    json!({"type": "ratelimit", "parameters": parameters})
}

/// The status of the answer to `message` from a chain in front of a server that answers 200.
async fn status(chain: &Chain, message: &'static str) -> u16 {
    let server = tower::service_fn(|_| async { Ok::<_, Infallible>(Response::new(full("done"))) });
    let request = Request::post("/mcp").header("content-type", "application/json").body(full(message)).unwrap();
    let context = chain.context(SocketAddr::from(([10, 244, 0, 9], 4711)));
    chain.serve(&context, request, &BoxService::new(server)).await.status().as_u16()
}

#[tokio::test]
async fn a_message_that_changes_behind_the_limit_is_refused_unless_its_tokens_are_those_taken() {
    let redis = server().await;
    let limits = json!({"shared": hourly(100), "tools": [{"name": "say", "perUser": hourly(50)}]});
    for (sent, changes, expected) in [
        (ECHO, "echoes", 200),
        (OTHER, "echoes", 200),
        (SAY, "says", 200),
        (LIST, "lists", 200),
        (ECHO, "says", 403),
        (SAY, "echoes", 403),
        (LIST, "calls-other", 403),
        (ECHO, "lists", 403),
    ] {
        let chain =
            build(&json!([{"type": "auth"}, limited(limits.clone(), &redis.address()), {"type": changes}])).unwrap();
        assert_eq!(status(&chain, sent).await, expected, "{sent} {changes}");
    }
    let chain = build(&json!([{"type": "auth"}, {"type": "says"}, limited(limits, &redis.address())])).unwrap();
    assert_eq!(status(&chain, ECHO).await, 200);
}

#[test]
fn a_limit_that_does_not_stand_behind_what_may_refuse_stops_the_start() {
    let own = || limited(json!({"shared": hourly(1)}), "redis:6379");
    let (auth, kind) = (json!({"type": "auth"}), |kind: &str| json!({"type": kind}));
    for (chain, at, problem) in [
        (json!([own()]), 0, "needs auth before it"),
        (json!([own(), auth]), 0, "needs auth before it"),
        (json!([auth, own(), own()]), 2, "stands in the chain twice"),
        (json!([auth, own(), kind("mutating-webhook")]), 1, "mutating-webhook changes or refuses"),
        (json!([auth, own(), kind("validating-webhook")]), 1, "validating-webhook changes or refuses"),
        (json!([auth, own(), kind("authorization")]), 1, "authorization changes or refuses"),
        (json!([auth, own(), kind("tool-call-filter")]), 1, "tool-call-filter changes or refuses"),
    ] {
        let error = build(&chain).err().unwrap_or_else(|| panic!("{chain}"));
        assert_eq!(error.field, format!("middleware_configs[{at}].type"), "{error}");
        assert!(error.problem.contains(problem), "{error}");
    }
    assert!(build(&json!([auth, kind("mutating-webhook"), own(), kind("says")])).is_ok());
}

#[test]
fn a_bad_parameter_stops_the_start_with_its_member() {
    let bucket = |tokens: i64, period: &str| json!({"maxTokens": tokens, "refillPeriod": period});
    let tools = |tools: Value| json!({"tools": tools});
    for (config, address, member) in [
        (json!({"shared": hourly(1)}), "", "redis_addr"),
        (json!({"shared": hourly(1)}), "redis", "redis_addr"),
        (json!({}), "redis:1", "config"),
        (json!({"shared": bucket(0, "1s")}), "redis:1", "config.shared.maxTokens"),
        (json!({"shared": bucket(-1, "1s")}), "redis:1", "config.shared.maxTokens"),
        (json!({"perUser": bucket(1, "0s")}), "redis:1", "config.perUser.refillPeriod"),
        (json!({"perUser": bucket(1, "-1s")}), "redis:1", "config.perUser.refillPeriod"),
        (json!({"perUser": bucket(1, "soon")}), "redis:1", "config.perUser.refillPeriod"),
        (tools(json!([{"name": "a"}])), "redis:1", "config.tools[0]"),
        (tools(json!([{"shared": hourly(1)}])), "redis:1", "config.tools[0].name"),
        (
            tools(json!([{"name": "a", "shared": hourly(1)}, {"name": "a", "perUser": hourly(1)}])),
            "redis:1",
            "config.tools[1].name",
        ),
        (tools(json!([{"name": "a", "shared": bucket(1, "")}])), "redis:1", "config.tools[0].shared.refillPeriod"),
    ] {
        let chain = json!([{"type": "auth"}, limited(config.clone(), address)]);
        let error = build(&chain).err().unwrap_or_else(|| panic!("{config}"));
        assert_eq!(error.field, format!("middleware_configs[1].parameters.{member}"), "{config}: {error}");
        assert_ne!(error.fix, "mend it", "{error}");
    }
}

#[test]
fn an_authority_without_an_absolute_path_is_named() {
    let mut entry = limited(json!({"shared": hourly(1)}), "redis:1");
    entry["parameters"]["redis_tls"] = json!({"caCertFile": "ca.crt"});
    let error = build(&json!([{"type": "auth"}, entry])).err().unwrap();
    let told = (&*error.field, &*error.problem, &*error.fix);
    let field = "middleware_configs[1].parameters.redis_tls.caCertFile";
    assert_eq!(told, (field, "\"ca.crt\" is no absolute path", "write one that begins with /"));
}
