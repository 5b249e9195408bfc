//! Filters of lists that middleware register: the chain runs them on one reading of the answer.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::ready;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, IF_RANGE, RANGE};
use http::{Request, Response};
use http_body_util::BodyExt;
use mcp_http::{Body, BoxService, full};
use mcp_middleware::{Chain, ListFilter, Middleware, Next};
use mcp_runconfig::NoParameters;
use mcp_wire::{List, ListKind};
use serde_json::{Value, json};

use crate::support::{Files, configs, post};

/// The observations of a chain's filters: the tools' names, and the used memory for answers.
type Seen = Arc<Mutex<Vec<(Vec<String>, usize)>>>;

/// Asks somebody which tools the caller may see: all but those with a name that begins with `secret`. It fails for one
/// called `broken`.
struct Permit {
    seen: Seen,
    chain: Arc<OnceLock<Chain>>,
}

impl Middleware for Permit {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let (seen, chain) = (Arc::clone(&self.seen), Arc::clone(&self.chain));
        let kinds = &[ListKind::Tools, ListKind::Prompts];
        let filter = ListFilter { middleware: "permit", kinds, cost: 0, is_private: true };
        next.context().filter_lists(filter, move |mut list: List| {
            let names: Vec<_> = list.entries().iter().map(|entry| entry.name().to_owned()).collect();
            assert!(!names.contains(&"panic".to_owned()), "the filter's own fault");
            let held = chain.get().unwrap().bounds().find(|bound| bound.name == "held_answers").unwrap().used;
            seen.lock().unwrap().push((names, held));
            async move {
                tokio::task::yield_now().await;
                list.retain(|entry| match entry.name() {
                    "broken" => Err("somebody does not answer"),
                    name => Ok(!name.starts_with("secret")),
                })?;
                Ok(list)
            }
        });
        next.call(request)
    }
}

/// Answers itself, in a coding that no filter reads.
struct Refuse;

impl Middleware for Refuse {
    fn call<'a>(&'a self, _: Request<Body>, _: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        Box::pin(ready(Response::builder().header("content-encoding", "x").body(full("refused")).unwrap()))
    }
}

async fn chain(entries: Value) -> (Chain, Seen) {
    let (seen, built) = (Seen::default(), Arc::new(OnceLock::new()));
    let mut registry = mcp_gate::registry();
    let (permits, of) = (Arc::clone(&seen), Arc::clone(&built));
    registry.register("permit", move |_: NoParameters, _| {
        ready(Ok(Permit { seen: Arc::clone(&permits), chain: Arc::clone(&of) }))
    });
    registry.register("refuse", |_: NoParameters, _| ready(Ok(Refuse)));
    let chain = registry.build(&configs(entries), Files::new().settings()).await.unwrap();
    assert!(built.set(chain.clone()).is_ok());
    (chain, seen)
}

/// The answer to a call through the chain, where the server answers with `body`, and who denied it.
async fn answer(chain: &Chain, body: impl Into<Bytes>) -> (Response<Bytes>, Option<String>) {
    let body = body.into();
    let transport = BoxService::new(tower::service_fn(move |request: Request<Body>| {
        let asked = [ACCEPT_ENCODING, RANGE, IF_RANGE].map(|header| request.headers().contains_key(header));
        let filtered = asked == [false; 3];
        let response =
            Response::builder().header("content-type", "application/json").header("filtered", filtered.to_string());
        ready(Ok::<_, Infallible>(response.body(full(body.clone())).unwrap()))
    }));
    let mut request = post("application/json", r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#);
    for (header, value) in [(ACCEPT_ENCODING, "gzip"), (RANGE, "bytes=60-"), (IF_RANGE, "\"x\"")] {
        request.headers_mut().insert(header, value.parse().unwrap());
    }
    let context = chain.context(([10, 0, 0, 9], 4711).into());
    let (head, body) = chain.serve(&context, request, &transport).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (Response::from_parts(head, body), context.denial().map(|denial| denial.middleware.to_string()))
}

fn list(kind: &str, names: &[&str]) -> String {
    let entries: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    json!({"jsonrpc": "2.0", "id": 7, "result": {kind: entries}}).to_string()
}

fn tool_filter() -> Value {
    let parameters = json!({"filter_tools": ["say", "secret-b", "broken", "panic"], "tools_override": {"secret": {"name": "say"}, "real": {"name": "secret-b"}}});
    json!({"type": "tool-filter", "parameters": parameters})
}

#[tokio::test]
async fn each_filter_sees_what_is_left_by_those_inside_of_it() {
    let (permit, parser) = (json!({"type": "permit"}), json!({"type": "mcp-parser"}));
    for (entries, shown, seen) in [
        (json!([parser]), &["secret", "real", "other"][..], vec![]),
        (json!([tool_filter(), parser]), &["say", "secret-b"], vec![]),
        (json!([tool_filter(), parser, permit]), &["secret-b"], vec![vec!["secret", "real", "other"]]),
        (json!([permit, tool_filter(), parser]), &["say"], vec![vec!["say", "secret-b"]]),
        (json!([permit, tool_filter(), parser, permit]), &[], vec![vec!["secret", "real", "other"], vec!["secret-b"]]),
    ] {
        let (chain, saw) = chain(entries.clone()).await;
        let (answer, denied) = answer(&chain, list("tools", &["secret", "real", "other"])).await;
        assert_eq!((answer.status().as_u16(), denied), (200, None), "{entries}");
        let read: Value = serde_json::from_slice(answer.body()).unwrap();
        let names: Vec<_> = read["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, *shown, "{entries}");
        let saw: Vec<_> = saw.lock().unwrap().iter().map(|(names, _)| names.clone()).collect();
        assert_eq!(saw, seen, "{entries}");
        let header = |name| answer.headers().get(name).map(|value| value.to_str().unwrap());
        assert!(header("content-length").is_none_or(|length| length == answer.body().len().to_string()), "{entries}");
        assert_eq!(header("filtered"), Some(if entries == json!([parser]) { "false" } else { "true" }), "{entries}");
        let private = entries.to_string().contains("permit");
        assert_eq!(header("cache-control"), Some("private, no-store").filter(|_| private), "{entries}");
    }
}

#[tokio::test]
async fn a_denial_names_the_middleware_whose_filter_withheld() {
    let chain = chain(json!([tool_filter(), {"type": "mcp-parser"}, {"type": "permit"}, {"type": "recovery"}])).await.0;
    for (body, status, denied) in [
        (list("tools", &["real"]), 200, None),
        (list("prompts", &["broken"]), 500, Some("permit")),
        (list("prompts", &["say", "say"]), 200, None),
        (list("tools", &["real", "real"]), 500, Some("tool-filter")),
        // No filter has seen it.
        (r#"{"result":{"tools":7}}"#.to_owned(), 500, Some("permit")),
        (r#"{"result":{"tools":[],"prompts":[]}}"#.to_owned(), 500, Some("permit")),
        (r#"{"result":{"resources":7}}"#.to_owned(), 200, None),
        (list("tools", &["panic"]), 500, Some("recovery")),
    ] {
        let (answer, by) = answer(&chain, body.clone()).await;
        assert_eq!((answer.status().as_u16(), by.as_deref()), (status, denied), "{body}");
        assert!(status == 200 || !answer.body().windows(4).any(|name| name == b"real"), "{body}");
    }
}

#[tokio::test]
async fn what_a_middleware_answers_itself_reaches_the_client() {
    let chain = chain(json!([tool_filter(), {"type": "permit"}, {"type": "refuse"}])).await.0;
    let (answer, denied) = answer(&chain, list("tools", &["real"])).await;
    assert_eq!((answer.status().as_u16(), &answer.body()[..], denied), (200, &b"refused"[..], None));
}

#[tokio::test]
async fn a_list_of_90_mib_passes_several_filters_in_the_memory_of_one() {
    let mut body = r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"other"}"#.to_owned();
    let description = "x".repeat(1 << 20);
    for at in 0..90 {
        write!(body, r#",{{"name":"tool-{at}","description":"{description}"}}"#).unwrap();
    }
    body.push_str("]}}");
    let (length, body) = (body.len(), Bytes::from(body));
    let hides = json!({"type": "tool-filter", "parameters": {"tools_override": {"gone": {"name": "other"}}}});
    let permit = json!({"type": "permit"});
    let mut held = Vec::new();
    for entries in [json!([permit]), json!([permit, hides, permit])] {
        let count = entries.as_array().unwrap().len();
        let (chain, seen) = chain(entries).await;
        let (answer, denied) = answer(&chain, body.clone()).await;
        assert_eq!((answer.status().as_u16(), denied), (200, None), "{count} filters");
        let hidden = if count == 1 { 0 } else { r#"{"name":"other"},"#.len() };
        assert_eq!(answer.body().len(), length - hidden, "{count} filters");
        assert_eq!(answer.headers().get(CONTENT_LENGTH).unwrap(), &(length - hidden).to_string());
        held.push(seen.lock().unwrap().iter().map(|(_, held)| *held).max().unwrap());
    }
    // The first 8 KiB of each body are free.
    assert!(held[0] > 89 << 20 && held[1] <= held[0] + (1 << 20), "{held:?}");
}
