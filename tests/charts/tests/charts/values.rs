//! P5: what each value of the charts does (values.yaml), what is said of values that cannot be (refused.yaml), and what
//! the notes of Dynamo's chart say (notes.yaml).

use std::collections::{BTreeMap, BTreeSet};

use portcullis_charts::{CRDS, DYNAMO, Helm, OPERATOR, chart};
use serde_json::{Value, json};

use super::process::arguments;
use super::{DYNAMO_NAME, DYNAMO_RELEASE, OPERATOR_RELEASE};

fn read(name: &str, file: &str) -> String {
    std::fs::read_to_string(chart(name).join(file)).unwrap()
}

/// The values of a chart that have no values of their own below them, each with its description, or that of the value
/// which it is a part of.
fn described(name: &str) -> BTreeMap<String, String> {
    fn leaves(schema: &Value, path: &str, about: &str, found: &mut BTreeMap<String, String>) {
        let about = schema["description"].as_str().unwrap_or(about);
        let Some(properties) = schema["properties"].as_object() else {
            found.insert(path.trim_start_matches('.').to_owned(), about.to_owned());
            return;
        };
        for (name, property) in properties {
            leaves(property, &format!("{path}.{name}"), about, found);
        }
    }
    let mut found = BTreeMap::new();
    leaves(&serde_json::from_str(&read(name, "values.schema.json")).unwrap(), "", "", &mut found);
    // Values of a chart above this one.
    found.remove("global");
    found
}

/// Values that are accepted because Dynamo's chart has them, each with another than the default, and with what the
/// notes say.
fn without_effect() -> Vec<(String, String, String)> {
    let notes: BTreeMap<String, Value> = serde_saphyr::from_str(include_str!("notes.yaml")).unwrap();
    serde_json::from_value(notes["of values without effect"].clone()).unwrap()
}

/// A release of a chart, and the name of the installation.
fn release(name: &str) -> ([&'static str; 2], &'static str) {
    if name == DYNAMO { (DYNAMO_RELEASE, DYNAMO_NAME) } else { (OPERATOR_RELEASE, OPERATOR_RELEASE[0]) }
}

fn rendered(helm: &Helm, name: &str, values: &Value) -> Result<Vec<Value>, String> {
    helm.template(&chart(name), release(name).0, values)
}

/// Puts a value at a path of names with dots between them.
fn put(values: &mut Value, path: &str, value: &Value) {
    let place = path.split('.').fold(values, |values, name| &mut values[name]);
    *place = value.clone();
}

/// The object of this kind and name.
pub(crate) fn object<'a>(objects: &'a [Value], words: &str) -> Option<&'a Value> {
    let (kind, name) = words.split_once(' ').unwrap();
    objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// A row of values.yaml.
struct Case {
    path: String,
    value: Value,
    object: String,
    place: String,
    expected: Value,
    beside: Value,
}

impl Case {
    fn of(name: &str, row: &[Value]) -> Self {
        let word = |index: usize| row[index].as_str().unwrap();
        let place = word(3).replacen("container/", "pod/containers/0/", 1).replacen("pod/", "/spec/template/spec/", 1);
        Self {
            path: word(0).to_owned(),
            value: row[1].clone(),
            object: word(2).replace('$', release(name).1),
            place: place.replacen("hook/", "/webhooks/0/", 1),
            expected: row.get(4).unwrap_or(&row[1]).clone(),
            beside: row.get(5).cloned().unwrap_or(json!({})),
        }
    }

    /// Whether the objects show the value.
    fn shows(&self, objects: &[Value]) -> bool {
        let object = object(objects, &self.object);
        if self.place == "args" {
            let shown = object.and_then(|it| it.pointer("/spec/template/spec/containers/0/args"));
            return shown.and_then(Value::as_array).is_some_and(|shown| shown.contains(&self.expected));
        }
        object.and_then(|object| object.pointer(&self.place)).unwrap_or(&Value::Null) == &self.expected
    }
}

#[test]
fn every_value_has_a_case_and_does_what_it_says() {
    let helm = Helm::new();
    let rows: BTreeMap<String, Vec<Vec<Value>>> = serde_saphyr::from_str(include_str!("values.yaml")).unwrap();
    for name in [OPERATOR, CRDS, DYNAMO] {
        let rows = rows.iter().filter(|(charts, _)| charts.split(" and ").any(|it| it == name));
        let mut covered = BTreeSet::new();
        // Most cases begin with the same.
        let mut without = BTreeMap::new();
        for case in rows.flat_map(|(_, rows)| rows).map(|row| Case::of(name, row)) {
            let mut values = case.beside.clone();
            let before = without.entry(values.to_string()).or_insert_with(|| {
                // Two that are refused without each other show only together.
                rendered(&helm, name, &values).unwrap_or_default()
            });
            put(&mut values, &case.path, &case.value);
            let after = rendered(&helm, name, &values).unwrap_or_else(|said| panic!("{}: {said}", case.path));
            assert!(case.shows(&after), "{name}: {} does something else: {after:?}", case.path);
            // A refusal before had nothing to show, and nothing is what some cases expect.
            assert!(before.is_empty() || !case.shows(before), "{name}: {} changes nothing", case.path);
            covered.insert(case.path);
        }
        if name == DYNAMO {
            covered.extend(without_effect().into_iter().map(|(path, ..)| path));
        }
        assert_eq!(described(name).into_keys().collect::<BTreeSet<_>>(), covered, "each value of {name} has a case");
    }
}

#[test]
fn each_value_has_one_description_in_values_and_schema() {
    for name in [OPERATOR, CRDS, DYNAMO] {
        let text = read(name, "values.yaml");
        let values: Value = serde_saphyr::from_str(&text).unwrap();
        let comments = text.lines().filter_map(|line| line.trim().strip_prefix("# ")).collect::<Vec<_>>().join(" ");
        for (path, description) in described(name) {
            assert!(!description.is_empty() && comments.contains(&description), "{name}: {path}: {description}");
            let whole = path.rsplit_once('.').filter(|(_, last)| last.starts_with("match")).map(|(whole, _)| whole);
            let default = values.pointer(&format!("/{}", whole.unwrap_or(&path).replace('.', "/")));
            assert!(default.is_some(), "{name}: {path} has no default in values.yaml");
        }
    }
}

#[test]
fn an_invalid_value_is_refused_by_name_or_with_the_fix() {
    let helm = Helm::new();
    let tables: BTreeMap<String, Vec<Vec<Value>>> = serde_saphyr::from_str(include_str!("refused.yaml")).unwrap();
    for (table, rows) in tables {
        for row in rows {
            let (name, values, expected) = (row[0].as_str().unwrap(), &row[1], row[2].as_str().unwrap());
            let [usual, namespace] = release(name).0;
            let release = [row.get(3).and_then(Value::as_str).unwrap_or(usual), namespace];
            let said = helm.template(&chart(name), release, values).unwrap_err();
            let by_schema = said.contains("values don't meet the specifications of the schema");
            assert_eq!(by_schema, table == "by its schema", "{values}: {said}");
            assert!(said.contains(expected), "{values}: {said}");
        }
    }
}

#[test]
fn notes_say_what_to_do_next_and_what_stays() {
    let notes: BTreeMap<String, Value> = serde_saphyr::from_str(include_str!("notes.yaml")).unwrap();
    let rows: Vec<(Value, Vec<String>, Vec<String>)> = serde_json::from_value(notes["of values"].clone()).unwrap();
    for (values, said, unsaid) in rows {
        let notes = Helm::new().notes(&chart(DYNAMO), DYNAMO_RELEASE, &values);
        for (words, expected) in said.iter().map(|it| (it, true)).chain(unsaid.iter().map(|it| (it, false))) {
            assert_eq!(notes.contains(words), expected, "{values}: {words}: {notes}");
        }
    }
}

#[test]
fn values_without_effect_change_nothing_and_the_notes_say_so() {
    let helm = Helm::new();
    let defaults = rendered(&helm, DYNAMO, &json!({})).unwrap();
    for (path, value, said) in without_effect() {
        let mut values = json!({});
        put(&mut values, &path, &json!(value));
        assert_eq!(rendered(&helm, DYNAMO, &values).unwrap(), defaults, "{path}");
        let notes = helm.notes(&chart(DYNAMO), DYNAMO_RELEASE, &values);
        assert!(notes.contains("These values have no effect:") && notes.contains(&said), "{path}: {notes}");
    }
}

/// With fewer flags, the doctor would report the choices made here as faults.
#[test]
fn flags_from_values_reach_doctor_and_are_no_extra_arguments() {
    let (helm, selector) = (Helm::new(), json!({ "matchLabels": { "team": "a" } }));
    let settings = json!({
        "failurePolicy": "Ignore", "timeoutSeconds": 3, "namespaceSelector": selector, "objectSelector": selector,
    });
    let restricted = json!({
        "namespaceRestriction": { "enabled": true, "namespace": "team" }, "webhook": { "enabled": false },
        "kubernetesClusterDomain": "corp.example",
    });
    for values in [json!({ "webhook": settings }), restricted] {
        let notes = helm.notes(&chart(DYNAMO), DYNAMO_RELEASE, &values);
        let command = notes.split_once("dynamo-webhooks doctor ").unwrap().1.replace('\'', "");
        // A flag and its value may be two words there.
        let told = command.replace("\\\n", " ").split_whitespace().collect::<Vec<_>>().join("=");
        let objects = rendered(&helm, DYNAMO, &values).unwrap();
        for argument in &arguments(&objects, "Deployment")[1..] {
            // The doctor knows of a domain that is the default.
            assert!(told.contains(argument) || argument == "--cluster-domain=cluster.local", "{argument}: {command}");
            let refused = rendered(&helm, DYNAMO, &json!({ "extraArgs": [argument] })).err();
            assert!(refused.is_some_and(|said| said.contains("does not go here")), "{argument} is not refused");
        }
    }
    let account = json!({ "extraArgs": ["--operator-account=planner"] });
    assert!(rendered(&helm, DYNAMO, &account).unwrap_err().contains("does not go here"));
}

#[test]
fn objects_have_the_names_of_dynamos_guide_and_chart() {
    for (release, name) in [
        ("platform", "platform-dynamo-operator"),
        ("dynamo-operator", "dynamo-operator"),
        ("my-dynamo-operator-2", "my-dynamo-operator-2"),
    ] {
        let objects = Helm::new().template(&chart(DYNAMO), [release, "here"], &json!({})).unwrap();
        for words in [
            format!("Deployment {name}"),
            format!("ServiceAccount {name}"),
            format!("Service {name}-webhook-service"),
            format!("ValidatingWebhookConfiguration {name}-validating"),
            format!("Job {name}-webhook-cert-gen-1"),
        ] {
            let found = object(&objects, &words).unwrap();
            assert_eq!(found["metadata"]["labels"]["app.kubernetes.io/name"], "dynamo-operator");
        }
    }
}
