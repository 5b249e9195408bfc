//! Whether a status has to be written. A status is our own type without defaults, so here values are compared.

use serde_json::{Value, json};

use super::fields;

/// The part of a live status that is kept: its value, and the fields that our status manager owns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StatusState {
    /// `status` as it is.
    pub(crate) value: Value,
    /// The `fieldsV1` of our entry for the status subresource, as compact JSON.
    pub(crate) held: Option<Box<str>>,
}

/// True when `desired` (pruned) states a value that differs, or when our entry holds less or more than `desired`
/// states. Fields of other managers (an operator that ran here before) are ignored. An empty `desired` needs no write
/// while our manager holds no field.
pub(crate) fn status_needs_apply(live: &StatusState, desired: &Value) -> bool {
    if live.held.is_none() && desired.as_object().is_some_and(serde_json::Map::is_empty) {
        return false;
    }
    let held = live.held.as_deref().and_then(|held| serde_json::from_str::<Value>(held).ok()).unwrap_or_default();
    let document = json!({"status": desired});
    !states(&live.value, desired)
        || fields::first_missing(&held, &document).is_some()
        || fields::first_excess(&held, &document).is_some()
}

/// True when the apply of `desired` would leave nothing: it states nothing, and all that there is is held by our entry.
/// The API server makes `null` of such a status then, which most schemas refuse.
pub(crate) fn apply_empties_status(live: &StatusState, desired: &Value) -> bool {
    let held = live.held.as_deref().and_then(|held| serde_json::from_str::<Value>(held).ok()).unwrap_or_default();
    let is_empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
    is_empty(desired) && fields::first_missing(&held, &json!({"status": live.value})).is_none()
}

/// Whether `live` has every value of `desired`. Conditions are found by their type; other lists compare as a whole.
fn states(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            desired.iter().all(|(key, member)| live.get(key).is_some_and(|live| states(live, member)))
        }
        (Value::Array(live), Value::Array(desired)) if desired.iter().any(|element| element.get("type").is_some()) => {
            desired.iter().all(|element| {
                live.iter().any(|candidate| candidate.get("type") == element.get("type") && states(candidate, element))
            })
        }
        (live, desired) => live == desired,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(value: Value, held: &Value) -> StatusState {
        StatusState { value, held: Some(held.to_string().into_boxed_str()) }
    }

    /// O3: one status write, and only when something of ours differs.
    #[test]
    fn a_status_is_written_only_when_something_of_ours_differs() {
        let held = json!({"f:status": {
            "f:phase": {},
            "f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:type": {}, "f:status": {}}}
        }});
        let mut desired = json!({"phase": "Ready", "url": null, "conditions": [{"type": "Ready", "status": "True"}]});
        crate::apply::prune(&mut desired);
        let ready = json!({"type": "Ready", "status": "True"});
        let foreign = json!({"type": "Foreign", "status": "True"});
        let cases = [
            ("the same", json!({"phase": "Ready", "conditions": [ready]}), held.clone(), false),
            ("a foreign condition", json!({"phase": "Ready", "conditions": [foreign, ready]}), held.clone(), false),
            (
                "a foreign field",
                json!({"phase": "Ready", "toolConfigHash": "x", "conditions": [ready]}),
                held.clone(),
                false,
            ),
            ("another phase", json!({"phase": "Pending", "conditions": [ready]}), held.clone(), true),
            ("a condition gone", json!({"phase": "Ready", "conditions": [foreign]}), held.clone(), true),
            ("no status", Value::Null, held.clone(), true),
            ("not held", json!({"phase": "Ready", "conditions": [ready]}), json!({}), true),
            (
                "held too much",
                json!({"phase": "Ready", "url": "u", "conditions": [ready]}),
                {
                    let mut held = held.clone();
                    held["f:status"]["f:url"] = json!({});
                    held
                },
                true,
            ),
        ];
        for (case, live, held, expected) in cases {
            assert_eq!(status_needs_apply(&state(live, &held), &desired), expected, "{case}");
        }
    }

    #[test]
    fn an_empty_status_is_written_only_to_take_back_what_is_held() {
        let foreign = json!({"phase": "Ready"});
        for value in [Value::Null, foreign.clone()] {
            assert!(!status_needs_apply(&StatusState { value, held: None }, &json!({})));
        }
        assert!(status_needs_apply(&state(foreign, &json!({"f:status": {"f:phase": {}}})), &json!({})));
    }
}
