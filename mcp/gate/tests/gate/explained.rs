//! `explain` and the proxy agree on generated chains: its yes and its no hold whatever webhooks say, arguments are, and providers of credentials do.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use mcp_gate::explain::{Answer, Gate, Unknown, Verdict};
use mcp_http::full;
use mcp_middleware::{Entry, Identity};
use mcp_runconfig::TOKEN_EXCHANGE;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::endpoint::{Endpoint, Reply};
use crate::support::{Files, NoCredential, Proxy, configs, post};

const METHODS: [&str; 4] = ["tools/call", "tools/*", "tools/list", "*"];
const NAMES: [&str; 5] = ["echo", "rm", "say", "p*", "*"];
const PRINCIPALS: [&str; 3] = ["ann", "bob", "b*"];
const POLICIES: [&str; 4] = [
    "permit(principal, action, resource);",
    r#"permit(principal, action, resource == Tool::"echo");"#,
    r#"permit(principal, action, resource == Tool::"pay") when { context has arg_n && context.arg_n == "1" };"#,
    r#"forbid(principal, action, resource == Tool::"rm");"#,
];

/// The parts of a chain.
#[derive(Clone, Debug)]
struct Parts {
    filter: Value,
    /// The types of the filters, which are a pair in documents that ToolHive writes.
    filters: &'static [&'static str],
    mutating: Vec<Value>,
    validating: Vec<Value>,
    policies: Vec<&'static str>,
    /// Whether the proxy gets a credential for each caller.
    exchange: bool,
    /// Whether callers log in behind the webhooks.
    late: bool,
}

/// The verdict of all webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Say {
    Allow,
    Deny,
    Rename,
}

fn globs(all: &'static [&'static str]) -> BoxedStrategy<Value> {
    prop_oneof![Just(Value::Null), subsequence(all.to_vec(), 1..=2).prop_map(|some| json!(some))].boxed()
}

fn hook(url: &str) -> BoxedStrategy<Value> {
    let url = url.to_owned();
    let parts = (globs(&METHODS), globs(&NAMES), globs(&PRINCIPALS), prop::bool::weighted(0.2));
    let hook = move |(methods, tools, principals, shadow): (Value, Value, Value, bool)| {
        json!({
            "name": "w", "url": url, "failure_policy": "fail", "tls_config": {"insecure_skip_verify": true},
            "portcullis": {
                "match": {"methods": methods, "tools": tools, "principals": principals},
                "mode": if shadow { "shadow" } else { "enforce" },
            },
        })
    };
    parts.prop_map(hook).boxed()
}

fn parts(url: &str) -> impl Strategy<Value = Parts> + use<> {
    let filters = vec![
        Value::Null,
        json!({"filter_tools": ["echo", "pay"]}),
        json!({"tools_override": {"echo": {"name": "say"}}}),
        json!({"filter_tools": ["rm", "pay"], "tools_override": {"echo": {"name": "rm"}}}),
    ];
    let pair = Just(&["tool-filter", "tool-call-filter"][..]);
    let odd: Vec<&[&str]> = vec![
        &["tool-filter"],
        &["tool-call-filter"],
        &["tool-filter", "tool-call-filter", "tool-filter", "tool-call-filter"],
    ];
    let filters = (select(filters), prop_oneof![pair, select(odd)]);
    let policies = prop_oneof![Just(Vec::new()), subsequence(POLICIES.to_vec(), 1..=4)];
    let is_rare = prop::bool::weighted(0.2);
    (filters, vec(hook(url), 0..3), vec(hook(url), 0..3), policies, is_rare, any::<bool>()).prop_map(
        |((filter, filters), mutating, validating, policies, exchange, late)| Parts {
            filter,
            filters,
            mutating,
            validating,
            policies,
            exchange,
            late,
        },
    )
}

impl Parts {
    /// The chain in which callers log in by this entry, and credentials come from middleware of this type.
    fn entries(&self, login: &Value, credentials: &str) -> Vec<Value> {
        let place = |late: bool| (self.late == late).then(|| login.clone());
        let mut entries: Vec<_> = place(false).into_iter().collect();
        if !self.filter.is_null() {
            entries.extend(self.filters.iter().map(|kind| json!({"type": kind, "parameters": self.filter})));
        }
        entries.push(json!({"type": "mcp-parser"}));
        for (kind, webhooks) in [("mutating-webhook", &self.mutating), ("validating-webhook", &self.validating)] {
            let some = (!webhooks.is_empty()).then(|| json!({"type": kind, "parameters": {"webhooks": webhooks}}));
            entries.extend(some);
        }
        entries.extend(place(true));
        if !self.policies.is_empty() {
            let policies = json!({"config_data": {"cedar": {"policies": self.policies}}});
            entries.push(json!({"type": "authorization", "parameters": policies}));
        }
        if self.exchange {
            entries.push(json!({"type": credentials}));
        }
        entries
    }
}

/// A proxy, one caller of it, and whether somebody gives a credential for the caller.
struct World {
    proxy: Proxy,
    caller: Arc<Identity>,
    has_credential: bool,
}

impl World {
    async fn send(&self, method: &str, params: Value) -> String {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
        let mut request = post("application/json", message);
        request.extensions_mut().insert(Arc::clone(&self.caller));
        if !self.has_credential {
            request.extensions_mut().insert(NoCredential);
        }
        self.proxy.send(request).await.text
    }

    /// Whether a call by this name reaches the tool of the server.
    async fn reaches(&self, name: &str, tool: &str, arguments: &Value) -> bool {
        let before = self.proxy.forwarded().len();
        self.send("tools/call", json!({"name": name, "arguments": arguments})).await;
        let forwarded = self.proxy.forwarded().split_off(before);
        let called = |body: &Bytes| serde_json::from_slice::<Value>(body).unwrap()["params"]["name"].clone();
        forwarded.iter().any(|request| called(&request.body) == tool)
    }

    /// Whether the caller sees a tool of the server, which is its own description.
    async fn sees(&self, tool: &str) -> bool {
        let text = self.send("tools/list", json!({})).await;
        // A refusal is no JSON.
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let tools = answer["result"]["tools"].as_array();
        tools.is_some_and(|tools| tools.iter().any(|seen| seen["description"] == tool))
    }
}

/// Whether a verdict holds where the proxy lets something pass, or does not, all webhooks say this, and there is a credential or none.
fn holds(verdict: &Verdict, (say, has_credential): (Say, bool), passes: bool) -> bool {
    match verdict.answer {
        Answer::Yes => passes,
        Answer::No => !passes,
        Answer::DependsOn => {
            let depends = |unknown| verdict.because.iter().any(|reason| reason.depends_on == Some(unknown));
            let is_refused =
                (depends(Unknown::Webhook) && say == Say::Deny) || (depends(Unknown::Credential) && !has_credential);
            !(is_refused && passes)
        }
    }
}

#[tokio::test]
async fn a_yes_and_a_no_hold_on_generated_chains() {
    let says = Arc::new(Mutex::new(Say::Allow));
    let heard = Arc::clone(&says);
    let endpoint = Endpoint::start(None, move |_| match *heard.lock().unwrap() {
        Say::Allow => Reply::allow(),
        Say::Deny => Reply::ok(r#"{"allowed":false}"#),
        Say::Rename => Reply::patch(r#"[{"op":"replace","path":"/mcp_request/params/name","value":"pay"}]"#),
    })
    .await;
    let listed = ["echo", "pay", "rm"].map(|name| json!({"name": name, "description": name}));
    let list = json!({"jsonrpc": "2.0", "id": 7, "result": {"tools": listed}}).to_string();
    let claims = json!({"iss": "https://id.example", "sub": "ann"}).as_object().unwrap().clone();
    let caller = Arc::new(Identity { logged_in: true, subject: "ann".into(), claims, ..Identity::default() });
    let login =
        json!({"type": "auth", "parameters": {"oidc_config": {"issuer": "https://id.example", "audience": "mcp"}}});

    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() });
    let (mut answers, mut refused) = ([0; 3], 0);
    for _ in 0..80 {
        let parts = parts(&endpoint.url).new_tree(&mut runner).unwrap().current();
        let files = Files::new();
        let gate = Gate::build(
            Entry::list("middleware_configs", &configs(parts.entries(&login, TOKEN_EXCHANGE).into())),
            files.settings(),
        );
        let Ok(gate) = gate else {
            refused += 1;
            continue;
        };
        let mut entries = vec![json!({"type": "auth"})];
        entries.extend(parts.entries(&json!({"type": "identified"}), "credentials"));
        let answer = list.clone();
        let answer =
            move || Response::builder().header("content-type", "application/json").body(full(answer.clone())).unwrap();
        let proxy = Proxy::answering(files.settings(), entries.into(), answer);
        let mut world = World { proxy, caller: Arc::clone(&caller), has_credential: true };
        let (explained, _) = gate.explain(&Bytes::from(list.clone()), Some(&caller), None).unwrap();
        for tool in explained {
            for verdict in [&tool.shown, &tool.call] {
                answers[verdict.answer as usize] += 1;
            }
            for case in [(Say::Allow, true), (Say::Deny, true), (Say::Rename, true), (Say::Allow, false)] {
                (*says.lock().unwrap(), world.has_credential) = case;
                let is_seen = world.sees(&tool.server_name).await;
                assert!(holds(&tool.shown, case, is_seen), "{case:?} {is_seen}: {tool:?} {parts:?}");
                for arguments in [json!({}), json!({"n": "1"})] {
                    let passes = world.reaches(&tool.name, &tool.server_name, &arguments).await;
                    assert!(holds(&tool.call, case, passes), "{case:?} {arguments} {passes}: {tool:?} {parts:?}");
                }
            }
        }
        world.proxy.close().await;
    }
    assert!(answers.iter().all(|count| *count > 20) && refused < 60, "{answers:?}, and {refused} chains are refused");
}
