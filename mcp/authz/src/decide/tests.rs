//! Decisions are those of Cedar, asked about all policies and all entities at once.

use std::cell::RefCell;
use std::collections::HashSet;

use cedar_policy::{EntityUid, Policy, PolicyId};
use mcp_runconfig::CedarConfig;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, TestRunner};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::*;
use crate::caller;
use crate::{ClaimSource, Feature, Hints};

const CONDITIONS: [&str; 46] = [
    "true",
    "false",
    "principal has claim_level",
    r#"principal.claim_sub == "u1""#,
    "principal.claim_level == decimal(\"1.0\")",
    "principal.claim_level == context.claim_level",
    "principal.claim_odd == principal.claim_odd",
    "principal.claim_odd == context.claim_odd",
    "principal == context.claim_sub",
    r#"context.claim_level.lessThan(decimal("2.0"))"#,
    "context has claim_level",
    "context has thv_claim_source.x",
    "context.thv_claim_source == \"request\"",
    r#"principal in THVGroup::"dev""#,
    r#"principal in THVGroup::"all""#,
    r#"principal is Client in Org::"o""#,
    r#"action == Action::"call_tool""#,
    r#"action in Action::"every""#,
    "action.operation == \"call_tool\"",
    r#"Action::"get_prompt" has operation"#,
    "context has arg_n",
    r#"context.arg_n == decimal("1.0")"#,
    "context.arg_n == resource.arg_n",
    r#"context["arg_t"] like "a*""#,
    "{c: context}.c has arg_n",
    "(if true then context else context) has arg_n",
    "context has arg_n.x",
    "context == {}",
    r#"resource.name == "a""#,
    r#"resource.name like "a*""#,
    "resource has uri",
    "resource.feature == \"tool\"",
    "resource has readOnlyHint && resource.readOnlyHint",
    r#"resource in MCP::"s""#,
    r#"resource in Fleet::"f""#,
    r#"resource in Backend::"b""#,
    r#"resource == Tool::"a""#,
    "[principal, resource].contains(principal)",
    r#"Tool::"a" has power"#,
    r#"Tool::"a" has name"#,
    r#"Tool::"a" in Fleet::"f""#,
    r#"Doc::"d".tool has name"#,
    r#"Doc::"d".tool == resource"#,
    r#"Doc::"d" in Fleet::"f""#,
    r#"Client::"u1" has claim_level"#,
    "principal.claim_none",
];

const SCOPES: [&[&str]; 3] = [
    &[
        "principal",
        r#"principal == Client::"u1""#,
        r#"principal == THVGroup::"dev""#,
        r#"principal in THVGroup::"dev""#,
        r#"principal in THVGroup::"all""#,
        "principal is Client",
        "principal is Other",
        r#"principal is Client in THVGroup::"ops""#,
        r#"principal is Other in THVGroup::"dev""#,
    ],
    &[
        "action",
        r#"action == Action::"call_tool""#,
        r#"action in [Action::"call_tool", Action::"get_prompt"]"#,
        r#"action in Action::"every""#,
    ],
    &[
        "resource",
        r#"resource == Tool::"a""#,
        r#"resource == Prompt::"a""#,
        "resource is Tool",
        "resource is Prompt",
        r#"resource in MCP::"s""#,
        r#"resource in Tool::"a""#,
        r#"resource is Tool in Fleet::"f""#,
    ],
];

fn policies() -> impl Strategy<Value = Vec<String>> {
    let condition = select(&CONDITIONS[..]).prop_map(str::to_owned).prop_recursive(2, 8, 3, |inner| {
        (inner.clone(), inner.clone(), inner, 0..5).prop_map(|(a, b, c, form)| match form {
            0 => format!("({a} && {b})"),
            1 => format!("({a} || {b})"),
            2 => format!("!({a})"),
            3 => format!("(if {a} then {b} else {c})"),
            _ => format!("({a}) == ({b})"),
        })
    });
    let clause = (any::<bool>(), condition)
        .prop_map(|(when, condition)| format!(" {} {{ {condition} }}", if when { "when" } else { "unless" }));
    let [principal, action, resource] = SCOPES.map(|scopes| prop_oneof![Just(scopes[0]), select(scopes)]);
    let policy = (prop::bool::weighted(0.8), principal, action, resource, prop::collection::vec(clause, 0..3));
    let policy = policy.prop_map(|(permits, principal, action, resource, clauses)| {
        let effect = if permits { "permit" } else { "forbid" };
        format!("{effect}({principal}, {action}, {resource}){};", clauses.concat())
    });
    prop::collection::vec(policy, 1..6)
}

fn entities() -> impl Strategy<Value = String> {
    let all = vec![
        json!({"uid": {"type": "Tool", "id": "a"}, "attrs": {"power": 9}, "parents": [{"type": "Fleet", "id": "f"}]}),
        json!({"uid": {"type": "Doc", "id": "d"}, "attrs": {"tool": {"__entity": {"type": "Tool", "id": "a"}}},
            "parents": [{"type": "Tool", "id": "a"}]}),
        json!({"uid": {"type": "Client", "id": "u1"}, "attrs": {"x": 1}, "parents": [{"type": "Org", "id": "o"}]}),
        json!({"uid": {"type": "MCP", "id": "s"}, "parents": [{"type": "Fleet", "id": "f"}]}),
        json!({"uid": {"type": "THVGroup", "id": "dev"}, "parents": [{"type": "THVGroup", "id": "all"}]}),
        json!({"uid": {"type": "Action", "id": "call_tool"}, "parents": [{"type": "Action", "id": "every"}]}),
        json!({"uid": {"type": "Action", "id": "get_prompt"}, "attrs": {"x": 1}}),
    ];
    subsequence(all, 0..=7).prop_map(|entities| Value::from(entities).to_string())
}

fn claims() -> impl Strategy<Value = Map<String, Value>> {
    let claims = json!({"groups": ["dev"], "level": 1, "odd": 0.123_456, "roles": ["ops"]});
    let claims: Vec<_> = claims.as_object().unwrap().clone().into_iter().collect();
    let subject = select(&["u1", "u2"][..]).prop_map(|subject| ("sub".to_owned(), subject.into()));
    (subject, subsequence(claims, 0..=4)).prop_map(|(subject, claims)| claims.into_iter().chain([subject]).collect())
}

/// Questions to one caller, one after the other.
fn questions() -> impl Strategy<Value = Vec<Question<'static>>> {
    let arguments: [Option<&'static RawValue>; 5] =
        [json!({}), json!({"n": 1}), json!({"n": 0.123_456, "t": "ab"}), json!({"n": {}}), Value::Null]
            .map(|value| (!value.is_null()).then(|| &*Box::leak(to_raw_value(&value).unwrap())));
    let hints = [Hints::default(), Hints([Some(true), None, None, None]), Hints([Some(false), None, None, None])];
    let parts =
        (select(&Feature::ALL[..]), select(&["a", "b"][..]), select(arguments.to_vec()), select(hints.to_vec()));
    let question = (parts, any::<bool>()).prop_map(|((feature, id, arguments, hints), backend)| Question {
        arguments,
        hints,
        backend: backend.then(|| "b".into()),
        ..Question::new(feature, id)
    });
    prop::collection::vec(question, 1..8)
}

/// The decision of Cedar's own authorizer, with nothing left out and nothing kept.
fn cedar(
    policies: &Policies,
    set: &PolicySet,
    claims: &Map<String, Value>,
    question: &Question<'_>,
) -> Result<(), Denial> {
    let Policies { types, config, .. } = policies;
    let told = || caller::attributes(claims, ClaimSource::Request, config);
    let arguments = question.arguments.map(|raw| value::named(raw).unwrap()).unwrap_or_default();

    let principal = uid(&types.client, claims["sub"].as_str().unwrap());
    let action = uid(&types.action, question.feature.action());
    let resource = uid(types.of(question.feature), &question.id);
    let groups = caller::groups(claims, config).into_iter().map(|group| uid(&types.group, group));
    let servers =
        [uid(&types.server, "s")].into_iter().chain(question.backend.iter().map(|id| uid(&types.backend, id)));
    let parents = |uid: &EntityUid, more: Vec<_>| -> HashSet<_> {
        policies.configured.ancestors(uid).into_iter().flatten().cloned().chain(more).collect()
    };
    let operation = [("operation".to_owned(), text(question.feature.action()))].into();
    let of_resource = attributes(question, value::arguments(&arguments.0)).into_iter().collect();
    let entities = [
        Entity::new(principal.clone(), told().into_iter().collect(), parents(&principal, groups.collect())).unwrap(),
        Entity::new(action.clone(), operation, parents(&action, Vec::new())).unwrap(),
        Entity::new(resource.clone(), of_resource, parents(&resource, servers.collect())).unwrap(),
    ];
    let entities = policies.configured.clone().upsert_entities(entities, None).unwrap();
    let context = Context::from_pairs(told().into_iter().chain(value::arguments(&arguments.0))).unwrap();
    let request = Request::new(principal, action, resource, context, None).unwrap();
    Verdict::of(&request, set, &entities).into_decision()
}

#[test]
fn decisions_are_those_of_cedar() {
    let outcomes = RefCell::new([0; 4]);
    let cases = (policies(), entities(), claims(), questions());
    let config = Config { cases: 500, failure_persistence: None, ..Config::default() };
    let law = |(policies, entities_json, claims, questions): (_, _, _, Vec<Question<'_>>)| {
        let config = CedarConfig { policies, entities_json, ..CedarConfig::default() };
        let parse = |(entry, text)| Policy::parse(Some(PolicyId::new(format!("policy{entry}"))), text).unwrap();
        let set = PolicySet::from_policies(config.policies.iter().enumerate().map(parse)).unwrap();
        let policies = Policies::parse(&config, "s").unwrap();
        let caller = Caller::new(&policies, &claims, ClaimSource::Request).unwrap();
        for question in questions {
            let expected = cedar(&policies, &set, &claims, &question);
            outcomes.borrow_mut()[match &expected {
                Ok(()) => 0,
                Err(Denial::NoPermit) => 1,
                Err(Denial::Forbidden(_)) => 2,
                Err(_) => 3,
            }] += 1;
            prop_assert_eq!(policies.decide(&caller, &question), expected, "{:?}", question);
        }
        Ok(())
    };
    TestRunner::new(config).run(&cases, law).unwrap();
    assert!(outcomes.borrow().iter().all(|count| *count > 100), "each outcome occurs: {outcomes:?}");
}
