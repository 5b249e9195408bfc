//! The laws of conversion: what keeps them passes, and each of them is broken by a converter that should break it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::core::crd::merge_crds;
use kube::{CustomResource, CustomResourceExt as _};
use portcullis_convert::Hub;
use portcullis_testing::admission::Reviews;
use portcullis_testing::conversion::{Converter, assert_laws};
use portcullis_webhook::Webhooks;
use portcullis_webhook::conversion::Convert;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A kind whose versions have these schemas for their specs.
fn crd(v1: &Value, v2: &Value) -> CustomResourceDefinition {
    let version = |name: &str, spec: &Value, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema":
            {"type": "object", "required": ["spec"], "properties": {"spec": spec}}}})
    };
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.demo.example"},
        "spec": {"group": "demo.example", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [version("v1", v1, false), version("v2", v2, true)]},
    }))
    .unwrap()
}

/// A converter as a function of the object, which already has its new `apiVersion`, and that version.
struct By<F>(F);

impl<F: Fn(&mut Value, &str)> Converter for By<F> {
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let mut object = object.clone();
        object["apiVersion"] = json!(api_version);
        (self.0)(&mut object, api_version);
        match object["fails"].as_str() {
            Some(problem) => Err(problem.to_owned()),
            None => Ok(object),
        }
    }
}

fn failure(converter: impl Converter, crd: &CustomResourceDefinition) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| assert_laws(&converter, crd))).expect_err("the laws hold");
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| (*panic.downcast_ref::<&str>().unwrap()).to_owned())
}

fn one(name: &str, schema: &Value) -> Value {
    json!({"type": "object", "required": [name], "properties": {name: schema}})
}

fn names() -> CustomResourceDefinition {
    let text = json!({"type": "string", "maxLength": 8});
    crd(
        &one("name", &text),
        &json!({"type": "object", "required": ["first", "last"], "properties": {"first": text, "last": text}}),
    )
}

/// Splits at the first space, and joins again.
fn split(object: &mut Value, to: &str, joined: impl Fn(&str, &str) -> String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    if to.ends_with("v2") && !object["spec"]["name"].is_null() {
        let name = text(&object["spec"]["name"]);
        let (first, last) = name.split_once(' ').unwrap_or((&name, ""));
        object["spec"] = json!({"first": first, "last": last});
    } else if to.ends_with("v1") && object["spec"]["name"].is_null() {
        object["spec"] = json!({"name": joined(&text(&object["spec"]["first"]), &text(&object["spec"]["last"]))});
    }
}

#[test]
fn a_kind_whose_versions_say_the_same_keeps_all_laws() {
    let spec = json!({"type": "object", "properties": {
        "text": {"type": "string", "nullable": true}, "pattern": {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 12},
        "time": {"type": "string", "format": "date-time"}, "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "small": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 5, "exclusiveMaximum": true}, "big": {"type": "integer", "format": "int64"},
        "ratio": {"type": "number", "minimum": 0, "maximum": 1}, "flag": {"type": "boolean", "default": true},
        "level": {"type": "string", "enum": ["low", "high"]}, "even": {"type": "integer", "multipleOf": 2},
        "list": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "string"}}},
        "choice": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    }});
    assert_laws(&By(|_: &mut Value, _: &str| {}), &crd(&spec, &spec));
}

/// First law: every object can be converted.
#[test]
fn an_object_that_cannot_be_converted_is_found_and_shrunk() {
    let schema = one("n", &json!({"type": "integer", "minimum": 0, "maximum": 1000}));
    let fails = By(|object: &mut Value, _: &str| {
        if object["spec"]["n"].as_i64().unwrap() > 7 {
            object["fails"] = json!("n is too large");
        }
    });
    let message = failure(fails, &crd(&schema, &schema));
    assert!(message.contains("every object that the schema admits can be converted to v"), "{message}");
    assert!(message.contains("n is too large"), "{message}");
    assert!(message.contains(r#""spec":{"n":8}"#), "the smallest that fails is shown: {message}");
}

#[test]
fn a_converter_that_is_not_deterministic_is_found() {
    let calls = AtomicU64::new(0);
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let message = failure(
        By(|object: &mut Value, _: &str| object["spec"]["at"] = json!(calls.fetch_add(1, Ordering::Relaxed))),
        &crd(&schema, &schema),
    );
    assert!(message.contains("what is converted to v2 twice is twice the same"), "{message}");
    assert!(message.contains("/spec/at: "), "{message}");
}

#[test]
fn metadata_and_the_version_asked_for_are_watched() {
    let schema = json!({"type": "object"});
    let message = failure(
        By(|object: &mut Value, _: &str| _ = object["metadata"].as_object_mut().unwrap().remove("labels")),
        &crd(&schema, &schema),
    );
    assert!(message.contains("metadata stays as it is") && message.contains("/labels: "), "{message}");
    let message = failure(
        By(|object: &mut Value, _: &str| object["apiVersion"] = json!("demo.example/v1")),
        &crd(&schema, &schema),
    );
    assert!(message.contains("comes out in the version that was asked for"), "{message}");
    assert!(message.contains(r#"/apiVersion: "demo.example/v2" -> "demo.example/v1""#), "{message}");
}

/// Second law, and the guide's own converter: `$"{Firstname} {Lastname}"` puts a space behind a single name.
#[test]
fn a_name_without_a_space_that_comes_back_with_one_is_found() {
    let message = failure(
        By(|object: &mut Value, to: &str| split(object, to, |first, last| format!("{first} {last}"))),
        &names(),
    );
    assert!(message.contains("there and back is nothing, from v1 to v2 and back"), "{message}");
    assert!(message.contains(r#"/spec/name: "" -> " ""#), "{message}");
}

/// Third law: unknown members that are carried to where the schema does not keep them.
#[test]
fn what_the_other_versions_schema_prunes_is_found() {
    let free = one("free", &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    let strict = one("free", &json!({"type": "object"}));
    let message = failure(By(|_: &mut Value, _: &str| {}), &crd(&free, &strict));
    assert!(message.contains("v1 is as it was after an update in v2 that changes nothing"), "{message}");
    assert!(message.contains("v2, pruned and defaulted by its schema") && message.contains("-> absent"), "{message}");
}

/// Fourth law, cluster-api#9375: what is kept beside the object undoes an edit.
#[test]
fn a_stash_that_overwrites_a_newer_edit_is_found() {
    let number = json!({"type": "integer", "minimum": 0, "maximum": 1000});
    let crd = crd(&one("tens", &number), &one("units", &number));
    // The way back restores what was stashed on the way there, whatever happened in between.
    let naive = By(|object: &mut Value, to: &str| {
        if to.ends_with("v1") && object["spec"]["tens"].is_null() {
            let units = object["spec"]["units"].as_i64().unwrap();
            object["metadata"]["annotations"]["conversion.portcullis.dev/stash"] = json!(units.to_string());
            object["spec"] = json!({"tens": units / 10});
        } else if to.ends_with("v2") && object["spec"]["units"].is_null() {
            let tens = object["spec"]["tens"].as_i64().unwrap();
            let stash = object["metadata"]["annotations"]["conversion.portcullis.dev/stash"].take();
            object["metadata"]["annotations"].as_object_mut().map(|all| all.remove("conversion.portcullis.dev/stash"));
            let units = stash.as_str().map_or(tens * 10, |units| units.parse().unwrap());
            object["spec"] = json!({"units": units});
        }
    });
    let message = failure(naive, &crd);
    assert!(message.contains("an edit in v1 stays, on the way to v2 and back"), "{message}");
    assert!(message.contains("v1, edited: /spec/tens = "), "{message}");
    assert!(message.contains("expected -> found):\n  /spec/tens: "), "{message}");
}

#[test]
fn a_crd_with_one_version_has_no_laws() {
    let schema = json!({"type": "object"});
    let mut single = crd(&schema, &schema);
    single.spec.versions.pop();
    assert!(failure(By(|_: &mut Value, _: &str| {}), &single).contains("Thing has one version"));
}

/// The search is long enough to find the rare case, and the same in every run.
#[test]
fn the_same_objects_are_tried_in_every_run() {
    let schema = one("text", &json!({"type": "string"}));
    let seen = || {
        let all = std::sync::Mutex::new(Vec::new());
        assert_laws(
            &By(|object: &mut Value, _: &str| all.lock().unwrap().push(object["spec"]["text"].to_string())),
            &crd(&schema, &schema),
        );
        all.into_inner().unwrap()
    };
    let texts = seen();
    assert_eq!(texts, seen());
    for needle in ["  ", "漢", "\\\"", "\\n", "\"\""] {
        assert!(texts.iter().any(|text| text.contains(needle)), "no text with {needle} among {}", texts.len());
    }
}

mod v1 {
    use super::*;
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "demo.example", version = "v1", kind = "Person", plural = "people", namespaced)]
    pub(crate) struct PersonSpec {
        pub(crate) name: String,
        /// Only this version has it.
        pub(crate) nicknames: Option<Vec<String>>,
    }
}

mod v2 {
    use super::*;
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "demo.example", version = "v2", kind = "Person", plural = "people", namespaced)]
    pub(crate) struct PersonSpec {
        pub(crate) first: String,
        pub(crate) last: Option<String>,
        /// Only this version has it.
        pub(crate) address: Option<BTreeMap<String, String>>,
    }
}

fn to_v2(old: v1::Person) -> v2::Person {
    let (first, last) = match old.spec.name.split_once(' ') {
        Some((first, last)) => (first.to_owned(), Some(last.to_owned())),
        None => (old.spec.name, None),
    };
    v2::Person::new("", v2::PersonSpec { first, last, address: None })
}

fn to_v1(hub: v2::Person) -> v1::Person {
    let v2::PersonSpec { first, last, .. } = hub.spec;
    let name = last.map_or(first.clone(), |last| format!("{first} {last}"));
    v1::Person::new("", v1::PersonSpec { name, nicknames: None })
}

fn people() -> CustomResourceDefinition {
    merge_crds(vec![v1::Person::crd(), v2::Person::crd()], "v2").unwrap()
}

/// K8
#[test]
fn an_engine_keeps_the_laws_for_versions_with_exclusive_fields() {
    let convert = Convert::<v2::Person>::hub().spoke(to_v2, to_v1);
    assert_laws(&Webhooks::new().convert(convert), &people());
    assert!(failure(Webhooks::new(), &people()).contains("no conversion of \"Person\" is registered"));
}

#[test]
fn mistakes_of_converters_are_found_behind_an_engine() {
    let with = |to_v2: fn(v1::Person) -> v2::Person, to_v1: fn(v2::Person) -> v1::Person| {
        failure(Hub::<v2::Person>::new().spoke(to_v2, to_v1).build().unwrap(), &people())
    };
    let message = with(to_v2, |hub| {
        assert!(hub.spec.first.len() < 5, "too long");
        to_v1(hub)
    });
    assert!(message.contains("every object that the schema admits can be converted to"), "{message}");
    assert!(message.contains("panicked"), "{message}");

    // A way back that does not look at the name: what was kept beside the object hides the edit.
    let message = with(to_v2, |_| v1::Person::new("", v1::PersonSpec { name: "always".into(), nicknames: None }));
    assert!(message.contains("an edit in v2 shows in v1, whatever was kept beside the object"), "{message}");
}

/// Members that the schemas know and the types do not, as when an older operator meets a newer CRD.
#[test]
fn an_engine_keeps_the_laws_for_unknown_members() {
    let mut crd = people();
    let free: JSONSchemaProps =
        serde_json::from_value(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})).unwrap();
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
        spec.properties.as_mut().unwrap().insert("later".into(), free.clone());
    }
    assert_laws(&Hub::<v2::Person>::new().spoke(to_v2, to_v1).build().unwrap(), &crd);
}

#[tokio::test]
async fn a_single_object_goes_through_a_review() {
    let reviews = Reviews::new(&Webhooks::new().convert(Convert::<v2::Person>::hub().spoke(to_v2, to_v1))).unwrap();
    let person = v1::Person::new("ada", v1::PersonSpec { name: "Ada Lovelace".into(), nicknames: None });
    let converted = reviews.convert(&person, "v2").await;
    assert_eq!(converted["spec"], json!({"first": "Ada", "last": "Lovelace", "address": null}));
    assert_eq!(reviews.convert(&converted, "v1").await["spec"]["name"], "Ada Lovelace");
}

mod wide {
    use super::*;
    use k8s_openapi::api::core::v1::PodTemplateSpec;

    macro_rules! version {
        ($module:ident, $version:literal) => {
            pub(crate) mod $module {
                use super::*;
                #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
                #[kube(group = "demo.example", version = $version, kind = "Wide", namespaced)]
                pub(crate) struct WideSpec {
                    pub(crate) template: PodTemplateSpec,
                }
            }
        };
    }
    version!(v1, "v1");
    version!(v2, "v2");
}

/// A schema of thousands of members makes objects that are small enough to look at many of them.
#[test]
fn a_kind_that_holds_a_whole_pod_keeps_the_laws() {
    use wide::{v1, v2};
    let engine = Hub::<v2::Wide>::new()
        .spoke(
            |old: v1::Wide| v2::Wide::new("", v2::WideSpec { template: old.spec.template }),
            |hub: v2::Wide| v1::Wide::new("", v1::WideSpec { template: hub.spec.template }),
        )
        .build()
        .unwrap();
    assert_laws(&engine, &merge_crds(vec![v1::Wide::crd(), v2::Wide::crd()], "v2").unwrap());
}
