//! Laws of decisions without arguments: those with arguments never contradict them.

use std::collections::BTreeSet;

use mcp_authz::{Asks, Caller, ClaimSource, Denial, Feature, Outlook, Outlooks, Policies, Question, asks};
use mcp_runconfig::CedarConfig;
use mcp_wire::Message;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::vectors::{FILES, File, caller, known, message, policies};

/// The refusals of arguments that cannot be read, whatever policies say.
const UNREADABLE: [&str; 3] = ["its arguments", "it has too many arguments", "two of its arguments"];

fn check(outlook: &Outlook, outlooks: &Outlooks<'_>, decided: &Decided<'_>) -> Result<(), String> {
    let Decided { policies, caller, question } = decided;
    let decision = policies.decide(caller, question);
    if matches!(&decision, Err(Denial::Refused(reason)) if UNREADABLE.iter().any(|start| reason.starts_with(start))) {
        return Ok(());
    }
    let permitting = outlooks.permitting(caller, question);
    let agrees = match outlook {
        Outlook::Permitted(by) => decision.is_ok() && *by == permitting,
        Outlook::Denied(_) => decision.is_err(),
        Outlook::DependsOn(on) => !on.is_empty(),
    };
    let has_reason = decision.is_err() || !permitting.is_empty();
    if agrees && has_reason { Ok(()) } else { Err(format!("{outlook:?}, and {decision:?} by {permitting:?}")) }
}

struct Decided<'a> {
    policies: &'a Policies,
    caller: &'a Caller,
    question: Question<'a>,
}

/// Calls `law` with each call of the vectors, its outlook, and the texts of its policies.
fn each(mut law: impl FnMut(&str, &Outlooks<'_>, &Outlook, Decided<'_>, &[String], &[Box<RawValue>])) {
    for (name, text) in FILES {
        let file: File = serde_json::from_str(text).unwrap();
        let all: Vec<_> =
            file.cases.iter().flat_map(|case| &case.rows).filter_map(|row| row.arguments.clone()).collect();
        for (number, case) in file.cases.iter().enumerate() {
            let Ok(policies) = policies(case) else { continue };
            let outlooks = Outlooks::new(&policies);
            for (at, row) in case.rows.iter().enumerate().filter(|(_, row)| row.list.is_none()) {
                let Ok(caller) = caller(&policies, row) else { continue };
                let text = message(row);
                let message = Message::parse_strict(text.as_bytes()).unwrap();
                let Asks::Questions(questions) = asks(&message) else { continue };
                for question in questions {
                    let hints = known(&row.before).of(&question.id).unwrap_or_default();
                    let question = Question { hints, backend: row.backend.as_deref().map(Into::into), ..question };
                    let outlook = outlooks.of(&caller, &question);
                    let place = format!("{name}, case {number}, row {at}");
                    let decided = Decided { policies: &policies, caller: &caller, question };
                    law(&place, &outlooks, &outlook, decided, &case.policies, &all);
                }
            }
        }
    }
}

#[test]
fn no_arguments_of_the_vectors_contradict_an_outlook() {
    let (mut rows, mut depending, mut wrong) = (0, 0, Vec::new());
    each(|place, outlooks, outlook, decided, _, all| {
        rows += 1;
        depending += usize::from(matches!(outlook, Outlook::DependsOn(_)));
        let own = decided.question.arguments;
        for arguments in all.iter().map(|raw| Some(&**raw)).chain([None, own]) {
            let question = Question { arguments, ..decided.question.clone() };
            let problem = check(outlook, outlooks, &Decided { question, ..decided });
            wrong.extend(problem.err().map(|problem| format!("{place}: {problem}")));
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows > 300 && depending > 50 && depending < rows / 2, "{depending} of {rows} depend on arguments");
}

/// Names and texts that policies look for, out of their own text.
fn words(policies: &[String]) -> (Vec<String>, Vec<String>) {
    let text = policies.concat();
    let mut names = BTreeSet::from(["x".to_owned()]);
    names.extend(
        text.split("arg_")
            .skip(1)
            .map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()),
    );
    let texts = text.split('"').skip(1).step_by(2).map(str::to_owned).chain([String::new()]).collect();
    (names.into_iter().collect(), texts)
}

#[test]
fn no_generated_arguments_contradict_an_outlook() {
    let numbers = |text: &String| text.parse::<f64>().map_or(Value::Null, Value::from);
    each(|place, outlooks, outlook, decided, policies, _| {
        let (names, texts) = words(policies);
        let values = prop::sample::select(texts).prop_flat_map(move |text| {
            let known =
                vec![Value::from(&*text), numbers(&text), json!([text]), json!({"a": text}), true.into(), 1.into()];
            prop::sample::select(known)
        });
        let arguments = prop::collection::btree_map(prop::sample::select(names), values, 0..4);
        let config = ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() };
        let ran = TestRunner::new(config).run(&arguments, |arguments| {
            let arguments: Map<_, _> = arguments.into_iter().collect();
            let raw = to_raw_value(&arguments).unwrap();
            let question = Question { arguments: Some(&raw), ..decided.question.clone() };
            check(outlook, outlooks, &Decided { question, policies: decided.policies, caller: decided.caller })
                .map_err(TestCaseError::fail)
        });
        ran.unwrap_or_else(|error| panic!("{place}: {error}"));
    });
}

fn outlook(policies: &[&str]) -> Outlook {
    let policies = policies.iter().map(|policy| (*policy).to_owned()).collect();
    let policies = Policies::parse(&CedarConfig { policies, ..CedarConfig::default() }, "s").unwrap();
    let claims = json!({"sub": "ann", "groups": ["dev"], "level": "low"}).as_object().unwrap().clone();
    let caller = Caller::new(&policies, &claims, ClaimSource::Request).unwrap();
    Outlooks::new(&policies).of(&caller, &Question::new(Feature::Tool, "echo"))
}

#[test]
fn an_outlook_depends_on_arguments_only_where_they_may_count() {
    let all = "permit(principal, action, resource);";
    let permit = |condition: &str| format!("permit(principal, action, resource) when {{ {condition} }};");
    let forbid = |condition: &str| format!("forbid(principal, action, resource) when {{ {condition} }};");
    let permitted = |policy: &str| Outlook::Permitted(vec![policy.to_owned()]);
    let depends = |policy: &str| Outlook::DependsOn(vec![policy.to_owned()]);
    let forbidden = |policy: &str| Outlook::Denied(Denial::Forbidden(vec![policy.to_owned()]));
    let none = Outlook::Denied(Denial::NoPermit);
    let small = "context has arg_n && context.arg_n == \"1\"";
    for (policies, expected) in [
        (vec![all.to_owned()], permitted("policy0")),
        (vec![permit(small)], depends("policy0")),
        (vec![all.to_owned(), permit(small)], depends("policy1")),
        (vec![all.to_owned(), forbid(small)], depends("policy1")),
        (vec![forbid(small)], none.clone()),
        (vec![permit(small), forbid("true")], forbidden("policy1")),
        (vec![permit(&format!("principal.claim_level == \"high\" && {small}"))], none.clone()),
        (vec![permit(&format!("principal.claim_level == \"low\" && {small}"))], depends("policy0")),
        (vec![permit(&format!("{small} && principal.claim_level == \"high\""))], depends("policy0")),
        (vec![all.to_owned(), forbid(&format!("principal.claim_level == \"high\" && {small}"))], permitted("policy0")),
        (vec![permit("resource.name == \"echo\"")], permitted("policy0")),
        (vec![permit("[Tool::\"echo\"].contains(resource)")], permitted("policy0")),
        (vec![permit("resource == Tool::\"other\"")], none.clone()),
        (vec![permit("resource has arg_n")], depends("policy0")),
        (vec![permit("(if true then resource else principal) has arg_n")], depends("policy0")),
        (vec![permit("context == {}")], depends("policy0")),
        (vec![permit("context.claim_level == \"low\"")], permitted("policy0")),
        (vec![format!("permit(principal in THVGroup::\"ops\", action, resource) when {{ {small} }};")], none.clone()),
        (vec![format!("permit(principal, action, resource is Prompt) when {{ {small} }};")], none.clone()),
        (vec![format!("permit(principal, action, resource in MCP::\"t\") when {{ {small} }};")], none.clone()),
        (vec![format!("permit(principal, action, resource) unless {{ {small} }};")], depends("policy0")),
    ] {
        let texts: Vec<_> = policies.iter().map(String::as_str).collect();
        assert_eq!(outlook(&texts), expected, "{policies:?}");
    }
}

#[test]
fn a_policy_that_fails_before_it_looks_denies_all() {
    let permit = "permit(principal, action, resource);";
    let fails = "forbid(principal, action, resource) when { principal.claim_none == 1 && context has arg_n };";
    let Outlook::Denied(Denial::Failed(failed)) = outlook(&[permit, fails]) else { panic!("it denies") };
    assert_eq!(failed[0].0, "policy1");
    let later = "forbid(principal, action, resource) when { context has arg_n && principal.claim_none == 1 };";
    assert_eq!(outlook(&[permit, later]), Outlook::DependsOn(vec!["policy1".to_owned()]));
}
