//! P5: each value of the charts is described alike where it is set and where it is checked.

use std::collections::BTreeSet;

use portcullis_charts::{CRDS, DYNAMO, OPERATOR, chart};
use serde_json::{Value, json};

fn read(name: &str, file: &str) -> String {
    std::fs::read_to_string(chart(name).join(file)).unwrap()
}

/// The paths of all values of a chart that have no values of their own below them, but for those of a chart above.
pub(crate) fn all_values(name: &str) -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(&read(name, "values.schema.json")).unwrap();
    let mut found = BTreeSet::new();
    leaves(&schema, "", &mut found);
    found.remove("global");
    found
}

fn leaves(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        found.insert(path.to_owned());
        return;
    };
    for (name, property) in properties {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        leaves(property, &path, found);
    }
}

/// The comments of values.yaml by path, each as one line.
fn comments(name: &str) -> Vec<(String, String)> {
    let text = read(name, "values.yaml");
    let (mut found, mut parents, mut comment): (Vec<_>, Vec<(usize, String)>, Vec<&str>) = Default::default();
    for line in text.lines() {
        let (content, depth) = (line.trim(), line.len() - line.trim_start().len());
        if let Some(words) = content.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        if let Some((name, _)) = content.split_once(':').filter(|_| !comment.is_empty() || content.ends_with(':')) {
            parents.retain(|(at, _)| *at < depth);
            parents.push((depth, name.to_owned()));
            if !comment.is_empty() {
                let path = parents.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(".");
                found.push((path, comment.join(" ")));
            }
        }
        comment.clear();
    }
    found
}

#[test]
fn each_value_is_described_alike_where_it_is_set_and_where_it_is_checked() {
    for name in [OPERATOR, CRDS, DYNAMO] {
        let schema: Value = serde_json::from_str(&read(name, "values.schema.json")).unwrap();
        let mut described: BTreeSet<String> = BTreeSet::new();
        for (path, comment) in comments(name) {
            let property = path.split('.').fold(&schema, |schema, name| &schema["properties"][name]);
            assert_eq!(property["description"], json!(comment), "{name}: {path}");
            described.insert(path);
        }
        let values: Value = serde_saphyr::from_str(&read(name, "values.yaml")).unwrap();
        for leaf in all_values(name) {
            // A selector is described as a whole.
            let whole = leaf.rsplit_once('.').filter(|(_, last)| last.starts_with("match")).map(|(whole, _)| whole);
            let path = whole.unwrap_or(&leaf);
            assert!(described.contains(path), "{name}: {path} has no comment in values.yaml");
            let default = values.pointer(&format!("/{}", path.replace('.', "/")));
            assert!(default.is_some(), "{name}: {path} has no default in values.yaml");
        }
    }
}
