use serde_json::{Value, json};

use super::{Block, Case, auth_server};
use crate::contract::examples;

const KIND: &str = "MCPExternalAuthConfig";

/// The rule on each block: it is there where the type is its own, and nowhere else.
const RULES: [(&str, &str); 8] = [
    ("tokenExchange", "tokenExchange configuration must be set if and only if type is 'tokenExchange'"),
    ("headerInjection", "headerInjection configuration must be set if and only if type is 'headerInjection'"),
    ("bearerToken", "bearerToken configuration must be set if and only if type is 'bearerToken'"),
    ("embeddedAuthServer", "embeddedAuthServer configuration must be set if and only if type is 'embeddedAuthServer'"),
    ("awsSts", "awsSts configuration must be set if and only if type is 'awsSts'"),
    ("upstreamInject", "upstreamInject configuration must be set if and only if type is 'upstreamInject'"),
    ("obo", "obo configuration must be set if and only if type is 'obo'"),
    ("xaa", "xaa configuration must be set if and only if type is 'xaa'"),
];

pub(super) fn cases() -> Vec<Case> {
    let spec = Block::spec(KIND);
    let example = |kind: &str| -> Value {
        let mut all = examples::of(KIND).into_iter().map(|it| it["spec"].clone());
        all.find(|spec| spec["type"] == kind).unwrap()
    };
    let mut cases: Vec<Case> =
        RULES.iter().map(|(kind, rule)| spec.case("", rule, example(kind), json!({"type": kind}))).collect();
    cases.push(spec.case(
        "",
        "no configuration must be set when type is 'unauthenticated'",
        example("unauthenticated"),
        json!({"bearerToken": {"tokenSecretRef": {"name": "a", "key": "b"}}}),
    ));
    let embedded = auth_server::cases(KIND, ".spec.embeddedAuthServer");
    let with_type = |mut value: Value| {
        value["spec"]["type"] = json!("embeddedAuthServer");
        value
    };
    cases.extend(embedded.into_iter().map(|case| Case {
        admitted: with_type(case.admitted),
        refused: with_type(case.refused),
        ..case
    }));
    cases
}
