//! Patches against raw objects: what they keep, what they leave alone, and that they lead where they should.

use portcullis_review::{diff, edit};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The raw object after an edit. Whatever the edit is, its patch as text leads there.
fn edited(raw: &Value, before: &Value, after: &Value) -> Option<Value> {
    let text = raw.to_string();
    let edited = edit(&text, &before.to_string(), &after.to_string()).unwrap()?;
    let object = serde_json::from_str(&edited.object().unwrap()).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(edited.patch.as_json()).unwrap();
    let mut tried = raw.clone();
    json_patch::patch(&mut tried, &patch).unwrap();
    assert_eq!(tried, object);
    Some(object)
}

/// K2: the result of an edit, as the raw object would be stored.
#[test]
fn an_edit_reaches_the_raw_object_and_nothing_else_does() {
    // (what is promised, raw, before, after, raw with the edit)
    let cases = [
        (
            "unknown members survive beside and below an edit",
            json!({"spec": {"a": 1, "new": {"x": [1, null]}}, "later": true}),
            json!({"spec": {"a": 1}}),
            json!({"spec": {"a": 2}}),
            json!({"spec": {"a": 2, "new": {"x": [1, null]}}, "later": true}),
        ),
        (
            "a default that only the type writes is no change",
            json!({"spec": {"a": 1}}),
            json!({"spec": {"a": 1, "replicas": 1, "list": []}}),
            json!({"spec": {"a": 2, "replicas": 1, "list": []}}),
            json!({"spec": {"a": 2}}),
        ),
        (
            "a default that the handler changed is added",
            json!({"spec": {}}),
            json!({"spec": {"replicas": 1}}),
            json!({"spec": {"replicas": 3}}),
            json!({"spec": {"replicas": 3}}),
        ),
        (
            "a defaulted struct comes whole where the raw object has none",
            json!({}),
            json!({"spec": {"cpu": "1", "memory": "1Gi"}}),
            json!({"spec": {"cpu": "2", "memory": "1Gi"}}),
            json!({"spec": {"cpu": "2", "memory": "1Gi"}}),
        ),
        (
            "what the handler took away goes with all that it held",
            json!({"spec": {"tls": {"mode": "off", "new": 1}}}),
            json!({"spec": {"tls": {"mode": "off"}}}),
            json!({"spec": {}}),
            json!({"spec": {}}),
        ),
        (
            "taking away a default that was never sent is nothing",
            json!({"spec": {"a": 1}}),
            json!({"spec": {"a": 1, "mode": "off"}}),
            json!({"spec": {"a": 1}}),
            json!({"spec": {"a": 1}}),
        ),
        (
            "an element put in at the front takes nothing from the others",
            json!({"c": [{"name": "app", "image": "a", "new": 1}]}),
            json!({"c": [{"name": "app", "image": "a"}]}),
            json!({"c": [{"name": "proxy", "image": "p"}, {"name": "app", "image": "a"}]}),
            json!({"c": [{"name": "proxy", "image": "p"}, {"name": "app", "image": "a", "new": 1}]}),
        ),
        (
            "elements keep what is theirs when they are edited and reordered",
            json!({"c": [{"name": "a", "v": 1, "new": "a"}, {"name": "b", "v": 1, "new": "b"}]}),
            json!({"c": [{"name": "a", "v": 1}, {"name": "b", "v": 1}]}),
            json!({"c": [{"name": "b", "v": 2}, {"name": "a", "v": 2}]}),
            json!({"c": [{"name": "b", "v": 2, "new": "b"}, {"name": "a", "v": 2, "new": "a"}]}),
        ),
        (
            "elements that the type sorted keep what is theirs",
            json!({"c": [{"name": "b", "v": 1, "new": "b"}, {"name": "a", "v": 1, "new": "a"}], "s": ["y", "x"]}),
            json!({"c": [{"name": "a", "v": 1}, {"name": "b", "v": 1}], "s": ["x", "y"]}),
            json!({"c": [{"name": "a", "v": 2}], "s": ["y"]}),
            json!({"c": [{"name": "a", "v": 2, "new": "a"}], "s": ["y"]}),
        ),
        (
            "elements that the type gave another name keep what is theirs",
            json!({"c": [{"name": "A", "v": 1, "new": "a"}, {"name": "B", "v": 1}]}),
            json!({"c": [{"name": "a", "v": 1}, {"name": "b", "v": 1}]}),
            json!({"c": [{"name": "a", "v": 2}, {"name": "b", "v": 1}]}),
            json!({"c": [{"name": "A", "v": 2, "new": "a"}, {"name": "B", "v": 1}]}),
        ),
        (
            "an element in another's place inherits nothing",
            json!({"c": [{"name": "a", "new": "a"}]}),
            json!({"c": [{"name": "a"}]}),
            json!({"c": [{"name": "b"}]}),
            json!({"c": [{"name": "b"}]}),
        ),
        (
            "elements without identity are edited in place",
            json!({"r": [{"hosts": ["x"], "new": 1}, {"hosts": ["y"]}]}),
            json!({"r": [{"hosts": ["x"]}, {"hosts": ["y"]}]}),
            json!({"r": [{"hosts": ["x", "z"]}, {"hosts": ["y"]}]}),
            json!({"r": [{"hosts": ["x", "z"], "new": 1}, {"hosts": ["y"]}]}),
        ),
        (
            "a null that the type reads as absent can be set",
            json!({"m": {"creationTimestamp": null, "list": null}}),
            json!({"m": {}}),
            json!({"m": {"list": [1]}}),
            json!({"m": {"creationTimestamp": null, "list": [1]}}),
        ),
    ];
    for (promise, raw, before, after, expected) in cases {
        let made = edited(&raw, &before, &after).unwrap_or_else(|| raw.clone());
        assert_eq!(made, expected, "{promise}");
    }
}

#[test]
fn no_change_is_no_patch_even_if_the_type_adds_defaults() {
    let typed = json!({"spec": {"a": 1, "replicas": 1}});
    assert!(edited(&json!({"spec": {"a": 1}}), &typed, &typed).is_none());
}

#[test]
fn an_element_at_the_front_is_one_operation() {
    let operations = diff(&json!({"l": [1, 2, 3]}), &json!({"l": [0, 1, 2, 3]}));
    assert_eq!(serde_json::to_value(operations).unwrap(), json!([{"op": "add", "path": "/l/0", "value": 0}]));
}

/// The API server's library (evanphx/json-patch v4) reads a null member as a missing one.
#[test]
fn a_null_is_never_replaced_or_removed_by_index() {
    let operations = diff(&json!({"a": null, "l": [null, 1]}), &json!({"a": 1, "l": [2, 1]}));
    assert_eq!(
        serde_json::to_value(operations).unwrap(),
        json!([{"op": "add", "path": "/a", "value": 1}, {"op": "replace", "path": "/l", "value": [2, 1]}])
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    // A few keys that meet often, those that pointers and readers of JSON trip over, and any other.
    let key = prop_oneof![
        6 => prop::sample::select(vec!["a", "b", "name", "key", "a/b", "m~n", "~1", "~01", "/", "", "0", "-", "\"", "\\", "\u{0}", "ä"])
            .prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3i64).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        prop::sample::select(vec![-9.223_372_036_854_776e18, 1e308, 5e-324, 0.1, -0.0, 9_007_199_254_740_993.0])
            .prop_map(Value::from),
        "[a-z~/]{0,3}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Two documents: of no relation, or one made from the other by edits as people make them.
fn any_two() -> impl Strategy<Value = (Value, Value)> {
    let edits = prop::collection::vec(any::<u8>(), 1..12);
    let related = (any_json(), any_json(), edits).prop_map(|(from, other, edits)| {
        let to = disturbed(from.clone(), &other, &mut edits.into_iter());
        (from, to)
    });
    prop_oneof![1 => (any_json(), any_json()), 3 => related]
}

/// Elements and members moved, taken out, put in, doubled and changed, here or further in.
fn disturbed(value: Value, other: &Value, edits: &mut impl Iterator<Item = u8>) -> Value {
    let Some(edit) = edits.next() else { return value };
    let at = |length: usize| usize::from(edit / 8) % length;
    match (value, edit % 8) {
        (Value::Array(mut list), 0) if !list.is_empty() => {
            let by = at(list.len());
            list.rotate_left(by);
            list.into()
        }
        (Value::Array(mut list), 1) if !list.is_empty() => {
            list.remove(at(list.len()));
            list.into()
        }
        (Value::Array(mut list), 2) => {
            list.insert(at(list.len() + 1), other.clone());
            list.into()
        }
        (Value::Array(mut list), 3) => {
            list.reverse();
            list.into()
        }
        (Value::Array(list), _) => list.into_iter().map(|element| disturbed(element, other, edits)).collect(),
        (Value::Object(mut members), 0 | 1) if !members.is_empty() => {
            let key = members.keys().nth(at(members.len())).unwrap().clone();
            let gone = members.remove(&key).unwrap();
            if edit % 8 == 1 {
                members.insert(key + "/~", gone);
            }
            members.into()
        }
        (Value::Object(mut members), 2) => {
            members.insert("~0/".into(), other.clone());
            members.into()
        }
        (Value::Object(members), _) => {
            members.into_iter().map(|(key, member)| (key, disturbed(member, other, edits))).collect()
        }
        (leaf, 0..4) => leaf,
        (leaf, 4) => json!([leaf]),
        (_, 5) => Value::Null,
        _ => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// K2
    #[test]
    fn a_patch_leads_from_any_document_to_any_other((from, to) in any_two()) {
        let operations = diff(&from, &to);
        let mut tried = from.clone();
        json_patch::patch(&mut tried, &operations).unwrap();
        prop_assert_eq!(&tried, &to);
        prop_assert_eq!(operations.0.is_empty(), from == to);
        prop_assert_eq!(
            serde_json::to_vec(&diff(&from, &to)).unwrap(), serde_json::to_vec(&operations).unwrap(), "deterministic"
        );
    }

    /// The API server's patch library refuses such a path outside of every failure policy.
    #[test]
    fn replace_and_remove_name_only_paths_that_are_there((from, to) in any_two()) {
        let mut at = from.clone();
        for operation in &diff(&from, &to).0 {
            match operation {
                json_patch::PatchOperation::Replace(op) => {
                    let under = at.pointer(op.path.as_str());
                    prop_assert!(op.path.is_root() || under.is_some_and(|value| !value.is_null()), "{}", op.path);
                }
                json_patch::PatchOperation::Remove(op) => {
                    prop_assert!(at.pointer(op.path.as_str()).is_some(), "{}", op.path);
                }
                _ => {}
            }
            json_patch::patch(&mut at, std::slice::from_ref(operation)).unwrap();
        }
    }

    /// With a type that knows everything, the edited object is what the handler returned.
    #[test]
    fn an_edit_by_a_type_that_knows_all_leads_to_what_it_wrote((raw, after) in any_two()) {
        let made = edited(&raw, &raw, &after).unwrap_or_else(|| raw.clone());
        prop_assert_eq!(made, after);
    }

    /// With a type that knows some members, none of the others changes.
    #[test]
    fn unknown_members_survive_any_edit_of_known_ones(
        mut raw in prop::collection::btree_map("[a-f]", any_json(), 0..6), after in any_json()
    ) {
        raw.insert("known".into(), json!({"v": 1}));
        let raw = Value::Object(raw.into_iter().collect());
        let made = edited(&raw, &json!({"known": {"v": 1}}), &json!({"known": after})).unwrap_or_else(|| raw.clone());
        for (key, value) in raw.as_object().unwrap().iter().filter(|(key, _)| *key != "known") {
            prop_assert_eq!(&made[key], value);
        }
        prop_assert_eq!(&made["known"], &after);
    }
}
