//! Every CEL rule, pattern and format of the contract admits one object and refuses another, in these words.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    api_server::Judge,
    document::{Contract, KINDS},
    examples,
};

/// A rule, and objects on both sides of it.
struct Case {
    kind: &'static str,
    /// The contract's path of the rule.
    path: &'static str,
    /// The rule's message, the pattern or the format.
    rule: &'static str,
    /// What is laid over a bare object (see [`bare`]) as a JSON merge patch.
    admitted: Value,
    refused: Value,
}

impl Case {
    /// What the API server says about `refused`, laid over a bare object to give `object`.
    fn complaint(&self, object: &Value) -> String {
        let field = self.path.trim_start_matches('.').replace("[]", "[0]");
        let says = &Contract::of(self.kind).stored_fields()[self.path];
        let value = object.pointer(&self.path.replace('.', "/").replace("[]", "/0"));
        // A status is checked on its own, and these two texts name the field from there.
        let body = field.strip_prefix("status.").unwrap_or(&field);
        let rule = self.rule;
        let is = |constraint: &str| says.get(constraint).is_some_and(|text| text == rule);
        match value {
            Some(value) if is("pattern") => {
                format!("{field}: Invalid value: {value}: {body} in body should match '{rule}'")
            }
            Some(value) if is("format") => {
                format!("{field}: Invalid value: {value}: {body} in body must be of type {rule}: {value}")
            }
            // Objects and lists are not shown.
            Some(Value::String(value)) => format!("{field}: Invalid value: {value:?}: {rule}"),
            _ => format!("{field}: Invalid value: {rule}"),
        }
    }
}

#[tokio::test]
async fn every_rule_pattern_and_format_of_the_contract_admits_one_object_and_refuses_another() {
    let judge = Judge::in_namespace("rules").await;
    for kind in KINDS {
        judge.store_example(kind).await;
    }
    let mut problems = Vec::new();
    for case in cases() {
        let Case { kind, path, rule, .. } = case;
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
            Err(said) if said == [case.complaint(&refused)] => {}
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
fn every_rule_pattern_and_format_of_the_contract_has_a_case() {
    let tested: BTreeSet<(String, String, String)> =
        cases().iter().map(|case| (case.kind.into(), case.path.into(), case.rule.into())).collect();
    let mut contract = BTreeSet::new();
    for kind in KINDS {
        for (path, says) in Contract::of(kind).stored_fields() {
            let rules = says.get("cel").and_then(Value::as_array).into_iter().flatten().map(|rule| &rule["message"]);
            let texts = [says.get("pattern"), says.get("format")].into_iter().flatten();
            for text in rules.chain(texts).filter_map(Value::as_str).filter(|text| !text.starts_with("int")) {
                contract.insert((kind.to_owned(), path.clone(), text.to_owned()));
            }
        }
    }
    assert_eq!(tested, contract);
}

/// The least that is admitted, and for the status one condition.
fn bare(kind: &str) -> Value {
    let mut object = examples::of(kind).remove(0);
    object["spec"] = match kind {
        "MCPOIDCConfig" => json!({"type": "inline", "inline": {"issuer": "https://idp.example"}}),
        "MCPServer" => json!({"image": "registry.example/server:1"}),
        "MCPToolConfig" => json!({}),
        _ => json!({"validating": [{"name": "policy", "url": "https://policy.example"}]}),
    };
    object
}

/// RFC 7386, but that arrays of one object are merged too.
fn merge(object: &mut Value, over: &Value) {
    match (object, over) {
        (Value::Object(members), Value::Object(over)) => {
            for (name, over) in over {
                if over.is_null() {
                    members.remove(name);
                } else {
                    merge(members.entry(name).or_insert(Value::Null), over);
                }
            }
        }
        (Value::Array(items), Value::Array(over)) if items.len() == 1 && over.len() == 1 => {
            merge(&mut items[0], &over[0]);
        }
        (object, over) => *object = over.clone(),
    }
}

fn cases() -> Vec<Case> {
    let mut cases = mcp_oidc_config();
    cases.extend(mcp_server());
    cases.extend(mcp_webhook_config());
    for kind in KINDS {
        cases.extend(conditions(kind));
    }
    cases
}

fn mcp_oidc_config() -> Vec<Case> {
    let case = |path, rule, admitted: Value, refused: Value| Case {
        kind: "MCPOIDCConfig",
        path,
        rule,
        admitted: json!({"spec": admitted}),
        refused: json!({"spec": refused}),
    };
    let bundle = |name: &str| json!({"inline": {"caBundleRef": {"configMapRef": {"name": name, "key": "ca.crt"}}}});
    vec![
        case(
            ".spec",
            "kubernetesServiceAccount must be set when type is 'kubernetesServiceAccount', and must not be set otherwise",
            json!({"type": "kubernetesServiceAccount", "inline": null, "kubernetesServiceAccount": {}}),
            json!({"type": "kubernetesServiceAccount", "inline": null}),
        ),
        case(
            ".spec",
            "inline must be set when type is 'inline', and must not be set otherwise",
            json!({"type": "inline"}),
            json!({"type": "inline", "inline": null}),
        ),
        case(
            ".spec.inline.caBundleRef",
            "configMapRef.name is required and must be non-empty",
            bundle("provider-ca"),
            bundle(""),
        ),
    ]
}

fn mcp_server() -> Vec<Case> {
    let case = |path, rule, admitted: Value, refused: Value| Case {
        kind: "MCPServer",
        path,
        rule,
        admitted: json!({"spec": admitted}),
        refused: json!({"spec": refused}),
    };
    let bucket = json!({"maxTokens": 10, "refillPeriod": "1m0s"});
    let redis = json!({"provider": "redis", "address": "redis:6379"});
    let ca = json!({"name": "redis-ca", "key": "ca.crt"});
    let per_tool = json!({"tools": [{"name": "fetch", "perUser": bucket}]});
    let policies = json!({"policies": ["permit(principal, action, resource);"]});
    vec![
        case(
            ".spec",
            "authzConfig and authzConfigRef are mutually exclusive; use authzConfigRef to reference a shared MCPAuthzConfig",
            json!({"authzConfigRef": {"name": "policies"}}),
            json!({"authzConfigRef": {"name": "policies"}, "authzConfig": {"configMap": {"name": "policies"}}}),
        ),
        case(
            ".spec",
            "rateLimiting requires sessionStorage with provider 'redis'",
            json!({"rateLimiting": {"shared": bucket}, "sessionStorage": redis}),
            json!({"rateLimiting": {"shared": bucket}, "sessionStorage": {"provider": "memory"}}),
        ),
        case(
            ".spec",
            "rateLimiting.perUser requires authentication (oidcConfigRef or externalAuthConfigRef)",
            json!({
                "rateLimiting": {"perUser": bucket}, "sessionStorage": redis,
                "oidcConfigRef": {"name": "oidc", "audience": "server"},
            }),
            json!({"rateLimiting": {"perUser": bucket}, "sessionStorage": redis}),
        ),
        case(
            ".spec",
            "per-tool perUser rate limiting requires authentication (oidcConfigRef or externalAuthConfigRef)",
            json!({"rateLimiting": per_tool, "sessionStorage": redis, "externalAuthConfigRef": {"name": "external"}}),
            json!({"rateLimiting": per_tool, "sessionStorage": redis}),
        ),
        case(
            ".spec.authzConfig",
            "configMap must be set when type is 'configMap', and must not be set otherwise",
            json!({"authzConfig": {"type": "configMap", "configMap": {"name": "policies"}}}),
            json!({"authzConfig": {"type": "configMap"}}),
        ),
        case(
            ".spec.authzConfig",
            "inline must be set when type is 'inline', and must not be set otherwise",
            json!({"authzConfig": {"type": "inline", "inline": policies}}),
            json!({"authzConfig": {"configMap": {"name": "policies"}, "inline": policies}}),
        ),
        case(
            ".spec.authzConfig.groupEntityType",
            "^[A-Za-z_][A-Za-z0-9_]*$",
            json!({"authzConfig": {"configMap": {"name": "policies"}, "groupEntityType": "_Team1"}}),
            json!({"authzConfig": {"configMap": {"name": "policies"}, "groupEntityType": "1Team"}}),
        ),
        case(
            ".spec.authzConfig.inline.primaryUpstreamProvider",
            "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
            json!({"authzConfig": {"type": "inline", "inline": with(&policies, "primaryUpstreamProvider", "my-idp")}}),
            json!({"authzConfig": {"type": "inline", "inline": with(&policies, "primaryUpstreamProvider", "my-idp-")}}),
        ),
        case(
            ".spec.proxyReadTimeout",
            "duration",
            json!({"proxyReadTimeout": "1m30s"}),
            json!({"proxyReadTimeout": "soon"}),
        ),
        case(
            ".spec.proxyReadTimeout",
            "proxyReadTimeout must be non-negative",
            json!({"proxyReadTimeout": "0s"}),
            json!({"proxyReadTimeout": "-1ns"}),
        ),
        case(
            ".spec.rateLimiting",
            "at least one of shared, perUser, or tools must be configured",
            json!({"rateLimiting": {"shared": bucket}, "sessionStorage": redis}),
            json!({"rateLimiting": {"tools": []}, "sessionStorage": redis}),
        ),
        case(
            ".spec.rateLimiting.tools[]",
            "at least one of shared or perUser must be configured",
            json!({"rateLimiting": {"tools": [{"name": "fetch", "shared": bucket}]}, "sessionStorage": redis}),
            json!({"rateLimiting": {"tools": [{"name": "fetch"}]}, "sessionStorage": redis}),
        ),
        case(
            ".spec.sessionStorage",
            "address is required",
            json!({"sessionStorage": {"provider": "memory"}}),
            json!({"sessionStorage": {"provider": "redis"}}),
        ),
        case(
            ".spec.sessionStorage",
            "tls is only supported when provider is redis",
            json!({"sessionStorage": with(&redis, "tls", json!({}))}),
            json!({"sessionStorage": {"provider": "memory", "tls": {}}}),
        ),
        case(
            ".spec.sessionStorage",
            "tls.insecureSkipVerify disables certificate verification, so tls.caCertSecretRef would be ignored; set only one",
            json!({"sessionStorage": with(&redis, "tls", json!({"caCertSecretRef": ca, "insecureSkipVerify": false}))}),
            json!({"sessionStorage": with(&redis, "tls", json!({"caCertSecretRef": ca, "insecureSkipVerify": true}))}),
        ),
        case(
            ".spec.sessionStorage",
            "tls.caCertSecretRef requires a non-empty name and key",
            json!({"sessionStorage": with(&redis, "tls", json!({"caCertSecretRef": ca}))}),
            json!({"sessionStorage": with(&redis, "tls", json!({"caCertSecretRef": {"name": "redis-ca", "key": ""}}))}),
        ),
    ]
}

fn with(object: &Value, member: &str, value: impl Into<Value>) -> Value {
    let mut object = object.clone();
    object[member] = value.into();
    object
}

fn mcp_webhook_config() -> Vec<Case> {
    let case = |path, rule, admitted: Value, refused: Value| Case {
        kind: "MCPWebhookConfig",
        path,
        rule,
        admitted: json!({"spec": admitted}),
        refused: json!({"spec": refused}),
    };
    let webhook =
        |member: &str, value: &str| with(&json!({"name": "policy", "url": "https://policy.example"}), member, value);
    vec![
        case(
            ".spec",
            "at least one validating or mutating webhook must be defined",
            json!({"validating": null, "mutating": [webhook("name", "policy")]}),
            json!({"validating": [], "mutating": []}),
        ),
        case(
            ".spec.mutating[].timeout",
            "duration",
            json!({"mutating": [webhook("timeout", "1500ms")]}),
            json!({"mutating": [webhook("timeout", "soon")]}),
        ),
        case(
            ".spec.mutating[].url",
            "uri",
            json!({"mutating": [webhook("url", "https://policy.example:8443/check?x=y")]}),
            json!({"mutating": [webhook("url", "policy.example")]}),
        ),
        case(
            ".spec.validating[].timeout",
            "duration",
            json!({"validating": [webhook("timeout", "30s")]}),
            json!({"validating": [webhook("timeout", "soon")]}),
        ),
        case(
            ".spec.validating[].url",
            "uri",
            json!({"validating": [webhook("url", "https://policy.example/check")]}),
            json!({"validating": [webhook("url", "policy.example")]}),
        ),
    ]
}

fn conditions(kind: &'static str) -> Vec<Case> {
    let case = |path, rule, member: &str, admitted: &str, refused: &str| Case {
        kind,
        path,
        rule,
        admitted: json!({"status": {"conditions": [{member: admitted}]}}),
        refused: json!({"status": {"conditions": [{member: refused}]}}),
    };
    vec![
        case(
            ".status.conditions[].lastTransitionTime",
            "date-time",
            "lastTransitionTime",
            "2026-01-02T03:04:05Z",
            "yesterday",
        ),
        case(
            ".status.conditions[].reason",
            "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            "reason",
            "Ready_1",
            "not ready",
        ),
        case(
            ".status.conditions[].type",
            r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            "type",
            "example.com/Ready",
            "is it ready",
        ),
    ]
}
