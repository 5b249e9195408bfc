//! The generated CRDs say what the contract says: nothing is missing and nothing extra.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

use crate::contract::document::{Contract, KINDS, contracts};

/// A path on which our schema and the contract's are meant to differ.
struct Difference {
    kind: &'static str,
    path: String,
    /// What our schema says there; `None` when it has no such path.
    ours: Option<Value>,
    /// Why.
    reason: &'static str,
}

/// The paths that our kinds have and upstream's do not, and why: kinds, a reason, and what the schema says at each path.
fn additions() -> Vec<(&'static [&'static str], &'static str, Value)> {
    let workloads = json!({
        ".status.referencingWorkloads": {"type": "array"},
        ".status.referencingWorkloads[]": {"type": "object", "required": ["kind", "name"]},
        ".status.referencingWorkloads[].kind": {"type": "string"},
        ".status.referencingWorkloads[].name": {"type": "string"},
    });
    let servers = json!({
        ".status.referencingServers": {"type": "array"}, ".status.referencingServers[]": {"type": "string"},
    });
    let of_proxies = json!({
        ".spec.webhookConfigRef": {"type": "object", "required": ["name"]},
        ".spec.webhookConfigRef.name": {"type": "string"},
        ".status.webhookConfigHash": {"type": "string"},
    });
    let mut selectors = json!({});
    for list in ["mutating", "validating"] {
        selectors[format!(".spec.{list}[].mode")] = json!({"type": "string", "enum": ["enforce", "shadow"]});
        selectors[format!(".spec.{list}[].match")] = json!({"type": "object"});
        for member in ["methods", "principals", "tools"] {
            let path = format!(".spec.{list}[].match.{member}");
            selectors[format!("{path}[]")] = json!({"type": "string", "minLength": 1, "maxLength": 256});
            selectors[path] = json!({"type": "array", "minItems": 1, "maxItems": 64});
        }
    }
    let tried = json!({
        ".spec.shadowPoliciesRef": {"type": "object", "required": ["name"]},
        ".spec.shadowPoliciesRef.name": {"type": "string", "minLength": 1},
    });
    let blocks = "shows what blocks a deletion without reading the log; upstream dropped it";
    let configs = &[
        "MCPAuthzConfig",
        "MCPExternalAuthConfig",
        "MCPOIDCConfig",
        "MCPTelemetryConfig",
        "MCPToolConfig",
        "MCPWebhookConfig",
    ];
    vec![
        (configs, blocks, workloads),
        (&["MCPWebhookConfig"], blocks, servers),
        (
            &["MCPWebhookConfig"],
            "asks each webhook only about what it is for, and tries one before it decides",
            selectors,
        ),
        (&["MCPRemoteProxy", "MCPServer"], "tries policies before they decide", tried),
        (&["MCPRemoteProxy"], "webhooks guard remote servers, too", of_proxies),
    ]
}

fn allowed_differences() -> Vec<Difference> {
    let server_set = "the API server adds it to every kind, with its own description";
    let mut allowed = Vec::new();
    for (kinds, reason, paths) in additions() {
        for (path, ours) in paths.as_object().unwrap() {
            let (path, ours) = (path.clone(), Some(ours.clone()));
            allowed.extend(kinds.iter().map(|kind| Difference {
                kind,
                path: path.clone(),
                ours: ours.clone(),
                reason,
            }));
        }
    }
    for kind in KINDS.iter() {
        for path in [".apiVersion", ".kind", ".metadata"] {
            allowed.push(Difference { kind, path: path.to_owned(), ours: None, reason: server_set });
        }
    }
    allowed
}

#[test]
fn every_path_of_every_version_says_what_the_contract_says_and_there_is_no_other_path() {
    let mut problems = Vec::new();
    let mut unused: Vec<Difference> = allowed_differences();
    for crd in mcp_api::crds() {
        let kind = crd.spec.names.kind.clone();
        let contract = Contract::of(&kind);
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap();
            let mut ours = BTreeMap::new();
            flatten("", &serde_json::to_value(schema).unwrap(), &mut ours);
            let theirs = contract.fields(&version.name);
            let allowed = |difference: &Difference, path: &str| {
                difference.kind == kind
                    && difference.path == path
                    && difference.ours == ours.get(path).map(|says| json!(says))
            };
            let paths: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            for path in paths.into_iter().filter(|path| ours.get(*path) != theirs.get(*path)) {
                if !allowed_differences().iter().any(|difference| allowed(difference, path)) {
                    let [our, their] = [&ours, &theirs].map(|fields| json!(fields.get(path)));
                    problems.push(format!("{kind} {} {path}:\n  ours     {our}\n  contract {their}", version.name));
                }
                unused.retain(|difference| !allowed(difference, path));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let unused: Vec<_> = unused.iter().map(|it| format!("{} {} ({})", it.kind, it.path, it.reason)).collect();
    assert!(unused.is_empty(), "allowed to differ, but does not: {unused:?}");
}

#[test]
fn names_versions_columns_and_subresources_are_the_contract_s() {
    for crd in mcp_api::crds() {
        let Contract(contract) = Contract::of(&crd.spec.names.kind);
        let ours = serde_json::to_value(&crd.spec).unwrap();
        assert_eq!(ours["group"], contract["group"]);
        assert_eq!(ours["scope"], contract["scope"]);
        let mut names = ours["names"].clone();
        // The API server derives the list kind when it is absent.
        names["listKind"] = json!(format!("{}List", crd.spec.names.kind));
        assert_eq!(names, contract["names"]);
        assert_eq!(ours["conversion"], Value::Null, "the versions differ in name only");

        let versions = ours["versions"].as_array().unwrap();
        let theirs = contract["versions"].as_object().unwrap();
        assert_eq!(versions.len(), theirs.len());
        for version in versions {
            let name = version["name"].as_str().unwrap();
            let their = &theirs[name];
            for key in ["served", "storage", "deprecationWarning", "subresources", "selectableFields"] {
                assert_eq!(version[key], their[key], "{} {name} {key}", crd.spec.names.kind);
            }
            assert_eq!(version["additionalPrinterColumns"], their["printerColumns"], "{} {name}", crd.spec.names.kind);
            assert_eq!(version["deprecated"].as_bool().unwrap_or(false), their["deprecated"], "{name}");
        }
    }
}

#[test]
fn every_field_is_explained() {
    for crd in mcp_api::crds() {
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap();
            let mut silent = Vec::new();
            unexplained("", &serde_json::to_value(schema).unwrap(), &mut silent);
            assert!(silent.is_empty(), "{} {}: no description at {silent:?}", crd.spec.names.kind, version.name);
        }
    }
}

#[test]
fn definitions_are_complete_and_carry_the_label_that_allows_storage_migration() {
    let crds = mcp_api::crds();
    let names: Vec<_> = crds.iter().filter_map(|crd: &CustomResourceDefinition| crd.metadata.name.as_deref()).collect();
    let contract = KINDS.iter().map(|kind| format!("{}.toolhive.stacklok.dev", Contract::of(kind).plural()));
    assert_eq!(names, contract.collect::<Vec<_>>());
    assert!(names.is_sorted());
    assert_eq!(contracts(), KINDS.iter().cloned().collect(), "a contract whose kind is not registered");
    for crd in &crds {
        let label = &crd.metadata.labels.as_ref().unwrap()["toolhive.stacklok.dev/auto-migrate-storage-version"];
        assert_eq!(label, "true");
    }
}

/// Turns a schema into what it says, by path. Every key of it has to be understood, so that nothing extra hides.
fn flatten(path: &str, schema: &Value, into: &mut BTreeMap<String, Map<String, Value>>) {
    let mut says = Map::new();
    for (key, value) in schema.as_object().unwrap() {
        let name = match key.as_str() {
            "description" => continue,
            "properties" => {
                for (name, property) in value.as_object().unwrap() {
                    flatten(&format!("{path}.{name}"), property, into);
                }
                continue;
            }
            "items" => {
                flatten(&format!("{path}[]"), value, into);
                continue;
            }
            "additionalProperties" => {
                flatten(&format!("{path}{{}}"), value, into);
                continue;
            }
            "type" | "required" | "default" | "enum" | "pattern" | "format" | "minLength" | "maxLength" | "minimum"
            | "maximum" | "minItems" | "maxItems" | "maxProperties" => key,
            "x-kubernetes-list-type" => "listType",
            "x-kubernetes-list-map-keys" => "listMapKeys",
            "x-kubernetes-map-type" => "mapType",
            "x-kubernetes-preserve-unknown-fields" => "preserveUnknown",
            "x-kubernetes-validations" => "cel",
            other => panic!("{path}: the contract has no word for {other}"),
        };
        says.insert(name.into(), comparable(name, value));
    }
    into.insert(if path.is_empty() { ".".into() } else { path.into() }, says);
}

/// Evens out what means the same: the order of required members, and 1.0 for 1.
fn comparable(name: &str, value: &Value) -> Value {
    match (name, value) {
        ("required", Value::Array(members)) => {
            let mut members = members.clone();
            members.sort_by_key(|member| member.as_str().map(str::to_owned));
            Value::Array(members)
        }
        #[expect(clippy::cast_possible_truncation, reason = "bounds are small whole numbers")]
        ("minimum" | "maximum", Value::Number(bound)) => json!(bound.as_f64().unwrap() as i64),
        _ => value.clone(),
    }
}

fn unexplained(path: &str, schema: &Value, into: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if property["description"].as_str().is_none_or(|text| text.len() < 10) {
            into.push(path.clone());
        }
        unexplained(&path, property, into);
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[key].is_object() {
            unexplained(&format!("{path}{suffix}"), &schema[key], into);
        }
    }
}
