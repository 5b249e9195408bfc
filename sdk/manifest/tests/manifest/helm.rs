//! K5: manifests of several modes as one template.

use portcullis_manifest::helm::{Axis, Document, Modes, Names, Slot, document, policy_document, template};
use serde_json::{Value, json};

/// A template whose axes are `.Values.a` and `.Values.b` (one of x, y and z), of what is made for each choice.
fn made(of: impl Fn(bool, &str) -> Vec<Value>) -> String {
    filled(of, &[])
}

fn filled(of: impl Fn(bool, &str) -> Vec<Value>, slots: &[(&str, Slot)]) -> String {
    let words = ["x", "y", "z"];
    let modes = Modes::of(vec![Axis::switch(".Values.a"), Axis::word(".Values.b", &words)]).unwrap();
    let slots: Vec<_> = slots.iter().map(|(pointer, slot)| ((*pointer).to_owned(), slot.clone())).collect();
    let document = |object| Document { object, slots: slots.clone(), only_if: None };
    let documents =
        modes.all().into_iter().map(|mode| of(mode[0] == 0, words[mode[1]]).into_iter().map(document).collect());
    let names = Names(vec![("a-name".to_owned(), ".Release.Name".to_owned())]);
    template(&modes, &documents.collect::<Vec<Vec<Document>>>(), &names).unwrap()
}

fn map(name: &str, data: Value) -> Value {
    json!({ "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

#[test]
fn what_is_the_same_in_every_mode_has_no_condition() {
    let text = made(|_, _| vec![map("a-name", json!({ "list": [1, "two", { "b": true, "a": null }], "none": {} }))]);
    let expected = "\
---
kind: ConfigMap
metadata:
  name: '{{ .Release.Name }}'
data:
  list:
  - 1
  - two
  - b: true
  none: {}
";
    assert_eq!(text, expected);
}

#[test]
fn what_differs_is_behind_the_shortest_condition_that_tells_its_modes() {
    let text = made(|a, b| {
        let mut data = json!({ "all": 1 });
        if a {
            data["of-a"] = json!("there");
        }
        data["word"] = json!(if b == "x" { "is x" } else { "is none" });
        if b != "y" && !a {
            data["both"] = json!(2);
        }
        vec![map("one", data)]
    });
    let expected = "\
---
kind: ConfigMap
metadata:
  name: one
data:
  all: 1
{{- if .Values.a }}
  of-a: there
{{- end }}
{{- if and (not .Values.a) (ne .Values.b \"y\") }}
  both: 2
{{- end }}
{{- if eq .Values.b \"x\" }}
  word: is x
{{- else }}
  word: is none
{{- end }}
";
    assert_eq!(text, expected);
}

#[test]
fn documents_of_the_same_modes_share_one_condition_and_within_it_the_mode_is_known() {
    let text = made(|a, b| {
        let mut objects = vec![map("one", json!({}))];
        if a {
            objects.push(map("two", json!({ "b": if b == "x" { 1 } else { 2 } })));
            objects.push(map("three", json!({})));
        }
        objects
    });
    let (_, conditional) = text.split_once("{{- if .Values.a }}\n").unwrap();
    let expected = "\
---
kind: ConfigMap
metadata:
  name: two
data:
{{- if eq .Values.b \"x\" }}
  b: 1
{{- else }}
  b: 2
{{- end }}
---
kind: ConfigMap
metadata:
  name: three
data: {}
{{- end }}
";
    assert_eq!(conditional, expected);
}

// CEL, and descriptions in schemas.
#[test]
fn what_looks_like_an_expression_is_none_and_names_are_quoted() {
    let text = made(|_, _| vec![map("it's a-name", json!({ "text": "a {{ b }}" }))]);
    assert!(text.contains("\n  name: 'it''s {{ .Release.Name }}'\n"), "{text}");
    assert!(text.contains("\n  text: 'a {{ `{{` }} b }}'\n"), "{text}");
}

#[test]
fn values_are_filled_in_at_their_places() {
    let slots = [
        ("/data/number", Slot::Text("{{ .Values.number }}".to_owned())),
        ("/data/part", Slot::Instead(".Values.part".to_owned())),
        ("/data/list", Slot::Include("args".to_owned())),
        ("/data/list", Slot::Also(".Values.more".to_owned())),
        ("/data/new", Slot::Value(".Values.new".to_owned())),
        ("/data/word", Slot::Optional(".Values.word".to_owned(), "{{ . | quote }}".to_owned())),
    ];
    let text = filled(|_, _| vec![map("one", json!({ "list": ["a"], "number": 1, "part": { "b": 2 } }))], &slots);
    let (_, data) = text.split_once("\ndata:\n").unwrap();
    let expected = "  list:
  - a
{{- with include \"args\" . | trim }}
  {{- . | nindent 2 }}
{{- end }}
{{- with .Values.more }}
  {{- toYaml . | nindent 2 }}
{{- end }}
  number: {{ .Values.number }}
{{- with .Values.part }}
  part:
    {{- toYaml . | nindent 4 }}
{{- else }}
  part:
    b: 2
{{- end }}
{{- with .Values.new }}
  new:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- with .Values.word }}
  word: {{ . | quote }}
{{- end }}
";
    assert_eq!(data, expected);
}

#[test]
fn what_is_added_to_nothing_stands_alone() {
    let text = filled(
        |_, _| vec![map("one", json!({ "list": [] }))],
        &[("/data/list", Slot::Also(".Values.more".to_owned()))],
    );
    let (_, data) = text.split_once("\ndata:\n").unwrap();
    assert_eq!(data, "{{- with .Values.more }}\n  list:\n    {{- toYaml . | nindent 4 }}\n{{- end }}\n");
}

#[test]
fn more_modes_than_can_be_told_apart_are_refused() {
    let axes = |count| (0..count).map(|axis| Axis::switch(&format!(".Values.v{axis}"))).collect::<Vec<_>>();
    assert_eq!(Modes::of(axes(7)).unwrap().all().len(), 128);
    assert_eq!(Modes::of(axes(8)), Err(256));
}

/// The places of a document's slots, without those that every document has.
fn places(document: &Document) -> Vec<&str> {
    let places = document.slots.iter().map(|(pointer, _)| &**pointer);
    places.filter(|pointer| !pointer.starts_with("/metadata/")).collect()
}

#[test]
fn values_change_a_webhook_but_never_how_one_that_fails_open_fails() {
    for (webhook, external_bundle, expected) in [
        (json!({ "failurePolicy": "Fail" }), false, &["failurePolicy", "timeoutSeconds"][..]),
        (json!({ "failurePolicy": "Ignore" }), false, &["timeoutSeconds"]),
        (json!({ "failurePolicy": "Ignore" }), true, &["clientConfig/caBundle", "timeoutSeconds"]),
    ] {
        let selectors = ["namespaceSelector", "objectSelector"];
        let expected = expected.iter().chain(&selectors).map(|member| format!("/webhooks/0/{member}"));
        let document = document(json!({ "metadata": {}, "webhooks": [webhook] }), external_bundle);
        assert_eq!(places(&document), expected.collect::<Vec<_>>(), "{webhook} {external_bundle}");
    }
}

#[test]
fn values_narrow_the_selectors_of_a_policys_binding() {
    let labels = json!({ "matchLabels": { "a": "b" } });
    let spec = json!({ "matchResources": { "namespaceSelector": labels } });
    let selected = ["namespaceSelector/matchLabels", "namespaceSelector/matchExpressions", "objectSelector"];
    let selected = selected.map(|member| format!("/spec/matchResources/{member}"));
    for (kind, expected) in [("ValidatingAdmissionPolicy", &[][..]), ("ValidatingAdmissionPolicyBinding", &selected)] {
        let document = policy_document(json!({ "kind": kind, "metadata": {}, "spec": spec }));
        assert_eq!(places(&document), expected, "{kind}");
    }
}
