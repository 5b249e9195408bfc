//! The review codec: envelope, decode, edit, answer.

use portcullis_review::{Review, Verdict, decode, diff, edit};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::Nasty;

/// The part of an object that a handler would see.
#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    spec: Nasty,
}

/// Reads a body as the admission server does, edits what came, and answers.
///
/// # Panics
/// When a patch does not lead where it should, or an answer is not one that the API server takes.
pub fn review(body: &[u8]) {
    let Ok(review) = Review::parse(body) else { return };
    let request = &review.request;
    let (object, old) = (request.object, request.old_object);
    let mut patches = Vec::new();
    for raw in [object, old].into_iter().flatten() {
        patches.extend(typed(raw));
    }
    if let (Some(object), Some(old)) = (object, old) {
        patches.extend(untyped(object, old));
    }
    let said = format!("{} of {:?} by {}", request.operation, request.name, request.user_info.username);
    let verdicts = [
        Verdict::allow().warn(said.clone()).warn(request.name.repeat(300)).audit(&*request.namespace, said.clone()),
        Verdict::deny(said.clone()).code(u16::from(body.last().copied().unwrap_or_default()) * 4).cause(said, "no"),
    ];
    for verdict in verdicts {
        for patch in patches.iter().map(Some).chain([None]) {
            answer(&review, &verdict, patch);
        }
    }
}

/// A handler's edits on a typed view: members that the type does not know must survive them.
fn typed(raw: &RawValue) -> Option<portcullis_review::Patch> {
    let object: Object = decode(raw.get()).ok()?;
    let tree: Value = serde_json::from_str(raw.get()).ok()?;
    let before = json!({ "spec": object.spec });
    let mut edited = object.spec.clone();
    edited.replicas = edited.replicas.wrapping_add(1);
    edited.title = edited.title.map(|title| title + "~").or(Some("new".to_owned()));
    edited.labels.insert("a/b~c".to_owned(), String::new());
    edited.items.reverse();
    edited.items.pop();
    edited.words.insert(0, "first".to_owned());
    edited.blob = edited.blob.map(|blob| json!([blob, null]));
    let after = json!({ "spec": edited });
    let made = edit(raw.get(), &before.to_string(), &after.to_string()).ok()?.expect("a changed object makes a patch");
    let object: Value =
        serde_json::from_str(&made.object().expect("an edited object is written")).expect("an edited object is JSON");
    for (name, value) in tree.as_object().into_iter().flatten().filter(|(name, _)| *name != "spec") {
        assert_eq!(object.get(name), Some(value), "{name} is nothing that the type knows");
    }
    assert_eq!(object.pointer("/spec/replicas"), after.pointer("/spec/replicas"));
    assert_eq!(object.pointer("/spec/labels/a~1b~0c"), Some(&json!("")));
    lands(&tree, made.patch.operations(), &object);
    Some(made.patch)
}

/// Any object into any other: where the type knows everything, the edit is the other object.
fn untyped(object: &RawValue, old: &RawValue) -> Option<portcullis_review::Patch> {
    let from: Value = serde_json::from_str(old.get()).ok()?;
    let to: Value = serde_json::from_str(object.get()).ok()?;
    lands(&from, &diff(&from, &to), &to);
    let made = edit(old.get(), &from.to_string(), &to.to_string()).expect("what reads as JSON can be edited")?;
    let object: Value =
        serde_json::from_str(&made.object().expect("an edited object is written")).expect("an edited object is JSON");
    assert_eq!(object, to, "an edit of everything is the other object");
    Some(made.patch)
}

/// Applies a patch as it goes out: as text.
fn lands(from: &Value, patch: &(impl serde::Serialize + ?Sized), to: &Value) {
    let text = serde_json::to_vec(patch).expect("a patch writes as JSON");
    let patch: json_patch::Patch = serde_json::from_slice(&text).expect("a patch reads as a patch");
    let mut tried = from.clone();
    json_patch::patch(&mut tried, &patch).expect("a patch applies");
    assert_eq!(&tried, to, "a patch leads to the edited object");
}

/// Asserts what the API server checks of an answer.
fn answer(review: &Review<'_>, verdict: &Verdict, patch: Option<&portcullis_review::Patch>) {
    let answer: Value = serde_json::from_slice(&review.answer(verdict, patch)).expect("an answer is JSON");
    assert_eq!(answer["apiVersion"], review.version.api_version());
    assert_eq!(answer["kind"], "AdmissionReview");
    let response = &answer["response"];
    assert_eq!(response["uid"], &*review.request.uid, "the uid is echoed");
    assert_eq!(response["allowed"], verdict.is_allowed());
    assert_eq!(response.get("patch").is_some(), response.get("patchType").is_some(), "both or neither");
    if !verdict.is_allowed() || review.request.object.is_none() {
        assert!(response.get("patch").is_none(), "nothing to patch");
    }
    if let Some(code) = response.pointer("/status/code") {
        assert!((400..600).contains(&code.as_u64().unwrap_or_default()), "{code} is no refusal");
    }
    let warnings: Vec<&str> = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert!(warnings.iter().all(|warning| warning.chars().count() <= 256 && !warning.contains(char::is_control)));
    assert!(warnings.iter().map(|warning| warning.chars().count()).sum::<usize>() <= 4096);
}
