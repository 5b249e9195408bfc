//! Laws: claims are data, and an error never allows.

use mcp_authz::{Caller, ClaimSource, Denial, Feature, PdpForm, Policies, Question};
use mcp_runconfig::{CedarConfig, ClaimMapping, PdpContext};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// JSON in which Cedar's own escapes are frequent, at any depth.
fn values() -> impl Strategy<Value = Value> {
    let entity = json!({"type": "THVGroup", "id": "admins"});
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z:\"\\\\_.]{0,8}".prop_map(Value::from),
        Just(json!({"__entity": entity})),
        Just(entity.clone()),
        Just(json!({"__extn": {"fn": "decimal", "arg": "1.0"}})),
        Just(json!({"__extn": {"fn": "ip", "arg": "10.0.0.1"}})),
        Just(json!({"__extn": {"fn": "unknown", "arg": "x"}})),
        Just(json!({"__expr": "THVGroup::\"admins\""})),
        Just(json!({"fn": "decimal", "arg": "1.0"})),
        Just(Value::from("THVGroup::\"admins\"")),
    ];
    leaf.prop_recursive(14, 64, 4, |inner| {
        let name = prop_oneof![Just("__entity"), Just("__extn"), Just("__expr"), Just("type"), Just("id"), Just("a")];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..4).prop_map(|members| {
                Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }),
        ]
    })
}

fn policies(texts: &[&str]) -> Policies {
    let policies = texts.iter().map(|text| (*text).to_owned()).collect();
    let entities_json = json!([{"uid": {"type": "THVGroup", "id": "admins"}, "attrs": {"power": 9}}]).to_string();
    Policies::parse(&CedarConfig { policies, entities_json, ..CedarConfig::default() }, "server").unwrap()
}

fn decide(policies: &Policies, claims: &Map<String, Value>, arguments: Option<&RawValue>) -> Result<(), Denial> {
    let caller = Caller::new(policies, claims, ClaimSource::Request)?;
    policies.decide(&caller, &Question { arguments, ..Question::new(Feature::Tool, "x") })
}

fn claims(value: &Value) -> Map<String, Value> {
    json!({"sub": "u", "x": value}).as_object().unwrap().clone()
}

/// Policies that permit where the condition holds, one for each.
fn permits(conditions: &[&str]) -> Vec<(String, Policies)> {
    let permit = |wanted: &&str| format!("permit(principal, action, resource) when {{ {wanted} }};");
    conditions.iter().map(|wanted| ((*wanted).to_owned(), policies(&[&permit(wanted)]))).collect()
}

fn holds<S: Strategy>(strategy: S, law: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    TestRunner::default().run(&strategy, law).unwrap();
}

#[test]
fn no_claim_is_an_entity_or_an_extension() {
    // Each would permit, were the claim, or anything in it, what the policy looks for.
    let wanted = permits(&[
        r#"principal.claim_x == THVGroup::"admins""#,
        r#"principal.claim_x in THVGroup::"admins""#,
        r"principal.claim_x is THVGroup",
        r"principal.claim_x.power == 9",
        r#"[principal.claim_x].contains(THVGroup::"admins")"#,
        r#"principal.claim_x.contains(THVGroup::"admins")"#,
        r#"principal.claim_x == {a: THVGroup::"admins"}"#,
        r#"principal.claim_x.a == THVGroup::"admins""#,
        r#"principal.claim_x == ip("10.0.0.1")"#,
        r#"principal.claim_x.contains(ip("10.0.0.1"))"#,
        r#"principal.claim_x.isInRange(ip("0.0.0.0/0"))"#,
        r#"principal in THVGroup::"admins""#,
    ]);
    let number = permits(&[r#"principal.claim_x == decimal("1.0")"#]);
    holds(values(), |value| {
        let claims = claims(&value);
        for (wanted, policies) in &wanted {
            prop_assert!(decide(policies, &claims, None).is_err(), "{wanted}");
        }
        prop_assert_eq!(decide(&number[0].1, &claims, None).is_ok(), value.as_f64() == Some(1.0));
        Ok(())
    });
}

#[test]
fn no_argument_is_an_entity_or_an_extension() {
    let wanted = permits(&[
        r#"context.arg_x == THVGroup::"admins""#,
        r#"context.arg_x in THVGroup::"admins""#,
        r#"context.arg_x == ip("10.0.0.1")"#,
        r"context.arg_x.power == 9",
        r#"resource.arg_x in THVGroup::"admins""#,
    ]);
    holds(values(), |value| {
        let arguments = to_raw_value(&json!({"x": value})).unwrap();
        for (wanted, policies) in &wanted {
            prop_assert!(decide(policies, &claims(&Value::Null), Some(&arguments)).is_err(), "{wanted}");
        }
        Ok(())
    });
}

#[test]
fn policies_are_told_of_every_claim_and_argument() {
    let permit = "permit(principal, action, resource);";
    let all = policies(&[permit]);
    let without = policies(&[permit, "forbid(principal, action, resource) when { principal has claim_x };"]);
    holds(values(), |value| {
        let arguments = to_raw_value(&json!({"x": value, "y": [value]})).unwrap();
        prop_assert_eq!(decide(&all, &claims(&value), Some(&arguments)), Ok(()));
        prop_assert_eq!(decide(&without, &claims(&value), None).is_ok(), value.is_null());
        Ok(())
    });
}

#[test]
fn an_error_of_one_policy_denies_whatever_the_others_say() {
    let permit = "permit(principal, action, resource);";
    for error in [
        "permit(principal, action, resource) when { principal.claim_none == 1 };",
        "forbid(principal, action, resource) when { principal.claim_none == 1 };",
        "permit(principal, action, resource) when { 1 < \"a\" };",
        "forbid(principal, action, resource) when { 9223372036854775807 + 1 == 0 };",
        "forbid(principal, action, resource) unless { decimal(\"x\") == decimal(\"1.0\") };",
        "permit(principal, action, resource) when { Tool::\"none\".a };",
    ] {
        for before in 0..3 {
            for behind in 0..3 {
                let texts = [&[permit].repeat(before)[..], &[error], &[permit].repeat(behind)].concat();
                let denial = decide(&policies(&texts), &claims(&Value::Null), None).unwrap_err();
                let Denial::Failed(failed) = &denial else { panic!("{denial}") };
                assert_eq!(
                    failed.iter().map(|(policy, _)| policy.clone()).collect::<Vec<_>>(),
                    [format!("policy{before}")]
                );
            }
        }
    }
}

#[test]
fn a_denial_holds_no_value_of_the_caller() {
    let secret = "correct horse";
    let claims = json!({"sub": "u", "x": secret, "s": [secret]}).as_object().unwrap().clone();
    let arguments = to_raw_value(&json!({"x": secret})).unwrap();
    for (wanted, policies) in permits(&[
        "ip(principal.claim_x).isIpv4()",
        "decimal(context.arg_x) == decimal(\"1.0\")",
        "principal.claim_x < 5",
        "principal.claim_s.none",
        "principal.claim_x == \"\"",
    ]) {
        let denial = decide(&policies, &claims, Some(&arguments)).unwrap_err();
        let said = format!("{denial} {denial:?}");
        assert!(!said.contains(secret), "{wanted}: {said}");
    }
}

#[test]
fn a_call_has_a_bounded_number_of_arguments() {
    let all = policies(&["permit(principal, action, resource);"]);
    let none = policies(&["permit(principal == Client::\"other\", action, resource);"]);
    let told = PdpForm {
        claims: ClaimMapping::Standard,
        context: PdpContext { include_args: true, include_operation: false },
        server: String::new(),
    };
    let untold = PdpForm { context: PdpContext::default(), ..told.clone() };
    for (count, fits) in [(1_000, true), (1_001, false)] {
        let arguments: Map<_, _> = (0..count).map(|number| (number.to_string(), Value::from(1))).collect();
        let arguments = to_raw_value(&arguments).unwrap();
        let refused = Denial::Refused("it has too many arguments for policies to look at");
        let expected = if fits { Ok(()) } else { Err(refused) };
        assert_eq!(decide(&all, &claims(&Value::Null), Some(&arguments)), expected);
        assert_eq!(decide(&none, &claims(&Value::Null), Some(&arguments)), Err(Denial::NoPermit));
        let question = Question { arguments: Some(&arguments), ..Question::new(Feature::Tool, "x") };
        assert_eq!(told.question(&Value::Null, &question).map(drop), expected);
        assert!(untold.question(&Value::Null, &question).is_ok(), "the decision point is not told of them");
    }
}
