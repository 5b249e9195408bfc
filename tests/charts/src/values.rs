//! What each value of a chart does, and how it is described.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::{Helm, chart};

/// What a value does: with it set, that is at this place of this object.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its path in the values.
    path: &'static str,
    value: Value,
    /// Other values without which it has no meaning.
    beside: Value,
    /// Another value without which it is refused, and which is refused without it.
    with: Option<(&'static str, Value)>,
    /// Kind and name of the object, and the place in it; the object as a whole when that is empty.
    place: (&'static str, String),
    /// What is there with the value; nothing when it is null.
    expected: Value,
}

/// With this value, `expected` is at the place of the object that a JSON pointer names, and without it something else.
pub fn case(path: &'static str, value: Value, object: &'static str, pointer: &str, expected: Value) -> Case {
    Case { path, value, beside: json!({}), with: None, place: (object, pointer.to_owned()), expected }
}

/// With this value, the container of this Deployment or Job has one more argument.
pub fn argument_of(object: &'static str, path: &'static str, value: Value, expected: &str) -> Case {
    case(path, value, object, "/spec/template/spec/containers/0/args", json!(expected))
}

impl Case {
    /// Other values without which it has no meaning.
    #[must_use]
    pub fn beside(self, beside: Value) -> Self {
        Self { beside, ..self }
    }

    /// Another value, which is refused without it.
    #[must_use]
    pub fn with(self, path: &'static str, value: Value) -> Self {
        Self { with: Some((path, value)), ..self }
    }

    /// `without` has what was rendered without a value: most cases begin with the same.
    fn holds(&self, helm: &Helm, name: &str, release: [&str; 2], without: &mut BTreeMap<String, Vec<Value>>) {
        let Self { path, value, beside, with, place, expected } = self;
        let rendered = |values: &Value| {
            helm.template(&chart(name), release, values).unwrap_or_else(|said| panic!("{path}: {said}"))
        };
        let mut values = beside.clone();
        let without = without.entry(values.to_string()).or_insert_with(|| rendered(&values));
        put(&mut values, path, value);
        if let Some((path, value)) = with {
            put(&mut values, path, value);
        }
        let with = rendered(&values);
        let (before, after) = (at(without, place), at(&with, place));
        if place.1.ends_with("/args") {
            let said = |arguments: Option<&Value>| {
                arguments.and_then(Value::as_array).is_some_and(|arguments| arguments.contains(expected))
            };
            assert!(!said(before) && said(after), "{path}: {after:?}");
        } else {
            assert_eq!(after.unwrap_or(&Value::Null), expected, "{path}");
            assert_ne!(before.unwrap_or(&Value::Null), expected, "{path} changes nothing");
        }
    }
}

/// Puts a value at a path of names with dots between them.
pub fn put(values: &mut Value, path: &str, value: &Value) {
    let place = path.split('.').fold(values, |values, name| &mut values[name]);
    *place = value.clone();
}

/// What is at a place of the object of this kind and name.
pub fn at<'a>(objects: &'a [Value], (object, pointer): &(&str, String)) -> Option<&'a Value> {
    let word = |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let named = |candidate: &&Value| {
        let words = [word(candidate, "/kind"), word(candidate, "/metadata/name")];
        words.map(Option::unwrap_or_default).join(" ") == *object
    };
    objects.iter().find(named).and_then(|object| object.pointer(pointer))
}

/// That the cases hold, and that each value of the chart has one, or is among those that are tested `elsewhere`.
///
/// # Panics
/// With the first case that does not hold, and with values without a case.
pub fn every_value_has_a_case(name: &str, release: [&str; 2], cases: &[Case], elsewhere: &[&str]) {
    let helm = Helm::new();
    let mut covered = BTreeSet::from(["global".to_owned()]);
    covered.extend(elsewhere.iter().map(|path| (*path).to_owned()));
    let mut without = BTreeMap::new();
    for case in cases {
        case.holds(&helm, name, release, &mut without);
        covered.insert(case.path.to_owned());
    }
    let mut known = BTreeSet::new();
    leaves(&schema(name), "", &mut known);
    assert_eq!(known, covered, "each value of {name} in the schema has a case, and each case a value");
}

/// That each value has the same description in values.yaml and in the schema, and a default.
///
/// # Panics
/// With the first value that has not.
pub fn every_value_is_described(name: &str) {
    let schema = schema(name);
    let mut described: BTreeSet<String> = BTreeSet::new();
    for (path, comment) in comments(name) {
        let property = path.split('.').fold(&schema, |schema, name| &schema["properties"][name]);
        assert_eq!(property["description"], json!(comment), "{name}: {path}");
        described.insert(path);
    }
    let values = read(&chart(name).join("values.yaml"));
    let values: Value = serde_saphyr::from_str(&values).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut known = BTreeSet::new();
    leaves(&schema, "", &mut known);
    known.remove("global");
    for leaf in known {
        // A selector is described as a whole.
        let path =
            leaf.rsplit_once('.').filter(|(_, last)| last.starts_with("match")).map_or(&*leaf, |(whole, _)| whole);
        assert!(described.contains(path), "{name}: {path} has no comment in values.yaml");
        let value = values.pointer(&format!("/{}", path.replace('.', "/")));
        assert!(value.is_some(), "{name}: {path} has no default in values.yaml");
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn schema(name: &str) -> Value {
    let text = read(&chart(name).join("values.schema.json"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The paths of all values that have no values of their own below them.
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
    let text = read(&chart(name).join("values.yaml"));
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
