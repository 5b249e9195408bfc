//! Every constraint of the contract but its rules is kept by the API server: for each, an object at the bound is admitted,
//! and one just past it is refused in these words.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::contract::{
    api_server::Judge,
    document::{Contract, KINDS, field, is_about, locate},
    examples,
};

/// What one constraint of the contract means for objects.
#[derive(Default)]
struct Probe {
    /// The contract's path and the constraint.
    path: String,
    what: String,
    /// At least one of these is admitted.
    admitted: Vec<Value>,
    /// This one is refused, with this complaint.
    refused: Option<(Value, String)>,
}

#[tokio::test]
async fn every_bound_enum_pattern_format_and_required_member_of_the_contract_admits_one_object_and_refuses_another() {
    let judge = Judge::in_namespace("bounds").await;
    let mut problems = Vec::new();
    for kind in KINDS.iter() {
        judge.store_example(kind).await;
        let probes = probes(kind);
        // A kind without bounds of its own still has those of its conditions.
        assert!(probes.len() > 12, "{kind}: only {} probes", probes.len());
        for Probe { path, what, admitted, refused } in probes {
            let mut refusals = Vec::new();
            for object in &admitted {
                refusals.extend(judge.judge(kind, &path, object).await.err());
            }
            if !admitted.is_empty() && refusals.len() == admitted.len() {
                problems.push(format!("{kind} {path} {what}: not admitted: {refusals:?}"));
            }
            let Some((object, complaint)) = refused else { continue };
            let field = complaint.split(": ").next().unwrap_or_default();
            match judge.judge(kind, &path, &object).await {
                Ok(_) => problems.push(format!("{kind} {path} {what}: admitted")),
                // The empty string may offend a pattern too, and the rules of what it lies in; another field must not be
                // offended.
                Err(said) if said.contains(&complaint) && said.iter().all(|text| is_about(text, field)) => {}
                Err(said) => {
                    problems.push(format!("{kind} {path} {what}:\n  expected {complaint}\n  said     {said:?}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_examples_have_every_member_that_the_contract_knows() {
    for kind in KINDS.iter() {
        let examples = examples::of(kind);
        for path in Contract::of(kind).stored_fields().keys() {
            let refused = examples::REFUSED.iter().any(|(of, refused)| *of == kind && path.starts_with(refused));
            let found = examples.iter().any(|example| !locate(example, path).is_empty());
            assert!(found != refused, "no example of {kind} has {path}");
        }
    }
}

#[tokio::test]
async fn every_member_of_the_examples_is_admitted_and_kept() {
    let judge = Judge::in_namespace("examples").await;
    for kind in KINDS.iter() {
        judge.store_example(kind).await;
        for example in examples::of(kind) {
            let stored = judge.create(kind, &example).await.unwrap();
            assert!(holds(&stored["spec"], &example["spec"]), "{kind}: {}", stored["spec"]);
            let stored = judge.write_status(kind, &example["status"]).await.unwrap();
            assert!(holds(&stored["status"], &example["status"]), "{kind}: {}", stored["status"]);
        }
    }
}

/// Whether `whole` has all that `part` has.
fn holds(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Object(members) => members.iter().all(|(name, part)| holds(&whole[name], part)),
        Value::Array(items) => items.iter().enumerate().all(|(index, part)| holds(&whole[index], part)),
        plain => whole == plain,
    }
}

fn probes(kind: &str) -> Vec<Probe> {
    let fields = Contract::of(kind).stored_fields();
    let examples = examples::of(kind);
    let mut probes = Vec::new();
    for (path, says) in &fields {
        let places = examples.iter().filter_map(|example| Some((example, locate(example, path).into_iter().next()?)));
        let places: Vec<Place<'_>> = places.map(|(example, pointer)| Place { example, pointer }).collect();
        let Some(place) = places.first() else { continue };
        let field = place.field();
        let mut probe = |what: String, admitted: Vec<Value>, refused: Option<(Value, String)>| {
            probes.push(Probe { path: path.clone(), what, admitted, refused });
        };
        for member in says.get("required").and_then(Value::as_array).into_iter().flatten() {
            let member = member.as_str().unwrap();
            let without = place.without(member);
            let has_default = fields[&format!("{path}.{member}")].contains_key("default");
            let (admitted, refused) = if has_default {
                // The default is there before anything is checked.
                (vec![without], None)
            } else {
                let complaint = format!("{field}.{member}: Required value");
                (vec![place.example.clone()], Some((without, complaint)))
            };
            probe(format!("required {member}"), admitted, refused);
        }
        for value in says.get("enum").and_then(Value::as_array).into_iter().flatten() {
            let admitted = places.iter().map(|place| place.with(value.clone())).collect();
            probe(format!("enum {value}"), admitted, None);
        }
        for (what, bound) in says {
            if let Some((at, past, complaint)) = sides(what, bound, &field, says, place.value()) {
                let complaint = format!("{field}{complaint}");
                // The second also where others refer to this one by its value.
                let admitted =
                    at.map(|at| vec![place.with(at.clone()), place.with_everywhere(&at)]).unwrap_or_default();
                probe(what.clone(), admitted, Some((place.with(past), complaint)));
            }
        }
    }
    probes
}

/// A value at a constraint, one just past it, and what is said about that after the field.
fn sides(
    what: &str,
    bound: &Value,
    field: &str,
    says: &Map<String, Value>,
    now: &Value,
) -> Option<(Option<Value>, Value, String)> {
    // A status is checked on its own, and the bound's text names the field from there.
    let body = field.strip_prefix("status.").unwrap_or(field);
    let length = |difference: i64| {
        // A pattern is kept by what is there already, made longer.
        let start = now.as_str().filter(|_| says.contains_key("pattern")).unwrap_or_default();
        let missing = usize::try_from(bound.as_i64().unwrap() + difference).unwrap().saturating_sub(start.len());
        json!(format!("{start}{}", "a".repeat(missing)))
    };
    let number = |difference: i64| json!(bound.as_i64().unwrap() + difference);
    let sides = match what {
        "enum" => {
            let values: Vec<_> = bound.as_array().unwrap().iter().map(ToString::to_string).collect();
            let complaint = format!(": Unsupported value: \"smoke\": supported values: {}", values.join(", "));
            (None, json!("smoke"), complaint)
        }
        "minimum" => {
            let said =
                format!(": Invalid value: {0}: {body} in body should be greater than or equal to {bound}", number(-1));
            (Some(number(0)), number(-1), said)
        }
        "maximum" => {
            let said =
                format!(": Invalid value: {0}: {body} in body should be less than or equal to {bound}", number(1));
            (Some(number(0)), number(1), said)
        }
        "minLength" => {
            let said = format!(": Invalid value: \"\": {body} in body should be at least {bound} chars long");
            let at = if says.contains_key("pattern") { now.clone() } else { length(0) };
            (Some(at), json!(""), said)
        }
        "maxLength" => (Some(length(0)), length(1), format!(": Too long: may not be more than {bound} bytes")),
        "minItems" => (
            Some(now.clone()),
            json!([]),
            format!(": Invalid value: 0: {body} in body should have at least {bound} items"),
        ),
        "maxItems" => {
            let past = bound.as_u64().unwrap() + 1;
            let items = vec![now[0].clone(); usize::try_from(past).unwrap()];
            (Some(now.clone()), json!(items), format!(": Too many: {past}: must have at most {bound} items"))
        }
        "maxProperties" => {
            let past = bound.as_u64().unwrap() + 1;
            let members: Map<String, Value> = (0..past).map(|index| (format!("name{index}"), json!("value"))).collect();
            (Some(now.clone()), Value::Object(members), format!(": Too many: {past}: must have at most {bound} items"))
        }
        "pattern" | "format" if says["type"] == "string" => {
            let (at, past) = either_side(bound.as_str().unwrap());
            let said = match what {
                "pattern" => {
                    format!(": Invalid value: {past:?}: {body} in body should match '{}'", bound.as_str().unwrap())
                }
                _ => format!(
                    ": Invalid value: {past:?}: {body} in body must be of type {}: {past:?}",
                    bound.as_str().unwrap()
                ),
            };
            (Some(json!(at)), json!(past), said)
        }
        "listType" if bound == "map" => {
            let [item] = &now.as_array().unwrap()[..] else { panic!("{field}: one item is wanted") };
            let keys = says["listMapKeys"].as_array().unwrap();
            // The API server writes members in the order of their names.
            let key: BTreeMap<&str, &Value> =
                keys.iter().map(|key| key.as_str().unwrap()).map(|key| (key, &item[key])).collect();
            (Some(now.clone()), json!([item, item]), format!("[1]: Duplicate value: {}", json!(key)))
        }
        "listType" if bound == "set" => {
            let item = &now.as_array().unwrap()[0];
            (Some(now.clone()), json!([item, item]), format!("[1]: Duplicate value: {item}"))
        }
        _ => return None,
    };
    Some(sides)
}

/// For each pattern and format of the contract, a text that keeps it and one that does not.
const EITHER_SIDE: [(&str, &str, &str); 31] = [
    (r"^(0(\.\d+)?|1(\.0+)?)$", "0.25", "1.5"),
    ("^([0-9]*[.])?[0-9]+$", ".5", "half"),
    (r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$", "1h30.5m", "1 day"),
    (
        r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        "example.com/Ready",
        "is it ready",
    ),
    (r"^([a-z0-9_]|[a-z0-9_]([a-z0-9_-]|\.[a-z0-9_-])*[a-z0-9_])$", "mesh-1.example", "Mesh.example"),
    ("^([a-zA-Z_][a-zA-Z0-9_]*)?$", "", "1st"),
    ("^[A-Za-z0-9._-]+$", "ca-1.crt", "ca/1"),
    ("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", "Ready_1", "not ready"),
    ("^[A-Za-z_][A-Za-z0-9_]*$", "_Team1", "1Team"),
    (r"^[\x21\x23-\x5B\x5D-\x7E]+$", "read:all", "read all"),
    ("^[^*]+$", "any text", "rob*"),
    (r"^[^\x00-\x08\x0A-\x1F\x7F]*$", "any text", "two\nlines"),
    (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", "a.b-c", "A.b"),
    ("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "my-idp", "my-idp-"),
    (
        r"^arn:(aws|aws-cn|aws-us-gov):iam::\d{12}:role/[\w+=,.@\-_/]+$",
        "arn:aws-cn:iam::123456789012:role/a/b",
        "arn:aws:iam::12:role/a",
    ),
    (r"^[a-z]{2}(-[a-z]+)+-\d+$", "us-gov-east-1", "Frankfurt"),
    (
        r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,})$",
        "contoso.onmicrosoft.com",
        "contoso",
    ),
    (
        "^(access_token|id_token|jwt|urn:ietf:params:oauth:token-type:(access_token|id_token|jwt))?$",
        "urn:ietf:params:oauth:token-type:id_token",
        "saml2",
    ),
    (r"^https://[^\s?#@]+[^/\s?#@]$", "https://login.example", "https://login.example/"),
    ("^https://.*$", "https://idp.example/?a", "http://idp.example"),
    (r"^https://[^\s?#]+$", "https://a.example/b/", "https://a.example/?b"),
    (r"^https://[^\s?#]+[^/\s?#]$", "https://a.example/b", "https://a.example/b/"),
    ("^https?://", "http://a.example", "a.example"),
    ("^https?://.*$", "http://a.example", "a.example"),
    ("^https?://[^@#[:space:]]+$", "http://a.example/?b", "https://b@a.example"),
    ("^https?://[^[:space:]]+$", "http://a.example/?b", "https://a.example/b c"),
    (r"^https?://[^\s?#]+[^/\s?#]$", "https://a.example/b", "https://a.example/b/"),
    (r"^spiffe://[a-z0-9._-]+((/[a-zA-Z0-9._-]+)+(/\*)?|/\*)$", "spiffe://mesh.example/ns/*", "spiffe://mesh.example"),
    ("date-time", "2026-01-02T03:04:05Z", "yesterday"),
    ("duration", "1500ms", "soon"),
    ("uri", "https://policy.example:8443/check?x=y", "policy.example"),
];

fn either_side(constraint: &str) -> (&'static str, &'static str) {
    let row = EITHER_SIDE.iter().find(|(of, ..)| *of == constraint);
    row.map_or_else(|| panic!("no texts for {constraint}"), |(_, at, past)| (*at, *past))
}

/// Where a path of the contract is in an example.
struct Place<'a> {
    example: &'a Value,
    pointer: String,
}

impl Place<'_> {
    fn value(&self) -> &Value {
        self.example.pointer(&self.pointer).unwrap()
    }

    fn with(&self, value: Value) -> Value {
        let mut object = self.example.clone();
        *object.pointer_mut(&self.pointer).unwrap() = value;
        object
    }

    /// With a text instead of the present one, wherever the spec has that, alone or within another text.
    fn with_everywhere(&self, value: &Value) -> Value {
        let (Value::String(old), Value::String(new)) = (self.value(), value) else { return self.with(value.clone()) };
        let mut object = self.example.clone();
        replace(&mut object["spec"], old, new);
        object
    }

    fn without(&self, member: &str) -> Value {
        let mut object = self.example.clone();
        object.pointer_mut(&self.pointer).unwrap().as_object_mut().unwrap().remove(member).unwrap();
        object
    }

    fn field(&self) -> String {
        field(&self.pointer)
    }
}

fn replace(value: &mut Value, old: &str, new: &str) {
    match value {
        Value::String(text) => *text = text.replace(old, new),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, old, new)),
        Value::Object(members) => members.values_mut().for_each(|member| replace(member, old, new)),
        _ => {}
    }
}
