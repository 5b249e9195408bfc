//! Server-side apply by several managers in several versions: the API server converts what single managers own, which
//! is no whole object. Every sequence goes to two kinds, one of which a field-by-field converter converts.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use kube::api::{Patch, PatchParams};
use portcullis_testing::ControlPlane;
use serde_json::{Map, Value, json};

use super::fixture::Home;
use super::kinds::{random, reference};

/// Where the reference converter keeps nicknames in versions that have none.
const KEPT: &str = "reference.example/kept";

/// The API server's words for an object whose metadata it has taken away itself.
const OWN: &str = "invalid metadata of type <nil> in input object";

/// The members of `v3` that `spec` has in the words of a version.
fn to_v3(version: &str, spec: &Map<String, Value>) -> Map<String, Value> {
    let mut hub = Map::new();
    for (key, value) in spec {
        match (version, &**key) {
            ("v1", "name") => {
                let name = value.as_str().unwrap();
                let (first, last) = name.rsplit_once(' ').unwrap_or((name, ""));
                hub.extend([("first".to_owned(), json!(first)), ("last".to_owned(), json!(last))]);
            }
            ("v2", "firstName") => _ = hub.insert("first".to_owned(), value.clone()),
            ("v2", "lastName") => _ = hub.insert("last".to_owned(), value.clone()),
            (_, key) => _ = hub.insert(key.to_owned(), value.clone()),
        }
    }
    hub
}

/// The same members in the words of a version.
fn from_v3(version: &str, mut hub: Map<String, Value>) -> Map<String, Value> {
    let names = [hub.remove("first"), hub.remove("last")];
    if version != "v1" {
        let keys = if version == "v2" { ["firstName", "lastName"] } else { ["first", "last"] };
        hub.extend(keys.into_iter().zip(names).filter_map(|(key, name)| Some((key.to_owned(), name?))));
    } else if names.iter().any(Option::is_some) {
        let name = names.map(|name| name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default());
        hub.insert("name".to_owned(), json!(name.join(" ").trim()));
    }
    hub
}

/// Converts field by field, and refuses nothing.
fn convert_by_field(mut object: Value, desired: &str) -> Value {
    let version = |api_version: &str| api_version.rsplit('/').next().unwrap().to_owned();
    let (from, to) = (version(object["apiVersion"].as_str().unwrap()), version(desired));
    object["apiVersion"] = json!(desired);
    let mut metadata = object.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
    let mut kept = annotations.and_then(|annotations| annotations.remove(KEPT));
    if let Some(spec) = object.get("spec").and_then(Value::as_object) {
        let mut hub = to_v3(&from, spec);
        if let Some(nicknames) = kept.take() {
            hub.insert("nicknames".to_owned(), serde_json::from_str(nicknames.as_str().unwrap()).unwrap());
        }
        if to != "v3" {
            kept = hub.remove("nicknames").map(|nicknames| json!(nicknames.to_string()));
        }
        object["spec"] = Value::Object(from_v3(&to, hub));
    }
    if let Some(kept) = kept.filter(|_| !metadata.is_empty()) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        annotations.as_object_mut().unwrap().insert(KEPT.to_owned(), kept);
    } else if metadata.get("annotations").is_some_and(|annotations| *annotations == json!({})) {
        metadata.remove("annotations");
    }
    object["metadata"] = Value::Object(metadata);
    object
}

/// The webhook of the reference converter.
async fn answer(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let (uid, desired) = (&review["request"]["uid"], review["request"]["desiredAPIVersion"].as_str().unwrap());
    let objects = review["request"]["objects"].as_array().unwrap().iter();
    let converted: Vec<Value> = objects.map(|object| convert_by_field(object.clone(), desired)).collect();
    let response = json!({ "uid": uid, "result": { "status": "Success" }, "convertedObjects": converted });
    let review = json!({ "apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response });
    Response::new(Full::from(review.to_string()))
}

/// A sequence of numbers that follows from its seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(end).unwrap()).unwrap()
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// An apply of a manager in a version.
struct Apply {
    manager: &'static str,
    version: &'static str,
    members: Value,
}

impl Apply {
    /// Manifests that go from version to version and back, tools that own single fields, a person who labels.
    fn any(random: &mut Random, first: bool) -> Self {
        let spec = |manager, version, spec: Value| Self { manager, version, members: json!({ "spec": spec }) };
        if first || random.below(2) == 0 {
            let version = random.of(&["v1", "v2", "v3"]);
            let mut manifest = match version {
                "v1" => json!({ "name": "Ada Lovelace" }),
                "v2" => json!({ "firstName": "Ada", "lastName": "Lovelace" }),
                _ => json!({ "first": "Ada", "last": "Lovelace" }),
            };
            if version == "v3" && random.below(2) == 0 {
                manifest["nicknames"] = json!(["Countess"]);
            }
            if random.below(2) == 0 {
                manifest["notes"] = json!("from the manifest");
            }
            return spec("gitops", version, manifest);
        }
        match random.below(6) {
            0 | 1 => spec("tool", "v3", json!({ "nicknames": ["Countess"] })),
            2 => spec("names", random.of(&["v1", "v2"]), json!({ "notes": "of a tool" })),
            _ => {
                let labels = json!({ "labels": { "team": random.of(&["a", "b"]) } });
                Self { manager: "person", version: random.of(&["v1", "v3"]), members: json!({ "metadata": labels }) }
            }
        }
    }

    /// Applies it, and says what the object is then in `v3`, or with which code and words it was refused.
    async fn to(&self, home: &Home, name: &str, own: &mut usize) -> Result<Value, (u16, String)> {
        let mut object = home.object(self.version, &self.members);
        object["metadata"]["name"] = json!(name);
        let force = PatchParams::apply(self.manager).force();
        // The API server goes from version to version in a random order. In some orders it takes the metadata away and
        // then refuses every answer of a webhook: that 500 is its own, and another order has none.
        for _ in 0..64 {
            match home.api(self.version).patch(name, &force, &Patch::Apply(&object)).await {
                Ok(_) => {
                    let read = home.api("v3").get(name).await.unwrap();
                    return Ok(json!({ "spec": read.data["spec"], "labels": read.metadata.labels }));
                }
                Err(kube::Error::Api(status)) if status.message.ends_with(OWN) => *own += 1,
                Err(kube::Error::Api(status)) => return Err((status.code, status.message)),
                Err(error) => panic!("{error}"),
            }
        }
        Err((500, OWN.to_owned()))
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().unwrap())
}

// `PORTCULLIS_APPLIES` and `PORTCULLIS_SEED` give another number of applies, and other ones.
#[tokio::test]
async fn no_apply_fails_that_a_converter_field_by_field_lets_pass() {
    let (seed, most) = (number("PORTCULLIS_SEED", 31), number("PORTCULLIS_APPLIES", 200));
    let ours = Home::new(random::convert().fail_on_bad_objects(), random::crd("v3")).await;
    let mut theirs = Home::unconverted(ControlPlane::shared().await, reference::convert(), reference::crd("v3")).await;
    theirs.serve_by(Arc::new(answer)).await;
    theirs.convert().await;

    let (mut random, mut counts, mut different) = (Random(seed), BTreeMap::new(), Vec::new());
    let mut own = (0, 0);
    let (mut name, mut steps) = (String::new(), Vec::new());
    for apply in 0..most {
        if apply % 6 == 0 {
            name = format!("person-{}", apply / 6);
            steps.clear();
        }
        let next = Apply::any(&mut random, apply % 6 == 0);
        steps.push(format!("{}/{} {}", next.manager, next.version, next.members));
        let (our, their) = tokio::join!(next.to(&ours, &name, &mut own.0), next.to(&theirs, &name, &mut own.1));
        let code = |result: &Result<Value, (u16, String)>| result.as_ref().map_or_else(|(code, _)| *code, |_| 200);
        *counts.entry((code(&our), code(&their))).or_insert(0) += 1;
        if our != their {
            different.push(format!("{name}: {steps:#?}: {our:?} and by field {their:?}"));
        }
    }
    eprintln!(
        "seed {seed}: applies by code, ours and field by field: {counts:?}, and 500s of the API server's own: {own:?}"
    );
    assert_eq!(different, Vec::<String>::new(), "seed {seed}");
}
