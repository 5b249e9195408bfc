//! Limits on hostile objects and reviews: a client that reaches the webhook can send anything.

use std::collections::BTreeMap;

use kube::CustomResource;
use portcullis_convert::{Converted, Hub, PROBLEM, Review};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::kinds::nasty;
use crate::{convert_text, read};

fn v2(spec: &str) -> Converted {
    let object = format!(
        r#"{{"apiVersion":"demo.example/v2","kind":"Nasty","metadata":{{"name":"n"}},"spec":{{"host":"h","replicas":1,"mode":"Auto",{spec}}}}}"#
    );
    convert_text(&nasty::engine(), &object, "v1")
}

// Each value of a document takes up to a thousand times the bytes that it came in.
#[test]
fn what_is_too_large_for_a_document_goes_over_as_text() {
    for (spec, message) in [
        (format!(r#""new":[{}0]"#, "0,".repeat(200_000)), ".: made of more than 131072 values"),
        (format!(r#""new":[{}0]"#, "{},".repeat(70_000)), ".: made of more than 131072 values"),
        (format!(r#""new":"{}""#, "x".repeat(9_000_000)), ".: larger than 8388608 bytes"),
        (format!(r#""note":"{}""#, "x".repeat(9_000_000)), ".: larger than 8388608 bytes"),
    ] {
        let converted = v2(&spec);
        assert_eq!(converted.problem.as_ref().map(ToString::to_string).as_deref(), Some(message));
        assert!(converted.object.contains(&spec));
    }
    // A known list that loses nothing needs no document, so no limit applies.
    let converted = v2(&format!(r#""extra":[{}0]"#, "0,".repeat(200_000)));
    assert_eq!(converted.problem, None);
}

macro_rules! named {
    ($module:ident, $version:literal) => {
        mod $module {
            use super::*;

            #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
            #[kube(group = "demo.example", version = $version, kind = "Named", namespaced)]
            pub struct NamedSpec {
                pub named: BTreeMap<String, One>,
            }
        }
    };
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct One {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

named!(v1, "v1");
named!(v2, "v2");

// Each of them is found, and put over, by way of the key: 2 GB of keys together.
#[test]
fn many_unknown_members_behind_a_long_key_take_no_long_time() {
    let there = |v1: v1::Named| v2::Named { metadata: v1.metadata, spec: v2::NamedSpec { named: v1.spec.named } };
    let back = |v2: v2::Named| v1::Named { metadata: v2.metadata, spec: v1::NamedSpec { named: v2.spec.named } };
    let engine = Hub::<v2::Named>::new().spoke(there, back).build().unwrap();
    for (key, message) in [
        (100_000, ".: has too many members that v1 does not know"),
        (100, ".: annotations have no room for data of v1 that v2 does not know: it is left out"),
    ] {
        let members: Map<String, Value> = (0..20_000).map(|index| (format!("k{index}"), json!(1))).collect();
        let object = json!({
            "apiVersion": "demo.example/v1", "kind": "Named", "metadata": { "name": "n" },
            "spec": { "named": { "k".repeat(key): members } },
        });
        let there = convert_text(&engine, &object.to_string(), "v2");
        assert_eq!(there.problem.as_ref().map(ToString::to_string).as_deref(), Some(message));
        assert_eq!(read(&there)["spec"], object["spec"]);
    }
}

#[test]
fn a_problem_says_no_more_than_fits_an_annotation() {
    let spec = format!(r#""labels":{{"{}é":5}}"#, "é".repeat(500_000));
    let converted = v2(&spec);
    let problem = converted.problem.clone().unwrap();
    assert!(problem.path.starts_with('…') && problem.path.ends_with('é') && problem.path.len() < 600);
    assert!(read(&converted)["metadata"]["annotations"][PROBLEM].as_str().unwrap().len() < 1000);
}

#[test]
fn a_review_of_more_objects_than_there_can_be_is_refused() {
    let review = |count: usize| {
        let objects = vec!["{}"; count].join(",");
        format!(
            r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{{"uid":"u","desiredAPIVersion":"a/v1","objects":[{objects}]}}}}"#
        )
    };
    assert_eq!(Review::parse(review(1_048_576).as_bytes()).unwrap().objects.len(), 1_048_576);
    let error = Review::parse(review(1_048_577).as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("body is not a conversion review: more than 1048576 objects"), "{error}");
}
