//! The files in `tests/vectors`: policies, entities, claims and a message, and the decision. A row with a `deviation` is decided otherwise by ToolHive.

use std::collections::{BTreeMap, BTreeSet};

use mcp_authz::{Asks, Caller, ClaimSource, Denial, Hints, KnownHints, Policies, Question, asks};
use mcp_runconfig::CedarConfig;
use mcp_wire::{List, ListKind, Message};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

const FILES: [(&str, &str); 11] = [
    ("arguments", include_str!("../vectors/arguments.json")),
    ("claims", include_str!("../vectors/claims.json")),
    ("derived", include_str!("../vectors/derived.json")),
    ("entities", include_str!("../vectors/entities.json")),
    ("groups", include_str!("../vectors/groups.json")),
    ("hints", include_str!("../vectors/hints.json")),
    ("lists", include_str!("../vectors/lists.json")),
    ("methods", include_str!("../vectors/methods.json")),
    ("policies", include_str!("../vectors/policies.json")),
    ("sources", include_str!("../vectors/sources.json")),
    ("uris", include_str!("../vectors/uris.json")),
];

/// The subjects in which decisions differ from ToolHive's: the table in the crate's documentation says why.
const DEVIATIONS: [&str; 4] = [
    "an argument x_present beside x",
    "hints of tools over pages",
    "names of arguments that differ only in case",
    "parents that the configuration gives to an entity of the request",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[expect(dead_code, reason = "it is for readers")]
    about: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[expect(dead_code, reason = "it is for readers")]
    comment: Option<String>,
    policies: Vec<String>,
    #[serde(default)]
    entities: Vec<Value>,
    /// The other members of the configuration.
    #[serde(default)]
    config: CedarConfig,
    #[serde(default)]
    server: String,
    rows: Vec<Row>,
}

/// One message of a caller, or one list in an answer to it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    #[expect(dead_code, reason = "it is for readers")]
    comment: Option<String>,
    /// Without them, the subject `u1`.
    claims: Option<Map<String, Value>>,
    source: Option<String>,
    /// The lists of tools that were answered before.
    #[serde(default)]
    before: Vec<Vec<Box<RawValue>>>,
    backend: Option<String>,
    /// The name of a tool, of a prompt, and the URI of a resource or skill: short for a method and its parameters.
    call: Option<String>,
    get: Option<String>,
    read: Option<String>,
    skill: Option<String>,
    arguments: Option<Box<RawValue>>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    decision: Option<Verdict>,
    /// A part of the reason.
    why: Option<String>,
    /// The member of an answer that has these items.
    list: Option<String>,
    #[serde(default)]
    items: Vec<Box<RawValue>>,
    /// The names of those that the caller sees.
    visible: Option<Vec<String>>,
    /// Whether nobody sees the list, as it cannot be judged.
    #[serde(default)]
    withheld: bool,
    deviation: Option<String>,
    /// The decision of ToolHive.
    upstream: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Allow,
    Deny,
}

#[test]
fn every_vector_is_decided_as_it_says() {
    let (mut rows, mut wrong, mut deviations) = (0, Vec::new(), BTreeSet::new());
    for (name, text) in FILES {
        let file: File = serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (number, case) in file.cases.iter().enumerate() {
            let policies = policies(case).unwrap_or_else(|error| panic!("{name}, case {number}: {error}"));
            for (row_number, row) in case.rows.iter().enumerate() {
                rows += 1;
                deviations.extend(row.deviation.clone());
                assert_eq!(row.deviation.is_some(), row.upstream.is_some(), "{name}, case {number}, row {row_number}");
                if let Err(problem) = check(&policies, row) {
                    wrong.push(format!("{name}, case {number}, row {row_number}: {problem}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {rows} rows:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows >= 600, "{rows}");
    assert_eq!(deviations.into_iter().collect::<Vec<_>>(), DEVIATIONS);
}

fn policies(case: &Case) -> Result<Policies, mcp_authz::PolicyError> {
    let entities_json = Value::from(case.entities.clone()).to_string();
    let config = CedarConfig { policies: case.policies.clone(), entities_json, ..case.config.clone() };
    Policies::parse(&config, &case.server)
}

fn check(policies: &Policies, row: &Row) -> Result<(), String> {
    let default = json!({"sub": "u1"}).as_object().unwrap().clone();
    let claims = row.claims.as_ref().unwrap_or(&default);
    let caller = Caller::new(policies, claims, source(row.source.as_deref()));
    if let Some(list) = &row.list {
        return check_list(policies, &caller.unwrap(), list, row);
    }
    let decision = caller.and_then(|caller| decide(policies, &caller, row));
    let verdict = if decision.is_ok() { Verdict::Allow } else { Verdict::Deny };
    let reason = decision.err().map_or_else(String::new, |denial| denial.to_string());
    if Some(verdict) != row.decision {
        return Err(format!("{verdict:?}: {reason}"));
    }
    match &row.why {
        Some(why) if !reason.contains(why) => Err(format!("for another reason: {reason}")),
        _ => Ok(()),
    }
}

fn decide(policies: &Policies, caller: &Caller, row: &Row) -> Result<(), Denial> {
    let text = message(row);
    let message = Message::parse_strict(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    let questions = match asks(&message) {
        Asks::Nothing => return Ok(()),
        Asks::Questions(questions) => questions,
        Asks::Refused(reason) => return Err(Denial::Refused(reason)),
        Asks::Answer => panic!("{text} is no request"),
    };
    let known = known(&row.before);
    questions.into_iter().try_for_each(|question| {
        let hints = known.of(&question.id).unwrap_or_default();
        policies.decide(caller, &Question { hints, backend: row.backend.as_deref().map(Into::into), ..question })
    })
}

fn check_list(policies: &Policies, caller: &Caller, list: &str, row: &Row) -> Result<(), String> {
    let visible = read(list, &row.items).and_then(|mut list| {
        list.retain(|entry| Question::of(entry).map(|question| policies.decide(caller, &question).is_ok()))?;
        Ok(list.entries().iter().map(|entry| entry.name().to_owned()).collect::<Vec<_>>())
    });
    let expected = if row.withheld { None } else { Some(row.visible.clone().unwrap()) };
    if visible.as_ref().ok() == expected.as_ref() { Ok(()) } else { Err(format!("{visible:?}")) }
}

/// Reads an answer whose result has the list `member` of these items.
fn read(member: &str, items: &[Box<RawValue>]) -> Result<List, &'static str> {
    const ALL: [ListKind; 5] =
        [ListKind::Tools, ListKind::Prompts, ListKind::Resources, ListKind::ResourceTemplates, ListKind::Skills];
    let items: Vec<_> = items.iter().map(|item| item.get()).collect();
    let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"{member}":[{}]}}}}"#, items.join(","));
    List::read(answer.into(), &ALL)?.ok_or("there is no list")
}

fn source(text: Option<&str>) -> ClaimSource<'_> {
    match text {
        None => ClaimSource::Request,
        Some("local") => ClaimSource::Local,
        Some("no-upstream-session") => ClaimSource::NoUpstreamSession,
        Some("upstream-opaque") => ClaimSource::UpstreamOpaque,
        Some(text) => ClaimSource::Upstream(text.strip_prefix("upstream:").unwrap()),
    }
}

/// Learns the hints of tools from earlier lists.
fn known(lists: &[Vec<Box<RawValue>>]) -> KnownHints {
    let mut known = KnownHints::default();
    for list in lists {
        for tool in read("tools", list).unwrap().entries() {
            known.learn(tool.name(), Question::of(tool).unwrap().hints);
        }
    }
    known
}

fn message(row: &Row) -> String {
    let short = [
        (&row.call, "tools/call", "name"),
        (&row.get, "prompts/get", "name"),
        (&row.read, "resources/read", "uri"),
        (&row.skill, "skills/get", "uri"),
    ];
    let short = short.into_iter().find_map(|(target, method, member)| Some((target.as_ref()?, method, member)));
    let mut members = BTreeMap::from([("jsonrpc", "\"2.0\"".to_owned())]);
    let method = match (&row.method, short) {
        (Some(method), None) => {
            members.extend(row.params.as_ref().map(|params| ("params", params.get().to_owned())));
            method
        }
        (None, Some((target, method, member))) => {
            let arguments = row.arguments.as_ref().map_or(String::new(), |raw| format!(r#","arguments":{raw}"#));
            members.insert("params", format!(r#"{{"{member}":{}{arguments}}}"#, Value::from(target.as_str())));
            method
        }
        _ => panic!("a row has one message"),
    };
    members.insert("method", Value::from(method).to_string());
    if !method.starts_with("notifications/") {
        members.insert("id", "1".to_owned());
    }
    let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

#[test]
fn hints_are_known_of_a_tool_that_a_list_had() {
    let mut known = known(&[]);
    assert_eq!(known.of("x"), None);
    known.learn("x", Hints::default());
    assert_eq!(known.of("x"), Some(Hints::default()));
}
