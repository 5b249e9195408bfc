//! The files in `tests/vectors`: policies, entities, claims and a message, and the decision. ToolHive's own decisions are in `tests/toolhive.json`,
//! recorded by `hack/cedar-vectors/run.sh`.

use std::collections::BTreeMap;

use mcp_authz::{Asks, Caller, ClaimSource, Denial, Hints, KnownHints, Policies, PolicyError, Question, asks};
use mcp_runconfig::CedarConfig;
use mcp_wire::{List, ListKind, Message};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

pub(super) const FILES: [(&str, &str); 13] = [
    ("arguments", include_str!("../vectors/arguments.json")),
    ("claims", include_str!("../vectors/claims.json")),
    ("configurations", include_str!("../vectors/configurations.json")),
    ("derived", include_str!("../vectors/derived.json")),
    ("entities", include_str!("../vectors/entities.json")),
    ("groups", include_str!("../vectors/groups.json")),
    ("hints", include_str!("../vectors/hints.json")),
    ("language", include_str!("../vectors/language.json")),
    ("lists", include_str!("../vectors/lists.json")),
    ("methods", include_str!("../vectors/methods.json")),
    ("policies", include_str!("../vectors/policies.json")),
    ("sources", include_str!("../vectors/sources.json")),
    ("uris", include_str!("../vectors/uris.json")),
];

/// For each file, case and row what ToolHive decides: in the words of `hack/cedar-vectors/main.go`.
const TOOLHIVE: &str = include_str!("../toolhive.json");

/// The rows that ToolHive decides otherwise, by their names, under their subject in the table of the crate's documentation, which says why.
const DEVIATIONS: [(&str, &[&str]); 15] = [
    (
        "parents that `entities_json` gives to an entity of the request (the caller, the tool, the action)",
        &[
            "parent of a tool",
            "parent of a tool in a list",
            "parent of a caller",
            "parent of a caller who has a group",
            "parent of an action",
            "parent of a resource",
            "parent of a prompt",
            "parent of a skill",
            "parent of a tool that is forbidden",
        ],
    ),
    ("hints of tools", &["hint of the page before", "hint before an empty page"]),
    (
        "two arguments whose names differ only in case",
        &["path beside Path", "path beside PATH", "key beside the same in Kelvin signs"],
    ),
    ("a call with more than 1,000 arguments", &["1,001 arguments"]),
    (
        "arguments of a call that are no object, but for an empty list",
        &["arguments in a list", "arguments in a text", "arguments of a prompt in a list"],
    ),
    ("an argument `x_present` beside one `x` that is no scalar", &["x_present beside x"]),
    ("a member of a completion's `ref` that is spelt in another case (`Type`)", &["type in another case"]),
    (
        "an item of a list with an odd member that decides nothing (a description that is a number), or a skill whose URI is empty",
        &["description that is a number", "skill whose URI is empty"],
    ),
    (
        "an entry of `policies` with a second policy, or another text behind the first one",
        &["two policies in one entry", "text behind a policy"],
    ),
    ("a comment between `/*` and `*/`", &["comment between /* and */"]),
    (
        "a policy with more than 64 brackets in each other, 4,000 operators, or thousands of escapes in a text, and policies of more than 100,000 words and signs together",
        &["65 brackets"],
    ),
    (
        "`entities_json` with a circle, an attribute `__expr`, or an action's parent that is no action",
        &[
            "attribute __expr",
            "entity that is its own parent",
            "entities in a circle",
            "action with a parent that is none",
        ],
    ),
    (
        "`entities_json` with more than 10,000 entities, 64 levels of parents, or 100,000 pairs of an entity and an ancestor",
        &["65 levels of parents"],
    ),
    (
        "`entities_json` with an entity that has no `attrs` or no `parents`, or is there twice alike",
        &["entity without parents", "entity without attributes", "entity twice alike"],
    ),
    (
        r#"Cedar's functions: `decimal("+1.0")`, `toDate` and `toTime` before 1970, the shortest `duration`"#,
        &["sign of a decimal", "day before 1970", "time of a day before 1970", "shortest duration"],
    ),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[expect(dead_code, reason = "it is for readers")]
    about: String,
    pub(super) cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    #[expect(dead_code, reason = "it is for readers")]
    comment: Option<String>,
    pub(super) policies: Vec<String>,
    #[serde(default)]
    entities: Vec<Value>,
    /// The other members of the configuration.
    #[serde(default)]
    config: CedarConfig,
    #[serde(default)]
    server: String,
    pub(super) rows: Vec<Row>,
}

/// One message of a caller, or one list in an answer to it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// The name in the list of deviations.
    name: Option<String>,
    #[expect(dead_code, reason = "it is for readers")]
    comment: Option<String>,
    /// Without them, the subject `u1`.
    claims: Option<Map<String, Value>>,
    source: Option<String>,
    /// The lists of tools that were answered before.
    #[serde(default)]
    pub(super) before: Vec<Vec<Box<RawValue>>>,
    pub(super) backend: Option<String>,
    /// The name of a tool, of a prompt, and the URI of a resource or skill: short for a method and its parameters.
    call: Option<String>,
    get: Option<String>,
    read: Option<String>,
    skill: Option<String>,
    pub(super) arguments: Option<Box<RawValue>>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    decision: Option<Verdict>,
    /// A part of the reason.
    why: Option<String>,
    /// The member of an answer that has these items.
    pub(super) list: Option<String>,
    #[serde(default)]
    items: Vec<Box<RawValue>>,
    /// The names of those that the caller sees.
    visible: Option<Vec<String>>,
    /// Whether nobody sees the list, as it cannot be judged.
    #[serde(default)]
    withheld: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Allow,
    Deny,
    /// The configuration is refused.
    Refused,
}

#[test]
fn every_vector_is_decided_as_it_says_and_as_toolhive_decides() {
    let mut toolhive: BTreeMap<String, Vec<Vec<Value>>> = serde_json::from_str(TOOLHIVE).unwrap();
    let (mut rows, mut wrong, mut deviations) = (0, Vec::new(), Vec::new());
    for (name, text) in FILES {
        let file: File = serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let recorded = toolhive.remove(name).unwrap_or_default();
        let lengths: Vec<_> = file.cases.iter().map(|case| case.rows.len()).collect();
        let recorded_lengths: Vec<_> = recorded.iter().map(Vec::len).collect();
        assert_eq!(
            lengths, recorded_lengths,
            "{name} has changed: hack/cedar-vectors/run.sh records what ToolHive decides"
        );
        for (number, (case, recorded)) in file.cases.iter().zip(&recorded).enumerate() {
            let policies = policies(case);
            for (row_number, (row, recorded)) in case.rows.iter().zip(recorded).enumerate() {
                rows += 1;
                let place = format!("{name}, case {number}, row {row_number}");
                let (answer, reason) = answer(&policies, row);
                if answer != stated(row) && !(answer == "error" && stated(row) == "deny") {
                    wrong.push(format!("{place}: {answer}: {reason}"));
                }
                if row.why.as_ref().is_some_and(|why| !reason.contains(why)) {
                    wrong.push(format!("{place}: for another reason: {reason}"));
                }
                if answer != *recorded {
                    deviations
                        .push(row.name.clone().unwrap_or(format!("{place}: {answer}, and {recorded} of ToolHive")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {rows} rows:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows >= 600, "{rows}");
    assert_eq!(toolhive.into_keys().collect::<Vec<_>>(), [""; 0]);
    deviations.sort();
    let mut named: Vec<_> = DEVIATIONS.iter().flat_map(|(_, names)| *names).copied().collect();
    named.sort_unstable();
    assert_eq!(deviations, named);
    for (subject, _) in DEVIATIONS {
        assert!(include_str!("../../src/lib.rs").contains(&format!("\n//! | {subject} | ")), "{subject}");
    }
}

pub(super) fn policies(case: &Case) -> Result<Policies, PolicyError> {
    let entities_json = Value::from(case.entities.clone()).to_string();
    let config = CedarConfig { policies: case.policies.clone(), entities_json, ..case.config.clone() };
    Policies::parse(&config, &case.server)
}

/// The answer that a row states.
fn stated(row: &Row) -> Value {
    match (row.decision, &row.visible) {
        (Some(decision), None) => json!(decision),
        (None, Some(visible)) => json!(visible),
        (None, None) if row.withheld => json!("withheld"),
        _ => panic!("a row states one answer: {row:?}"),
    }
}

/// Our answer to a row, and its reason where that is a denial.
fn answer(policies: &Result<Policies, PolicyError>, row: &Row) -> (Value, String) {
    let policies = match policies {
        Ok(policies) => policies,
        Err(error) => return (json!("refused"), error.to_string()),
    };
    let caller = caller(policies, row);
    if let Some(list) = &row.list {
        return (visible(policies, &caller.unwrap(), list, row).map_or(json!("withheld"), Value::from), String::new());
    }
    match caller.and_then(|caller| decide(policies, &caller, row)) {
        Ok(()) => (json!("allow"), String::new()),
        Err(denial @ Denial::Failed(_)) => (json!("error"), denial.to_string()),
        Err(denial) => (json!("deny"), denial.to_string()),
    }
}

pub(super) fn caller(policies: &Policies, row: &Row) -> Result<Caller, Denial> {
    let default = json!({"sub": "u1"}).as_object().unwrap().clone();
    Caller::new(policies, row.claims.as_ref().unwrap_or(&default), source(row.source.as_deref()))
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

fn visible(policies: &Policies, caller: &Caller, list: &str, row: &Row) -> Result<Vec<String>, &'static str> {
    let mut list = read(list, &row.items)?;
    list.retain(|entry| Question::of(entry).map(|question| policies.decide(caller, &question).is_ok()))?;
    Ok(list.entries().iter().map(|entry| entry.name().to_owned()).collect())
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
pub(super) fn known(lists: &[Vec<Box<RawValue>>]) -> KnownHints {
    let mut known = KnownHints::default();
    for list in lists {
        for tool in read("tools", list).unwrap().entries() {
            let _ = known.learn(tool.name(), Question::of(tool).unwrap().hints);
        }
    }
    known
}

pub(super) fn message(row: &Row) -> String {
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
    assert!(!known.learn("x", Hints::default()));
    assert_eq!(known.of("x"), Some(Hints::default()));
}

#[test]
fn hints_of_tools_without_end_are_bounded() {
    let mut known = KnownHints::default();
    let (long, longer) = ("x".repeat(1 << 10), "x".repeat((1 << 10) + 1));
    let full = (0..19_999).map(|number| number.to_string()).chain([long.clone()]);
    assert!(full.into_iter().all(|name| !known.learn(&name, Hints::default())));
    assert!(!known.learn(&longer, Hints::default()), "nothing is forgotten for a name that is not kept");
    assert!(!known.learn("0", Hints::default()), "nothing is forgotten for a tool that is known");
    assert_eq!([known.of(&long), known.of(&longer)], [Some(Hints::default()), None]);
    assert!(known.learn("one more", Hints::default()));
    assert_eq!([known.of("one more"), known.of("0")], [Some(Hints::default()), None]);
}
