//! Which fields a schema makes immutable, and which of them two objects differ in.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use portcullis_review::Field;
use serde_json::{Map, Value};

/// A place in a schema, with what matters for rules that compare old and new.
#[derive(Debug, Default)]
pub(super) struct Node {
    immutable: bool,
    list: List,
    members: BTreeMap<String, Self>,
    /// The elements of a list, or the entries of a map.
    each: Option<Box<Self>>,
}

/// `x-kubernetes-list-type`: how CEL compares lists and finds the element that another was.
#[derive(Debug, Default, PartialEq, Eq)]
enum List {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

impl Node {
    /// None where the schema has no rule that makes a field immutable.
    pub(super) fn of(schema: &JSONSchemaProps) -> Option<Self> {
        Some(Self::read(schema)).filter(Self::has_rules)
    }

    fn read(schema: &JSONSchemaProps) -> Self {
        let members = schema.properties.iter().flatten().map(|(name, schema)| (name.clone(), Self::read(schema)));
        let each = match (&schema.items, &schema.additional_properties) {
            (Some(JSONSchemaPropsOrArray::Schema(items)), _) => Some(Box::new(Self::read(items))),
            (_, Some(JSONSchemaPropsOrBool::Schema(entries))) => Some(Box::new(Self::read(entries))),
            _ => None,
        };
        let list = match (schema.x_kubernetes_list_type.as_deref(), &schema.x_kubernetes_list_map_keys) {
            (Some("set"), _) => List::Set,
            (Some("map"), Some(keys)) => List::Map(keys.clone()),
            _ => List::Atomic,
        };
        let mut node = Self { immutable: false, list, members: members.collect(), each };
        for rule in schema.x_kubernetes_validations.iter().flatten() {
            for path in unchanging(&rule.rule) {
                if let Some(place) = path.iter().try_fold(&mut node, |node, name| node.members.get_mut(*name)) {
                    place.immutable = true;
                }
            }
        }
        node
    }

    /// Whether anything here is immutable.
    pub(super) fn has_rules(&self) -> bool {
        self.immutable
            || self.members.values().any(Self::has_rules)
            || self.each.as_ref().is_some_and(|n| n.has_rules())
    }

    /// Takes a member out, if anything in it is immutable.
    pub(super) fn take(&mut self, member: &str) -> Option<Self> {
        self.members.remove(member).filter(Self::has_rules)
    }

    /// The immutable fields that differ. A field that appears or goes (or is null) is none of them: a rule that names
    /// `oldSelf` is only asked where there are both.
    pub(super) fn changed(&self, old: &Value, new: &Value, at: &Field, out: &mut Vec<Field>) {
        if old.is_null() || new.is_null() {
            return;
        }
        if self.immutable && !self.same(old, new) {
            out.push(at.clone());
            return;
        }
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => self.changed_members(old, new, at, out),
            (Value::Array(old), Value::Array(new)) => {
                let (List::Map(keys), Some(each)) = (&self.list, &self.each) else { return };
                for (index, new) in new.iter().enumerate() {
                    if let Some(old) = old.iter().find(|old| identity(old, keys) == identity(new, keys)) {
                        each.changed(old, new, &at.index(index), out);
                    }
                }
            }
            _ => {}
        }
    }

    fn changed_members(&self, old: &Map<String, Value>, new: &Map<String, Value>, at: &Field, out: &mut Vec<Field>) {
        for (name, new) in new {
            let (Some(old), Some(node)) = (old.get(name), self.member(name)) else { continue };
            let field = if self.members.contains_key(name) { at.field(name) } else { at.key(name) };
            node.changed(old, new, &field, out);
        }
    }

    fn member(&self, name: &str) -> Option<&Self> {
        self.members.get(name).or(self.each.as_deref())
    }

    /// Equality as CEL has it: numbers by value, sets and maps in any order.
    fn same(&self, old: &Value, new: &Value) -> bool {
        let nothing = Self::default();
        match (old, new) {
            (Value::Number(old), Value::Number(new)) => old == new || old.as_f64() == new.as_f64(),
            (Value::Object(old), Value::Object(new)) => {
                let same = |(name, old): (&String, &Value)| {
                    new.get(name).is_some_and(|new| self.member(name).unwrap_or(&nothing).same(old, new))
                };
                old.len() == new.len() && old.iter().all(same)
            }
            (Value::Array(old), Value::Array(new)) => {
                let each = self.each.as_deref().unwrap_or(&nothing);
                let among = |old: &Value, new: &[Value]| match &self.list {
                    List::Map(keys) => new
                        .iter()
                        .find(|new| identity(new, keys) == identity(old, keys))
                        .is_some_and(|n| each.same(old, n)),
                    _ => new.iter().any(|new| each.same(old, new)),
                };
                old.len() == new.len()
                    && match self.list {
                        List::Atomic => old.iter().zip(new).all(|(old, new)| each.same(old, new)),
                        List::Set | List::Map(_) => old.iter().all(|old| among(old, new)),
                    }
            }
            _ => old == new,
        }
    }
}

fn identity<'v>(element: &'v Value, keys: &[String]) -> Vec<Option<&'v Value>> {
    keys.iter().map(|key| element.get(key)).collect()
}

/// The paths below `self` that a rule wants to be as they were: `self == oldSelf`, `self.a.b == oldSelf.a.b`, either
/// way round, several joined by `&&`. What only says that there must be a value to compare may stand before:
/// `!has(oldSelf.a) ||`, `!oldSelf.hasValue() ||`, `has(self.a) &&`. None for a rule that says anything else as well.
fn unchanging(rule: &str) -> Vec<Vec<&str>> {
    let Some((guard, rule)) = guarded(rule) else { return Vec::new() };
    let (mut paths, mut there) = (Vec::new(), Vec::new());
    for part in in_brackets(rule).split("&&").map(str::trim) {
        match part.strip_prefix("has(self").and_then(|path| path.strip_suffix(')')) {
            Some(path) => there.push(path),
            None => match unchanging_part(part) {
                Some(path) => paths.push(path),
                None => return Vec::new(),
            },
        }
    }
    // One that waits for another field leaves this one to change.
    if there.iter().any(|path| !paths.contains(path)) || guard.is_some_and(|guard| paths != [guard]) {
        return Vec::new();
    }
    paths.into_iter().map(|path| path.split('.').skip(1).collect()).collect()
}

/// The path that must have been there for the rule to hold, and the rest of the rule; None where it has another choice.
fn guarded(rule: &str) -> Option<(Option<&str>, &str)> {
    let Some((guard, rest)) = rule.split_once("||") else { return Some((None, rule)) };
    let guard = in_brackets(guard);
    if guard == "!oldSelf.hasValue()" {
        return Some((None, rest));
    }
    let path = guard.strip_prefix("!has(oldSelf")?.strip_suffix(')')?;
    Some((Some(path), rest))
}

fn in_brackets(rule: &str) -> &str {
    let rule = rule.trim();
    rule.strip_prefix('(').and_then(|rule| rule.strip_suffix(')')).map_or(rule, str::trim)
}

fn unchanging_part(part: &str) -> Option<&str> {
    let (left, right) = part.split_once("==")?;
    let (left, right) = (left.trim(), right.trim());
    let (new, old) = if left.starts_with("oldSelf") { (right, left) } else { (left, right) };
    let (new, old) = (new.strip_prefix("self")?, old.strip_prefix("oldSelf")?);
    // With `optionalOldSelf`.
    let old = [".value()", ".orValue(self)"].iter().find_map(|value| old.strip_prefix(value)).unwrap_or(old);
    let plain = |path: &str| {
        path.is_empty()
            || path.strip_prefix('.').is_some_and(|path| {
                path.split('.')
                    .all(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
            })
    };
    (new == old && plain(new)).then_some(new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(schema: Value, old: Value, new: Value) -> Vec<String> {
        let node = Node::of(&serde_json::from_value(schema).unwrap()).expect("it has rules");
        let mut changed = Vec::new();
        node.changed(&old, &new, &Field::at(""), &mut changed);
        changed.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_rule_makes_immutable_what_it_compares_with_what_was() {
        let none: Vec<Vec<&str>> = Vec::new();
        let cases = [
            ("self == oldSelf", vec![vec![]]),
            ("oldSelf==self", vec![vec![]]),
            (" self.a.b_c == oldSelf.a.b_c ", vec![vec!["a", "b_c"]]),
            ("self.a == oldSelf.a && oldSelf.b == self.b", vec![vec!["a"], vec!["b"]]),
            ("self.a == oldSelf.b", none.clone()),
            ("self >= oldSelf", none.clone()),
            ("self != oldSelf", none.clone()),
            ("self == oldSelf || self == 'x'", none.clone()),
            ("!oldSelf.hasValue() || self == oldSelf.value()", vec![vec![]]),
            ("oldSelf.orValue(self) == self", vec![vec![]]),
            ("!has(oldSelf.a) || self.a == oldSelf.a", vec![vec!["a"]]),
            ("!has(oldSelf.a.b) || (has(self.a.b) && self.a.b == oldSelf.a.b)", vec![vec!["a", "b"]]),
            ("has(self.a) && self.a == oldSelf.a", vec![vec!["a"]]),
            ("(self == oldSelf)", vec![vec![]]),
            ("!has(oldSelf.b) || self.a == oldSelf.a", none.clone()),
            ("has(self.b) && self.a == oldSelf.a", none.clone()),
            ("has(oldSelf.a) || self.a == oldSelf.a", none.clone()),
            ("!oldSelf.hasValue() || self == oldSelf.value() || self == 'x'", none.clone()),
            ("(self.a == oldSelf.a) && (self.b == 1)", none.clone()),
            ("self.a == oldSelf.a && self.b > 1", none.clone()),
            ("size(self) == size(oldSelf)", none.clone()),
            ("selfish == oldSelfish", none.clone()),
            ("self.a[0] == oldSelf.a[0]", none.clone()),
            ("self == oldSelf ? true : false", none.clone()),
            ("", none),
        ];
        for (rule, paths) in cases {
            assert_eq!(unchanging(rule), paths, "{rule:?}");
        }
        assert!(Node::of(&serde_json::from_value(json!({"properties": {"a": {"type": "string"}}})).unwrap()).is_none());
    }

    /// D8: wherever in the schema the rule is.
    #[test]
    fn changes_of_immutable_fields_are_found_in_objects_maps_and_lists() {
        let fixed = |more: Value| {
            let mut schema = json!({"x-kubernetes-validations": [{"rule": "self == oldSelf"}]});
            schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            schema
        };
        let keyed = json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"properties": {"name": {}, "image": fixed(json!({})), "args": {}}}});
        let set = fixed(json!({"x-kubernetes-list-type": "set", "items": {}}));
        let cases = [
            ("a change", fixed(json!({})), json!("a"), json!("b"), vec![""]),
            ("another number for the same value", fixed(json!({})), json!(1), json!(1.0), vec![]),
            (
                "what appears and what goes is no change",
                json!({"properties": {"a": fixed(json!({})), "b": fixed(json!({}))}}),
                json!({"a": 1}),
                json!({"b": 1}),
                vec![],
            ),
            (
                "nested, and once for all that is below",
                json!({"properties": {"spec": {"properties": {
                    "x": fixed(json!({"properties": {"y": fixed(json!({}))}})), "z": {}}}}}),
                json!({"spec": {"x": {"y": 1}, "z": 1}}),
                json!({"spec": {"x": {"y": 2}, "z": 2}}),
                vec!["spec.x"],
            ),
            (
                "said from above",
                json!({"properties": {"spec": {"properties": {"a": {"properties": {"b": {}}}, "c": {}},
                    "x-kubernetes-validations": [{"rule": "self.a.b == oldSelf.a.b && self.c == oldSelf.c"}]}}}),
                json!({"spec": {"a": {"b": 1, "d": 1}, "c": 1}}),
                json!({"spec": {"a": {"b": 2, "d": 2}, "c": 2}}),
                vec!["spec.a.b", "spec.c"],
            ),
            (
                "the entries of a map",
                json!({"additionalProperties": {"properties": {"v": fixed(json!({}))}}}),
                json!({"a.b": {"v": 1}, "c": {"v": 1}, "d": {"v": 1}}),
                json!({"a.b": {"v": 2}, "c": {"v": 1}, "e": {"v": 2}}),
                vec!["[a.b].v"],
            ),
            (
                "the elements of a list that has keys, wherever they moved",
                json!({"properties": {"c": keyed}}),
                json!({"c": [{"name": "a", "image": "1", "args": 1}, {"name": "b", "image": "1"}]}),
                json!({"c": [{"name": "b", "image": "2"}, {"name": "a", "image": "1", "args": 2}, {"name": "n", "image": "3"}]}),
                vec!["c[0].image"],
            ),
            ("a set in another order", set.clone(), json!([1, 2]), json!([2, 1]), vec![]),
            ("another set", set, json!([1, 2]), json!([2, 3]), vec![""]),
            ("a list in another order", fixed(json!({"items": {}})), json!([1, 2]), json!([2, 1]), vec![""]),
        ];
        for (what, schema, old, new, expected) in cases {
            assert_eq!(changed(schema, old, new), expected, "{what}");
        }
    }
}
