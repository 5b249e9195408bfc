//! Shows people where two JSON documents differ.

use serde_json::{Map, Value};

/// One line for each place: its path, what is there in the first, what is there in the second.
pub(crate) fn differences(first: &Value, second: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    walk("", Some(first), Some(second), &mut lines);
    lines
}

fn walk(path: &str, first: Option<&Value>, second: Option<&Value>, lines: &mut Vec<String>) {
    match (first, second) {
        (Some(Value::Object(first)), Some(Value::Object(second))) => {
            for key in keys(first, second) {
                walk(&format!("{path}/{}", escaped(key)), first.get(key), second.get(key), lines);
            }
        }
        (Some(Value::Array(first)), Some(Value::Array(second))) => {
            for index in 0..first.len().max(second.len()) {
                walk(&format!("{path}/{index}"), first.get(index), second.get(index), lines);
            }
        }
        _ if first == second => {}
        _ => {
            let shown = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
            let path = if path.is_empty() { "/" } else { path };
            lines.push(format!("{path}: {} -> {}", shown(first), shown(second)));
        }
    }
}

fn keys<'v>(first: &'v Map<String, Value>, second: &'v Map<String, Value>) -> impl Iterator<Item = &'v String> {
    first.keys().chain(second.keys().filter(|key| !first.contains_key(*key)))
}

/// A member as a token of a JSON pointer (RFC 6901).
pub(crate) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_place_that_differs_is_named_once_with_both_values() {
        let cases = [
            (json!({"a": 1}), json!({"a": 1}), vec![]),
            (json!({"a": {"b/c": 1}}), json!({"a": {"b/c": 2}}), vec!["/a/b~1c: 1 -> 2"]),
            (json!({"a": [1, 2]}), json!({"a": [1], "x": null}), vec!["/a/1: 2 -> absent", "/x: absent -> null"]),
            (json!({"a": {}}), json!({"a": "s"}), vec![r#"/a: {} -> "s""#]),
            (json!(1), json!([]), vec!["/: 1 -> []"]),
        ];
        for (first, second, lines) in cases {
            assert_eq!(differences(&first, &second), lines);
        }
    }
}
