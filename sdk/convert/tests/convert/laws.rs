//! Laws that hold for all objects: no round trip loses anything.

use portcullis_convert::Engine;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::kinds::{entity, generate, nasty};
use crate::{bare, convert, convert_text, stash};

fn version_of(object: &Value) -> String {
    object["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()
}

/// There and back along a way of versions gives the very object, annotations and all.
fn comes_back(engine: &Engine, object: &Value, way: &[&str]) -> Result<(), TestCaseError> {
    let mut on_the_way = object.clone();
    for version in way {
        on_the_way = convert(engine, &on_the_way, version);
    }
    let back = convert(engine, &on_the_way, &version_of(object));
    prop_assert_eq!(&back, object, "by {:?}, last as {}", way, on_the_way);
    Ok(())
}

fn nasty_object(version: &'static str) -> impl Strategy<Value = Value> {
    let unknown = proptest::collection::vec((any::<usize>(), generate::json()), 0..3);
    (generate::typed(version), unknown).prop_map(move |(object, unknown)| {
        let engine = nasty::engine();
        let other = if version == "v2" { "v1" } else { "v2" };
        // Reads: the engine hands over what it cannot read flagged.
        generate::with_unknown(object, &unknown, |object| {
            convert_text(&engine, &object.to_string(), other).problem.is_none()
        })
    })
}

proptest! {
    // The same objects in every run; `make fuzz` looks further.
    #![proptest_config(ProptestConfig { cases: 96, rng_seed: RngSeed::Fixed(4), ..ProptestConfig::default() })]

    #[test]
    fn an_entity_comes_back_from_any_version(object in entity::any_entity()) {
        for way in [["v1"], ["v2"], ["v3"]] {
            comes_back(&entity::engine(), &object, &way)?;
        }
    }

    // Issue 1 of docs/src/reference/issues.md: one edge was all there was, and the object was lost.
    #[test]
    fn an_entity_is_not_lost_on_a_chain_of_versions(object in entity::any_entity()) {
        comes_back(&entity::engine(), &object, &["v2", "v3"])?;
        comes_back(&entity::engine(), &object, &["v1", "v2", "v3", "v1", "v2"])?;
    }

    #[test]
    fn a_hub_comes_back_from_a_spoke(object in nasty_object("v2")) {
        comes_back(&nasty::engine(), &object, &["v1"])?;
        comes_back(&nasty::engine(), &object, &["v3"])?;
    }

    #[test]
    fn a_spoke_comes_back_from_the_hub(one in nasty_object("v1"), three in nasty_object("v3")) {
        comes_back(&nasty::engine(), &one, &["v2"])?;
        comes_back(&nasty::engine(), &three, &["v2"])?;
    }

    #[test]
    fn an_object_comes_back_from_chains(one in nasty_object("v1"), two in nasty_object("v2"), three in nasty_object("v3")) {
        for object in [one, two, three] {
            comes_back(&nasty::engine(), &object, &["v1", "v2", "v3"])?;
            comes_back(&nasty::engine(), &object, &["v3", "v1"])?;
            comes_back(&nasty::engine(), &object, &["v1", "v3", "v1", "v2", "v1", "v3", "v2"])?;
        }
    }

    #[test]
    fn an_object_survives_versions_that_prune_unknown_fields(
        one in nasty_object("v1"), two in nasty_object("v2"), three in nasty_object("v3"),
    ) {
        let engine = nasty::engine();
        for object in [&one, &two, &three] {
            for version in ["v1", "v2", "v3"].into_iter().filter(|version| *version != version_of(object)) {
                let there = convert(&engine, object, version);
                let pruned = match version {
                    "v1" => prune::<nasty::v1::Nasty>(&there),
                    "v2" => prune::<nasty::v2::Nasty>(&there),
                    _ => prune::<nasty::v3::Nasty>(&there),
                };
                let back = convert(&engine, &pruned, &version_of(object));
                // But for those that say no more than missing ones.
                let (mut back, mut expected) = (back, object.clone());
                for object in [&mut back, &mut expected] {
                    remove_unknown(object, |value| [json!(null), json!([]), json!({})].contains(value));
                }
                prop_assert_eq!(back, expected, "by {}", pruned);
            }
        }
    }

    // Issue 16 of docs/src/reference/issues.md: what an annotation brought back overwrote newer edits.
    #[test]
    fn an_edit_on_a_spoke_is_kept_and_nothing_else_is_lost(
        hub in nasty_object("v2"), other in generate::typed("v1"), pick in any::<prop::sample::Index>(),
    ) {
        edit_between(&nasty::engine(), &hub, &other, pick, (nasty::v1_to_v2, nasty::v2_to_v1))?;
    }

    #[test]
    fn an_edit_on_the_other_spoke_is_kept_and_nothing_else_is_lost(
        hub in nasty_object("v2"), other in generate::typed("v3"), pick in any::<prop::sample::Index>(),
    ) {
        edit_between(&nasty::engine(), &hub, &other, pick, (nasty::v3_to_v2, nasty::v2_to_v3))?;
    }
}

/// Takes one member of another object of the spoke's version over, and looks at every member of the hub afterwards.
fn edit_between<S: Serialize + DeserializeOwned>(
    engine: &Engine,
    hub: &Value,
    other: &Value,
    pick: prop::sample::Index,
    (to_hub, from_hub): (impl Fn(S) -> nasty::v2::Nasty, impl Fn(nasty::v2::Nasty) -> S),
) -> Result<(), TestCaseError> {
    let spoke = convert(engine, hub, &version_of(other));
    let keys: Vec<&String> =
        other["spec"].as_object().unwrap().keys().chain(spoke["spec"].as_object().unwrap().keys()).collect();
    let key = keys[pick.index(keys.len())];
    if key.starts_with("x/") {
        return Ok(()); // Not the member of a type; what an edit of such a one does is a case of its own.
    }
    let mut edited = spoke.clone();
    match other["spec"].get(key) {
        Some(value) => edited["spec"][key] = value.clone(),
        None if serde_json::from_value::<nasty::v1::Nasty>(spoke.clone()).is_ok() => {
            if edited["spec"].as_object_mut().unwrap().remove(key).is_none() || key == "address" {
                return Ok(());
            }
        }
        None => return Ok(()),
    }
    if convert_text(engine, &edited.to_string(), "v2").problem.is_some() {
        return Ok(());
    }

    let after = convert(engine, &edited, "v2");
    // As by the converters alone.
    let plain =
        |spoke: &Value| serde_json::to_value(to_hub(serde_json::from_value(spoke.clone()).unwrap()).spec).unwrap();
    let (before_plain, after_plain) = (plain(&spoke), plain(&edited));
    let says = |hub: &Value| {
        serde_json::to_value(from_hub(serde_json::from_value(hub.clone()).unwrap())).unwrap()["spec"].clone()
    };
    let members = hub["spec"].as_object().unwrap().keys().chain(after["spec"].as_object().unwrap().keys());
    for member in members {
        if before_plain.get(member) == after_plain.get(member) {
            let mut kept = after.clone();
            match hub["spec"].get(member) {
                Some(value) => kept["spec"][member] = value.clone(),
                None => drop(kept["spec"].as_object_mut().unwrap().remove(member)),
            }
            // Unless the spoke says something else with it than the edit did.
            if says(&kept) == says(&after) {
                prop_assert_eq!(&kept, &after, "{} is lost by an edit of {}", member, key);
            }
        }
    }
    // The spoke shows the edit again. An unknown member that the edit deleted may come back, because the API server may
    // have pruned it. For the same reason a null means no more than a missing member.
    let again = convert(engine, &after, &version_of(other));
    let (mut again, mut edited) = (bare(&again), bare(&edited));
    for object in [&mut again, &mut edited] {
        remove_unknown(object, |_| true);
        object["spec"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
    }
    prop_assert_eq!(again, edited, "stash of the hub: {}", stash(&after));
    Ok(())
}

/// Prunes an object as a schema of the type would.
fn prune<T: Serialize + DeserializeOwned>(object: &Value) -> Value {
    let typed: T = serde_json::from_str(&object.to_string()).unwrap();
    serde_json::from_str(&serde_json::to_string(&typed).unwrap()).unwrap()
}

fn remove_unknown(value: &mut Value, which: fn(&Value) -> bool) {
    match value {
        Value::Object(members) => {
            members.retain(|key, value| !(key.starts_with("x/unknown") && which(value)));
            members.values_mut().for_each(|value| remove_unknown(value, which));
        }
        Value::Array(elements) => elements.iter_mut().for_each(|value| remove_unknown(value, which)),
        _ => {}
    }
}
