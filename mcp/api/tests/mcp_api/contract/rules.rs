//! Every CEL rule of the contract admits one object and refuses another, in these words.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::contract::{
    api_server::Judge,
    cases::{self, Case},
    document::{Contract, KINDS, merge},
    examples,
};

#[tokio::test]
async fn every_rule_of_the_contract_admits_one_object_and_refuses_another() {
    let judge = Judge::in_namespace("rules").await;
    for kind in KINDS.iter() {
        judge.store_example(kind).await;
    }
    let mut problems = Vec::new();
    for case in cases::all() {
        let Case { kind, path, rule, .. } = &case;
        let [admitted, refused] = [&case.admitted, &case.refused].map(|over| {
            let mut object = bare(kind);
            merge(&mut object, over);
            object
        });
        if let Err(said) = judge.judge(kind, path, &admitted).await {
            problems.push(format!("{kind} {path} {rule}: not admitted: {said:?}"));
        }
        match judge.judge(kind, path, &refused).await {
            Ok(_) => problems.push(format!("{kind} {path} {rule}: admitted")),
            // Rules on what it lies in, and beside it, may be broken with it; another field must not be offended.
            Err(said) if said.contains(&case.complaint(&refused)) && said.iter().all(|text| case.is_about(text)) => {}
            Err(said) => {
                problems.push(format!(
                    "{kind} {path} {rule}:\n  expected {}\n  said     {said:?}",
                    case.complaint(&refused)
                ));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_rule_of_the_contract_has_a_case() {
    let tested: BTreeSet<(String, String, String)> =
        cases::all().into_iter().map(|case| (case.kind.into(), case.path, case.rule.into())).collect();
    let mut contract = BTreeSet::new();
    for kind in KINDS.iter() {
        for (path, says) in Contract::of(kind).stored_fields() {
            let rules = says.get("cel").and_then(Value::as_array).into_iter().flatten().map(|rule| &rule["message"]);
            for text in rules.filter_map(Value::as_str) {
                contract.insert((kind.to_owned(), path.clone(), text.to_owned()));
            }
        }
    }
    assert_eq!(tested, contract);
}

/// The least that is admitted.
fn bare(kind: &str) -> Value {
    let mut object = examples::of(kind).remove(0);
    object["spec"] = match kind {
        "MCPAuthzConfig" => json!({"type": "httpv1", "config": {}}),
        "MCPExternalAuthConfig" => json!({"type": "unauthenticated"}),
        "MCPOIDCConfig" => json!({"type": "inline", "inline": {"issuer": "https://idp.example"}}),
        "MCPRemoteProxy" => json!({"remoteUrl": "https://mcp.example/mcp"}),
        "MCPServer" => json!({"image": "registry.example/server:1"}),
        "MCPTelemetryConfig" => json!({}),
        "VirtualMCPServer" => json!({"groupRef": {"name": "group"}, "incomingAuth": {"type": "anonymous"}}),
        _ => json!({"validating": [{"name": "policy", "url": "https://policy.example"}]}),
    };
    object
}
