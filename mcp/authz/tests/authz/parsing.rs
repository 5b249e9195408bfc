//! Configurations that are refused, and where their errors point.

use mcp_authz::{Caller, ClaimSource, Feature, Policies, PolicyError, Question};
use mcp_runconfig::CedarConfig;
use serde_json::json;

const ALL: &str = "permit(principal, action, resource);";

fn parse(policies: &[&str], entities: &str) -> Result<Policies, PolicyError> {
    let policies = policies.iter().map(|text| (*text).to_owned()).collect();
    let config = CedarConfig { policies, entities_json: entities.to_owned(), ..CedarConfig::default() };
    Policies::parse(&config, "server")
}

#[test]
fn an_error_of_a_policy_has_entry_line_and_column() {
    for (text, line, column) in [
        ("", 1, 1),
        ("permit(principal, action);", 1, 25),
        ("permit(principal, action, resource)", 1, 36),
        ("permit(principal, action, resource)\nwhen {\n  principal has }\n;", 3, 17),
        ("// ünïcode\npermit(principal, äction, resource);", 2, 19),
        ("permit(principal == ?principal, action, resource);", 1, 21),
        ("permit(principal, action, resource) when { nosuch(1) };", 1, 44),
        ("permit(principal, action, resource);\npermit(principal, action, resource);", 2, 1),
        ("# yaml", 1, 1),
    ] {
        let error = parse(&[ALL, text], "").unwrap_err();
        let PolicyError::Policy { entry, line: found_line, column: found_column, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*entry, *found_line, *found_column), (1, line, column), "{text:?}: {error}");
        assert!(error.to_string().starts_with("policies[1] is not one Cedar policy: line "), "{error}");
    }
}

#[test]
fn a_configuration_without_policies_is_refused() {
    assert_eq!(parse(&[], "").unwrap_err(), PolicyError::NoPolicies);
}

#[test]
fn entities_that_are_none_are_refused() {
    for entities in [
        "{}",
        "[1]",
        "[",
        r#"[[{"type":"T","id":"x"},{},[]]]"#,
        r#"[{"attrs":{}}]"#,
        r#"[{"uid":"Tool::\"x\""}]"#,
        r#"[{"uid":{"type":"no type","id":"x"}}]"#,
        r#"[{"uid":{"type":"T","id":"x"},"attrs":{"a":1.5}}]"#,
        r#"[{"uid":{"type":"T","id":"x"},"attrs":{"a":null}}]"#,
        r#"[{"uid":{"type":"T","id":"x"},"attrs":{"a":{"__extn":{"fn":"decimal","arg":"x"}}}}]"#,
        r#"[{"uid":{"type":"T","id":"x"},"attrs":{"a":1}},{"uid":{"type":"T","id":"x"},"attrs":{"a":2}}]"#,
        r#"[{"uid":{"type":"T","id":"x"},"parents":[{"type":"T","id":"y"}]},{"uid":{"type":"T","id":"y"},"parents":[{"type":"T","id":"x"}]}]"#,
    ] {
        let error = parse(&[ALL], entities).unwrap_err();
        assert!(matches!(error, PolicyError::Entities(_)), "{entities}: {error}");
    }
    for entities in
        ["", " ", "null", "[]", r#"[{"uid":{"type":"T","id":"x"}}]"#, r#"[{"uid":{"__entity":{"type":"T","id":"x"}}}]"#]
    {
        assert!(parse(&[ALL], entities).is_ok(), "{entities}");
    }
}

#[test]
fn a_type_of_groups_is_one_name() {
    for (name, usable) in [
        ("", true),
        ("Team", true),
        ("_t1", true),
        ("A::B", false),
        ("1t", false),
        ("a b", false),
        ("in", false),
        ("T\"", false),
    ] {
        let config = CedarConfig {
            policies: vec![ALL.to_owned()],
            group_entity_type: name.to_owned(),
            ..CedarConfig::default()
        };
        assert_eq!(Policies::parse(&config, "").is_ok(), usable, "{name}");
    }
}

#[test]
fn policies_that_read_hints_are_known() {
    for (policy, reads) in [
        (ALL, false),
        ("permit(principal, action, resource) when { resource.readOnlyHint };", true),
        ("permit(principal, action, resource) when { resource has destructiveHint };", true),
        (r#"permit(principal, action, resource) when { resource["idempotent\u{48}int"] };"#, true),
        ("permit(principal, action, resource) unless { if resource has openWorldHint then true else false };", true),
        ("// readOnlyHint\npermit(principal, action, resource);", false),
    ] {
        assert_eq!(parse(&[ALL, policy], "").unwrap().reads_hints(), reads, "{policy}");
    }
}

#[test]
fn no_policy_is_deeper_than_a_stack() {
    // Each form of nesting, as deep as Cedar's parser is let in, and without end.
    let forms: [(&str, &str, &str, usize); 12] = [
        ("(", "true", ")", 60),
        ("!(", "true", ")", 20),
        ("[", "1", "]", 60),
        ("{a:", "1", "}", 60),
        ("!", "true", "", 4),
        ("-", "1", "", 4),
        ("if true then true else ", "true", "", 1_900),
        ("if true then ", "true", " else false", 1_900),
        ("true && ", "true", "", 3_900),
        ("false || ", "true", "", 3_900),
        ("1 + ", "1", "", 3_900),
        ("", "resource", ".a", 3_900),
    ];
    for (open, inner, close, deep) in forms {
        let policy = |levels: usize| {
            let (open, close) = (open.repeat(levels), close.repeat(levels));
            format!("permit(principal, action, resource) when {{ {open}{inner}{close} == true }};")
        };
        let policies = parse(&[&policy(deep)], "").unwrap_or_else(|error| panic!("{open}{close}: {error}"));
        let claims = json!({"sub": "u"}).as_object().unwrap().clone();
        let caller = Caller::new(&policies, &claims, ClaimSource::Request).unwrap();
        let decision = policies.decide(&caller, &Question::new(Feature::Tool, "x"));
        assert_eq!(decision.is_ok(), inner == "true", "{open}{close}: {decision:?}");
        assert!(parse(&[&policy(100_000)], "").is_err(), "{open}{close}");
    }
    let entity = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"[{{"uid":{{"type":"T","id":"x"}},"attrs":{{"a":{open}{close}}}}}]"#)
    };
    assert!(parse(&[ALL], &entity(100)).is_ok());
    assert!(parse(&[ALL], &entity(100_000)).is_err());
}

/// Entities `0`, `1` and so on, each with these parents.
fn family(count: usize, parents: impl Fn(usize) -> Vec<usize>) -> String {
    let uid = |id: usize| json!({"type": "T", "id": id.to_string()});
    let entity = |id| json!({"uid": uid(id), "parents": parents(id).into_iter().map(uid).collect::<Vec<_>>()});
    json!((0..count).map(entity).collect::<Vec<_>>()).to_string()
}

#[test]
fn entities_have_a_bounded_number_of_ancestors() {
    let next = |id: usize| vec![id + 1];
    let beside = |id: usize| vec![10_000 + id % 4, 20_000 + id % 3];
    // Each of two on a level has both of the next one above it: 2^63 ways lead upwards.
    let ladder = |id: usize| (id / 2 * 2 + 2..id / 2 * 2 + 4).collect();
    let wide = |above: usize| move |id: usize| if id < 100 { (1_000..1_000 + above).collect() } else { vec![id % 100] };
    for (entities, refused) in [
        (family(10_000, |_| vec![]), ""),
        (family(10_001, |_| vec![]), "more than 10,000 entities"),
        (family(10_000, beside), ""),
        (family(64, next), ""),
        (family(65, next), "more than 64 levels"),
        (family(10_000, next), "more than 64 levels"),
        (family(10_000, |id| vec![(id + 1) % 10_000]), "an entity is its own ancestor"),
        (family(1, |_| vec![0]), "an entity is its own ancestor"),
        (family(128, ladder), ""),
        (family(130, ladder), "more than 64 levels"),
        (family(900, wide(90)), ""),
        (family(900, wide(200)), "more than 100,000 pairs"),
        (family(20_000, next), "more than 10,000 entities"),
    ] {
        let parsed = parse(&[ALL], &entities);
        let problem = parsed.as_ref().map_or_else(ToString::to_string, |_| String::new());
        let start = entities.get(..100).unwrap_or(&entities);
        assert!(problem.is_empty() == refused.is_empty() && problem.contains(refused), "{start}: {problem}");
    }
}
