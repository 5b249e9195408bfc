//! The vectors of `mcp/authz`, between three who have to agree on each of them: policies in force, the same policies in shadow, and `explain`.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use mcp_gate::explain::{Answer, Gate};
use mcp_http::full;
use mcp_middleware::{Entry, Finding, Found, Identity, Outcome, ProxySettings};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::support::{Files, Proxy, chain, configs, post};

const FILES: [(&str, &str); 13] = [
    ("arguments", include_str!("../../../authz/tests/vectors/arguments.json")),
    ("claims", include_str!("../../../authz/tests/vectors/claims.json")),
    ("configurations", include_str!("../../../authz/tests/vectors/configurations.json")),
    ("derived", include_str!("../../../authz/tests/vectors/derived.json")),
    ("entities", include_str!("../../../authz/tests/vectors/entities.json")),
    ("groups", include_str!("../../../authz/tests/vectors/groups.json")),
    ("hints", include_str!("../../../authz/tests/vectors/hints.json")),
    ("language", include_str!("../../../authz/tests/vectors/language.json")),
    ("lists", include_str!("../../../authz/tests/vectors/lists.json")),
    ("methods", include_str!("../../../authz/tests/vectors/methods.json")),
    ("policies", include_str!("../../../authz/tests/vectors/policies.json")),
    ("sources", include_str!("../../../authz/tests/vectors/sources.json")),
    ("uris", include_str!("../../../authz/tests/vectors/uris.json")),
];

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    policies: Vec<String>,
    #[serde(default)]
    entities: Vec<Value>,
    #[serde(default)]
    config: Map<String, Value>,
    #[serde(default)]
    server: String,
    rows: Vec<Row>,
}

/// The members of a row that count here.
#[derive(Deserialize)]
struct Row {
    claims: Option<Map<String, Value>>,
    source: Option<String>,
    #[serde(default)]
    before: Vec<Vec<Box<RawValue>>>,
    backend: Option<String>,
    call: Option<String>,
    get: Option<String>,
    read: Option<String>,
    skill: Option<String>,
    arguments: Option<Box<RawValue>>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    decision: Option<String>,
    list: Option<String>,
    #[serde(default)]
    items: Vec<Box<RawValue>>,
    visible: Option<Vec<String>>,
}

impl Case {
    fn entries(&self, kind: &str) -> Value {
        let mut cedar = self.config.clone();
        cedar.insert("policies".to_owned(), json!(self.policies));
        cedar.insert("entities_json".to_owned(), Value::from(self.entities.clone()).to_string().into());
        let policies = json!({"type": kind, "parameters": {"config_data": {"cedar": cedar}}});
        chain(vec![json!({"type": "identified"}), policies])
    }

    fn settings(&self) -> ProxySettings {
        ProxySettings { server_name: self.server.clone(), ..Files::new().settings() }
    }

    /// A proxy with these policies whose server answers everything with `answer`.
    fn proxy(&self, kind: &str, answer: &Arc<Mutex<String>>) -> Proxy {
        let answer = Arc::clone(answer);
        Proxy::answering(self.settings(), self.entries(kind), move || {
            let text = answer.lock().unwrap().clone();
            Response::builder().header("content-type", "application/json").body(full(text)).unwrap()
        })
    }

    /// `None` where the proxy refuses the policies, too.
    fn gate(&self) -> Option<Gate> {
        let mut entries = self.entries("authorization");
        entries.as_array_mut().unwrap().retain(|entry| entry["type"] != "identified");
        Gate::build(Entry::list("middleware_configs", &configs(entries)), self.settings()).ok()
    }
}

impl Row {
    /// The caller; `None` where a proxy of this version has no such one.
    fn identity(&self) -> Option<Arc<Identity>> {
        let logged_in = match self.source.as_deref() {
            None => true,
            Some("local") => false,
            Some(_) => return None,
        };
        let claims = self.claims.clone().unwrap_or_else(|| json!({"sub": "u1"}).as_object().unwrap().clone());
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Arc::new(Identity { logged_in, subject, claims, ..Identity::default() }))
    }

    fn message(&self) -> String {
        let short = [
            (&self.call, "tools/call", "name"),
            (&self.get, "prompts/get", "name"),
            (&self.read, "resources/read", "uri"),
            (&self.skill, "skills/get", "uri"),
        ];
        let short = short.into_iter().find_map(|(target, method, member)| Some((target.as_ref()?, method, member)));
        let (method, params) = match (&self.method, short) {
            (Some(method), None) => (&**method, self.params.as_ref().map(|params| params.get().to_owned())),
            (None, Some((target, method, member))) => {
                let arguments = self.arguments.as_ref().map_or(String::new(), |raw| format!(r#","arguments":{raw}"#));
                (method, Some(format!(r#"{{"{member}":{}{arguments}}}"#, Value::from(target.as_str()))))
            }
            _ => panic!("a row has one message"),
        };
        message(method, params.as_deref())
    }

    /// The tools of the server: those of the lists before, and the one that is called.
    fn tools(&self) -> String {
        let mut tools: Vec<String> = self.before.iter().flatten().map(|tool| tool.get().to_owned()).collect();
        let named = |tool: &String, name: &String| serde_json::from_str::<Value>(tool).unwrap()["name"] == **name;
        let new = self.call.iter().filter(|name| !tools.iter().any(|tool| named(tool, name)));
        let new: Vec<_> = new.map(|name| json!({"name": name}).to_string()).collect();
        tools.extend(new);
        result("tools", &tools.join(","))
    }
}

fn message(method: &str, params: Option<&str>) -> String {
    let id = if method.starts_with("notifications/") { "" } else { r#","id":7"# };
    let params = params.map_or(String::new(), |params| format!(r#","params":{params}"#));
    format!(r#"{{"jsonrpc":"2.0","method":{}{id}{params}}}"#, Value::from(method))
}

fn call(tool: &str, arguments: Option<&RawValue>) -> String {
    let arguments = arguments.map_or(String::new(), |raw| format!(r#","arguments":{raw}"#));
    message("tools/call", Some(&format!(r#"{{"name":{}{arguments}}}"#, Value::from(tool))))
}

fn result(member: &str, items: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"{member}":[{items}]}}}}"#)
}

/// Proxies with the policies of a case, in front of one server, for one caller.
struct World {
    enforced: Proxy,
    tried: Proxy,
    answer: Arc<Mutex<String>>,
    identity: Arc<Identity>,
}

impl World {
    fn new(case: &Case, row: &Row, identity: Arc<Identity>) -> Self {
        let answer = Arc::new(Mutex::new(row.tools()));
        let [enforced, tried] = ["authorization", "shadow-authorization"].map(|kind| case.proxy(kind, &answer));
        Self { enforced, tried, answer, identity }
    }

    /// The status and the text of the answer of the policies in force, and what those in shadow find.
    async fn ask(&self, message: &str) -> (u16, String, Vec<Finding>) {
        let request = || {
            let mut request = post("application/json", message.to_owned());
            request.extensions_mut().insert(Arc::clone(&self.identity));
            request
        };
        let answer = self.enforced.send(request()).await;
        let (context, tried) = self.tried.observed([10, 244, 0, 9], request()).await;
        assert_eq!((tried.status, &*tried.text), (200, &**self.answer.lock().unwrap()), "{message}");
        let shadows = context.own_shadows();
        shadows.done().await;
        (answer.status, answer.text, shadows.findings())
    }

    /// Whether the policies in force let a message pass. Those in shadow have to count the same.
    async fn passes(&self, message: &str) -> bool {
        let (status, text, found) = self.ask(message).await;
        let refusals = found.iter().filter(|finding| finding.refuses());
        let refusals = refusals.filter(|finding| matches!(finding.found, Found::Decision(..))).count();
        assert_eq!((status, refusals), if status == 200 { (200, 0) } else { (403, 1) }, "{message}: {text} {found:?}");
        status == 200
    }
}

/// Whether an answer of `explain` holds for a call that passes, or does not.
fn holds(answer: Answer, passes: bool) -> bool {
    match answer {
        Answer::Yes => passes,
        Answer::No => !passes,
        Answer::DependsOn => true,
    }
}

/// The answers of `explain` about a tool: whether it is shown, and whether it may be called.
fn explained(
    gate: &Gate,
    row: &Row,
    identity: &Arc<Identity>,
    tool: &str,
    arguments: Option<&RawValue>,
) -> [Answer; 2] {
    let list = Bytes::from(row.tools());
    let known = arguments.map(|raw| (tool, raw));
    let (answers, _) = gate.explain(&list, Some(identity), known).unwrap_or_else(|error| panic!("{tool}: {error}"));
    let answer = answers.iter().find(|answer| answer.name == tool).unwrap();
    [answer.shown.answer, answer.call.answer]
}

/// Generated arguments, by names and texts for which the policies look.
fn generated(policies: &[String]) -> BoxedStrategy<Value> {
    let text = policies.concat();
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let names: Vec<_> = text.split("arg_").skip(1).map(name).chain(["x".to_owned()]).collect();
    let texts: Vec<_> = text.split('"').skip(1).step_by(2).map(str::to_owned).chain([String::new()]).collect();
    let value = prop::sample::select(texts).prop_flat_map(|text| {
        let number = text.parse::<f64>().map_or(Value::Null, Value::from);
        prop::sample::select(vec![Value::from(&*text), number, json!([text]), true.into(), 1.into()])
    });
    prop::collection::btree_map(prop::sample::select(names), value, 0..4).prop_map(|all| json!(all)).boxed()
}

/// The rows of each sort that were looked at.
#[derive(Debug, Default)]
struct Counts {
    rows: usize,
    refused: usize,
    with_arguments: usize,
    depending: usize,
    lists: usize,
    hidden: usize,
    left_out: usize,
}

#[tokio::test]
async fn enforcement_shadow_and_explain_agree_on_every_vector() {
    let mut counts = Counts::default();
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() });
    for (file, text) in FILES {
        let File { cases } = serde_json::from_str(text).unwrap();
        for (number, case) in cases.iter().enumerate() {
            let Some(gate) = case.gate() else {
                assert!(case.rows.iter().all(|row| row.decision.as_deref() == Some("refused")), "{file} {number}");
                continue;
            };
            let arguments = generated(&case.policies);
            for (at, row) in case.rows.iter().enumerate() {
                let place = format!("{file}, case {number}, row {at}");
                let Some(identity) = row.identity().filter(|_| row.backend.is_none()) else {
                    counts.left_out += 1;
                    continue;
                };
                let world = World::new(case, row, Arc::clone(&identity));
                if let Some(member) = &row.list {
                    counts.lists += 1;
                    counts.hidden += list(&world, row, member, &place).await;
                    continue;
                }
                if !row.before.is_empty() {
                    world.ask(&message("tools/list", None)).await;
                }
                counts.rows += 1;
                let passes = world.passes(&row.message()).await;
                counts.refused += usize::from(!passes);
                assert_eq!(row.decision.as_deref(), Some(if passes { "allow" } else { "deny" }), "{place}");

                let Some(tool) = row.call.as_deref().filter(|tool| !tool.is_empty()) else { continue };
                counts.with_arguments += usize::from(row.arguments.is_some());
                let own = row.arguments.clone().unwrap_or_else(|| to_raw_value(&json!({})).unwrap());
                let [shown, known] = explained(&gate, row, &identity, tool, Some(&own));
                assert_eq!(known, if passes { Answer::Yes } else { Answer::No }, "{place}");
                let (_, listed, _) = world.ask(&message("tools/list", None)).await;
                let listed: Value = serde_json::from_str(&listed).unwrap();
                let is_listed = listed["result"]["tools"].as_array().unwrap().iter().any(|seen| seen["name"] == tool);
                assert_eq!(shown, if is_listed { Answer::Yes } else { Answer::No }, "{place}: {listed}");

                let [_, unknown] = explained(&gate, row, &identity, tool, None);
                counts.depending += usize::from(unknown == Answer::DependsOn);
                for _ in 0..2 {
                    let arguments = arguments.new_tree(&mut runner).unwrap().current();
                    let raw = to_raw_value(&arguments).unwrap();
                    let passes = world.passes(&call(tool, Some(&raw))).await;
                    let [_, known] = explained(&gate, row, &identity, tool, Some(&raw));
                    assert_eq!(known, if passes { Answer::Yes } else { Answer::No }, "{place}: {arguments}");
                    assert!(holds(unknown, passes), "{place}: {unknown:?}, and {passes} with {arguments}");
                }
            }
        }
    }
    let Counts { rows, refused, with_arguments, depending, lists, hidden, left_out } = counts;
    // Another version would have an identity provider's token, or several servers.
    assert!(rows > 750 && lists > 40 && left_out < 25, "{counts:?}");
    assert!(
        refused > 400 && rows - refused > 300 && with_arguments > 50 && depending > 50 && hidden > 20,
        "{counts:?}"
    );
}

/// Counts the entries of a list that policies in force hide, and those in shadow would.
async fn list(world: &World, row: &Row, member: &str, place: &str) -> usize {
    let items: Vec<_> = row.items.iter().map(|item| item.get()).collect();
    *world.answer.lock().unwrap() = result(member, &items.join(","));
    let method = if member == "resourceTemplates" { "resources/templates/list" } else { &format!("{member}/list") };
    let (status, text, found) = world.ask(&message(method, None)).await;
    let fails = found.iter().any(|finding| matches!(finding.found, Found::Decision(Outcome::Failed, ..)));
    let hidden = found.iter().map(|finding| if let Found::Hidden(entries) = finding.found { entries } else { 0 }).sum();
    assert_eq!(status, if fails { 500 } else { 200 }, "{place}: {text}");
    if fails {
        assert_eq!(row.visible, None, "{place}");
        return 0;
    }
    let seen: Value = serde_json::from_str(&text).unwrap();
    let left = seen["result"][member].as_array().unwrap().len();
    // Odd hints withhold a list only where a policy reads hints.
    let visible = row.visible.as_ref().map_or(left, Vec::len);
    assert_eq!((left, hidden), (visible, items.len() - visible), "{place}: {found:?}");
    hidden
}
