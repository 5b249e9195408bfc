//! Annotations that anyone can write, and bytes that anyone can send.

use portcullis_convert::{Review, STASH};
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::kinds::{entity, generate, nasty};
use crate::{bare, convert_text};

fn with_stash(mut object: Value, stash: &str) -> Value {
    object["metadata"]["annotations"] = json!({ STASH: stash });
    object
}

#[test]
fn a_forged_stash_does_not_fail_a_conversion() {
    let v3 = entity::entity("v3", json!({ "firstname": "Ada", "lastname": "King" }));
    let plain = entity::entity("v1", json!({ "name": "Ada King" }));
    let entry = |entry: &str| format!(r#"{{"v1":{entry}}}"#);
    for stash in [
        String::new(),
        "garbage".into(),
        "5".into(),
        "[]".into(),
        "null".into(),
        "{".into(),
        entry("5"),
        entry("null"),
        entry("{}"),
        entry("[]"),
        entry(r#"{"o":5}"#),
        entry(r#"{"o":{},"r":5}"#),
        entry(r#"{"o":{},"r":{}}"#),
        entry(r#"{"o":{"spec":5},"r":{"spec":{}}}"#),
        entry(r#"{"o":{"spec":{"name":5}},"r":{"spec":{"name":"Ada King"}}}"#),
        entry(r#"{"o":{"metadata":{"name":"x"},"kind":"X","apiVersion":"y"},"r":{}}"#),
        entry(r#"{"o":{},"r":{"spec":{"name":"Ada King"}}}"#),
        entry(r#"{"o":{"spec":{"name":"Eve"}}}"#),
        entry(&format!(r#"{{"o":{},"r":{{}}}}"#, "[".repeat(10_000))),
        entry(&format!(r#"{{"o":{{"spec":{}1{}}},"r":{{}}}}"#, "[".repeat(200), "]".repeat(200))),
        format!("[{}1]", "1,".repeat(1_000_000)),
        entry(&format!(r#"{{"o":{{"spec":{{"x":"{}"}}}},"r":{{}}}}"#, "x".repeat(1_000_000))),
    ] {
        let converted = convert_text(&entity::engine(), &with_stash(v3.clone(), &stash).to_string(), "v1");
        assert_eq!(converted.problem, None, "{}", &stash[..stash.len().min(80)]);
        let v1: Value = serde_json::from_str(&converted.object).unwrap();
        let metadata = v1["metadata"].as_object().unwrap();
        assert_eq!(
            (&v1["apiVersion"], &v1["kind"], &metadata["name"]),
            (&json!("demo.example/v1"), &json!("Entity"), &json!("ada"))
        );
        assert_eq!(bare(&v1)["spec"]["name"], plain["spec"]["name"], "{}", &stash[..stash.len().min(80)]);
        assert!(!converted.object.contains("xxxx"));
    }
    // Annotations that are none.
    for annotations in [json!(5), json!([]), Value::Null, json!({ STASH: 5 }), json!({ STASH: null })] {
        let mut object = v3.clone();
        object["metadata"]["annotations"] = annotations;
        let converted = convert_text(&entity::engine(), &object.to_string(), "v1");
        assert!(serde_json::from_str::<Value>(&converted.object).unwrap()["metadata"]["name"] == "ada");
    }
}

/// JSON that looks like a stash, here and there.
fn stash() -> impl Strategy<Value = String> {
    let part = || prop_oneof![generate::json(), generate::typed("v1"), generate::typed("v2")];
    let entry = prop_oneof![
        (part(), part()).prop_map(|(o, r)| json!({ "o": o, "r": r })),
        part().prop_map(|o| json!({ "o": o })),
        generate::json(),
    ];
    prop_oneof![
        proptest::collection::btree_map("v[0-4]", entry, 0..3).prop_map(|entries| json!(entries).to_string()),
        "\\PC{0,40}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn no_stash_makes_a_good_object_a_bad_one(object in prop_oneof![generate::typed("v1"), generate::typed("v2"), generate::typed("v3")], stash in stash()) {
        for version in ["v1", "v2", "v3"] {
            let converted = convert_text(&nasty::engine(), &with_stash(object.clone(), &stash).to_string(), version);
            prop_assert_eq!(converted.problem, None);
            let converted: Value = serde_json::from_str(&converted.object).unwrap();
            let readable = match version {
                "v1" => serde_json::from_value::<nasty::v1::Nasty>(converted).err(),
                "v2" => serde_json::from_value::<nasty::v2::Nasty>(converted).err(),
                _ => serde_json::from_value::<nasty::v3::Nasty>(converted).err(),
            };
            prop_assert!(readable.is_none(), "{:?}", readable);
        }
    }

    #[test]
    fn no_stash_grows_on_the_way_there_and_back(object in generate::typed("v2"), stash in stash(), other in "v[13]") {
        let mut text = with_stash(object, &stash).to_string();
        let mut lengths = Vec::new();
        for _ in 0..12 {
            let there = convert_text(&nasty::engine(), &text, &other).object;
            text = convert_text(&nasty::engine(), &there, "v2").object;
            lengths.push((there.len(), text.len()));
        }
        prop_assert_eq!(lengths[1], lengths[11], "{:?}, last {}", lengths, text);
    }

    #[test]
    fn any_json_in_an_object_is_answered(spec in generate::json(), status in generate::json(), annotations in generate::json(), version in "v[1-3]") {
        let object = json!({
            "apiVersion": "demo.example/v1", "kind": "Nasty", "spec": spec, "status": status,
            "metadata": { "name": "n", "annotations": annotations },
        });
        let there = convert_text(&nasty::engine(), &object.to_string(), &version);
        let back = convert_text(&nasty::engine(), &there.object, "v1");
        let back: Value = serde_json::from_str(&back.object).unwrap();
        prop_assert_eq!(&back["spec"], &object["spec"]);
        prop_assert_eq!(&back["metadata"]["name"], &object["metadata"]["name"]);
    }

    #[test]
    fn no_bytes_panic(bytes in prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..64),
        "[\\[\\]{}\",:\\\\a1 ]{0,40}".prop_map(String::into_bytes),
        (generate::json(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(json, at, byte)| {
            let mut bytes = json.to_string().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        }),
    ]) {
        if let Ok(review) = Review::parse(&bytes) {
            drop(review.failure("x"));
        }
        if let Ok(raw) = serde_json::from_slice::<&RawValue>(&bytes) {
            drop(nasty::engine().convert(raw, "demo.example/v2"));
        }
    }
}
