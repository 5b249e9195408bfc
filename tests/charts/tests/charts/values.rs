//! P5: what each value of the charts does (values.yaml), what is said of values that cannot be (refused.yaml), and what the
//! notes of Dynamo's chart say (notes.yaml).

use std::collections::{BTreeMap, BTreeSet};

use portcullis_charts::{CRDS, DYNAMO, Helm, OPERATOR, chart};
use serde_json::{Value, json};

use super::process::arguments;
use super::schema::all_values;
use super::{DYNAMO_NAME, DYNAMO_RELEASE, OPERATOR_RELEASE};

/// Values that are accepted because Dynamo's chart has them, each with another than the default, and with what the notes say.
const WITHOUT_EFFECT: [(&str, &str, &str); 11] = [
    ("webhook.certGenerator.image.repository", "r.example/kubectl", "the Jobs run the operator's own image"),
    ("webhook.certGenerator.image.tag", "1.30", "the Jobs run the operator's own image"),
    ("webhook.certGenerator.image.pullPolicy", "Always", "the Jobs run the operator's own image"),
    ("webhook.certManager.certificate.duration", "24h", "a certificate is valid for a year"),
    ("webhook.certManager.certificate.renewBefore", "1h", "a certificate is valid for a year"),
    ("webhook.certManager.certificate.rootCA.duration", "24h", "a certificate is valid for a year"),
    ("webhook.certManager.certificate.rootCA.renewBefore", "1h", "a certificate is valid for a year"),
    ("namespaceRestriction.lease.duration", "1m", "all operators of a cluster keep to the same"),
    ("namespaceRestriction.lease.renewInterval", "1s", "all operators of a cluster keep to the same"),
    ("controllerManager.leaderElection.id", "dynamo.nvidia.com", "the Lease is named after the operator"),
    ("controllerManager.leaderElection.namespace", "kube-system", "the Lease is named after the operator"),
];

/// The value of another one, whose case needs both: each is refused without the other.
const BOTH: [&str; 2] = ["webhook.certificateSecret.external", "webhook.caBundle"];

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
fn object<'a>(objects: &'a [Value], words: &str) -> Option<&'a Value> {
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
            let shown = &object.unwrap()["spec"]["template"]["spec"]["containers"][0]["args"];
            return shown.as_array().unwrap().contains(&self.expected);
        }
        object.and_then(|object| object.pointer(&self.place)).unwrap_or(&Value::Null) == &self.expected
    }
}

#[test]
fn every_value_does_what_its_case_says_and_every_value_has_a_case() {
    let helm = Helm::new();
    let rows: BTreeMap<String, Vec<Vec<Value>>> = serde_saphyr::from_str(include_str!("values.yaml")).unwrap();
    for name in [OPERATOR, CRDS, DYNAMO] {
        let rows = rows.iter().filter(|(charts, _)| charts.split(" and ").any(|it| it == name));
        let mut covered = BTreeSet::new();
        // Most cases begin with the same.
        let mut without = BTreeMap::new();
        for case in rows.flat_map(|(_, rows)| rows).map(|row| Case::of(name, row)) {
            let mut values = case.beside.clone();
            let before = without.entry(values.to_string()).or_insert_with(|| rendered(&helm, name, &values).unwrap());
            put(&mut values, &case.path, &case.value);
            let after = rendered(&helm, name, &values).unwrap_or_else(|said| panic!("{}: {said}", case.path));
            assert!(case.shows(&after), "{name}: {} does something else: {after:?}", case.path);
            assert!(!case.shows(before), "{name}: {} changes nothing", case.path);
            covered.insert(case.path);
        }
        if name == DYNAMO {
            covered.extend(WITHOUT_EFFECT.iter().map(|(path, ..)| path).chain(&BOTH).map(|path| (*path).to_owned()));
        }
        assert_eq!(all_values(name), covered, "each value of {name} has a case");
    }
}

#[test]
fn an_external_certificate_is_said_by_two_values_together() {
    let pem = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    let values = json!({ "webhook": { "certificateSecret": { "external": true }, "caBundle": pem } });
    let objects = rendered(&Helm::new(), DYNAMO, &values).unwrap();
    assert!(arguments(&objects, "Deployment").contains(&"--certificates=external".to_owned()));
    // What is PEM in base64 is bytes to the API server.
    let validating = object(&objects, &format!("ValidatingWebhookConfiguration {DYNAMO_NAME}-validating")).unwrap();
    assert_eq!(validating["webhooks"][0]["clientConfig"]["caBundle"], pem);
}

#[test]
fn a_value_that_cannot_be_is_refused_by_its_name_or_with_what_to_do() {
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
fn notes_say_how_to_go_on_what_stays_and_which_values_say_nothing() {
    let rows: Vec<(Value, Vec<String>, Vec<String>)> = serde_saphyr::from_str(include_str!("notes.yaml")).unwrap();
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
    for (path, value, said) in WITHOUT_EFFECT {
        let mut values = json!({});
        put(&mut values, path, &json!(value));
        assert_eq!(rendered(&helm, DYNAMO, &values).unwrap(), defaults, "{path}");
        let notes = helm.notes(&chart(DYNAMO), DYNAMO_RELEASE, &values);
        assert!(notes.contains("These values have no effect:") && notes.contains(said), "{path}: {notes}");
    }
}

#[test]
fn a_restricted_release_selects_its_namespace_has_no_kinds_and_the_notes_say_that_another_selector_is_ignored() {
    let values = json!({
        "namespaceRestriction": { "enabled": true, "targetNamespace": "team", "namespace": "team" },
        "webhook": { "namespaceSelector": { "matchLabels": { "team": "a" } } },
    });
    let objects = rendered(&Helm::new(), DYNAMO, &values).unwrap();
    let validating =
        object(&objects, &format!("ValidatingWebhookConfiguration {DYNAMO_NAME}-validating-team")).unwrap();
    let selector = &validating["webhooks"][0]["namespaceSelector"];
    assert_eq!(*selector, json!({ "matchLabels": { "kubernetes.io/metadata.name": "team" } }));
    assert!(objects.iter().all(|object| object["kind"] != "CustomResourceDefinition"));
    let notes = Helm::new().notes(&chart(DYNAMO), DYNAMO_RELEASE, &values);
    let ignored = "webhook.namespaceSelector: a restricted release";
    for part in ["in namespace team alone", ignored, "--restrict-to-namespace team"] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
}

/// Told less, the doctor would report what was chosen here as what is wrong.
#[test]
fn what_follows_from_values_is_told_to_the_doctor_and_refused_among_extra_arguments() {
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
            // Of a domain that is the default, the doctor knows.
            assert!(told.contains(argument) || argument == "--cluster-domain=cluster.local", "{argument}: {command}");
            let refused = rendered(&helm, DYNAMO, &json!({ "extraArgs": [argument] })).err();
            assert!(refused.is_some_and(|said| said.contains("does not go here")), "{argument} is not refused");
        }
    }
    let account = json!({ "extraArgs": ["--operator-account=planner"] });
    assert!(rendered(&helm, DYNAMO, &account).unwrap_err().contains("does not go here"));
}

#[test]
fn objects_are_named_as_the_guide_or_the_chart_of_dynamo_names_them() {
    for (release, name) in [
        ("platform", "platform-dynamo-operator"),
        ("dynamo-operator", "dynamo-operator"),
        ("my-dynamo-operator-2", "my-dynamo-operator-2"),
    ] {
        let objects = Helm::new().template(&chart(DYNAMO), [release, "here"], &json!({})).unwrap();
        for (kind, suffix) in [
            ("Deployment", ""),
            ("ServiceAccount", ""),
            ("Service", "-webhook-service"),
            ("ValidatingWebhookConfiguration", "-validating"),
            ("Job", "-webhook-cert-gen-1"),
        ] {
            let found = object(&objects, &format!("{kind} {name}{suffix}")).unwrap();
            assert_eq!(found["metadata"]["labels"]["app.kubernetes.io/name"], "dynamo-operator");
        }
    }
}
