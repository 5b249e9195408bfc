//! Server-side applies in all versions, at random: manifests that are upgraded and rolled back, a tool, a person.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use super::fixture::Home;
use super::kinds::random;

const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];
const STEPS: usize = 6;
/// The API server asks for the conversion of a part with `metadata: null`, and refuses every answer to that.
const NO_METADATA: &str = "returned invalid metadata: invalid metadata of type <nil> in input object";

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut next = self.0;
        next = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        next = (next ^ (next >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((next ^ (next >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// The fields that a manager applies, in the words of all versions.
type Fields = BTreeMap<&'static str, Value>;

/// A document of a manager: who applies which fields in which version.
fn apply(random: &mut Random, is_first: bool) -> (&'static str, &'static str, Fields) {
    let mut fields = Fields::new();
    let manager = if is_first { "gitops" } else { random.one_of(&["gitops", "gitops", "tool", "person"]) };
    let version = random.one_of(&VERSIONS);
    match manager {
        "gitops" => {
            fields.insert("name", json!("Ada Lovelace"));
            if random.below(2) == 0 {
                fields.insert("notes", json!(random.one_of(&["of gitops", "shared"])));
            }
            if version == "v3" && random.below(2) == 0 {
                fields.insert("nicknames", json!(["Countess"]));
            }
        }
        "tool" => match random.below(3) {
            0 => _ = fields.insert("name", json!("Ada Lovelace")),
            1 => _ = fields.insert("notes", json!(random.one_of(&["of a tool", "shared"]))),
            _ => return (manager, "v3", [("nicknames", json!(["Countess"]))].into()),
        },
        _ => _ = fields.insert("label", json!(random.one_of(&["a", "b"]))),
    }
    (manager, version, fields)
}

/// The spec that has these fields in a version.
fn spec(version: &str, fields: &Fields) -> Map<String, Value> {
    let mut spec = Map::new();
    for (field, value) in fields {
        match (*field, version) {
            ("label", _) => {}
            ("name", "v2") => spec.extend([("firstName".into(), json!("Ada")), ("lastName".into(), json!("Lovelace"))]),
            ("name", "v3") => spec.extend([("first".into(), json!("Ada")), ("last".into(), json!("Lovelace"))]),
            _ => _ = spec.insert((*field).to_owned(), value.clone()),
        }
    }
    spec
}

/// The owners of each field, as server-side apply has it for a kind of one version.
#[derive(Default)]
struct Model(BTreeMap<&'static str, (Value, BTreeSet<&'static str>)>);

impl Model {
    fn apply(&mut self, manager: &'static str, fields: &Fields) {
        self.0.retain(|field, (_, owners)| {
            if !fields.contains_key(field) {
                owners.remove(manager);
            }
            !owners.is_empty()
        });
        for (field, value) in fields {
            let (now, owners) = self.0.entry(field).or_insert_with(|| (value.clone(), BTreeSet::new()));
            if now != value {
                (*now, *owners) = (value.clone(), BTreeSet::new());
            }
            owners.insert(manager);
        }
    }

    fn fields(&self) -> Fields {
        self.0.iter().map(|(field, (value, _))| (*field, value.clone())).collect()
    }
}

/// `PORTCULLIS_APPLIES` and `PORTCULLIS_SEED` are other numbers than 200 and 34.
#[tokio::test]
async fn no_apply_fails_and_none_loses_what_another_manager_applied_in_another_version() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |number| number.parse().unwrap());
    let (most, seed) = (number("PORTCULLIS_APPLIES", 200), number("PORTCULLIS_SEED", 34));
    println!("{most} applies with PORTCULLIS_SEED={seed}");
    let home = Home::new(random::convert(), random::crd("v3")).await;
    let (mut random, mut refused) = (Random(seed), 0);
    for index in 0..usize::try_from(most).unwrap().div_ceil(STEPS) {
        let (name, mut model, mut told) = (format!("person-{index}"), Model::default(), Vec::new());
        for step in 0..STEPS {
            let (manager, version, fields) = apply(&mut random, step == 0);
            let mut document = home.object(version, &json!({ "metadata": { "name": name } }));
            if let Some(label) = fields.get("label") {
                document["metadata"]["labels"] = json!({ "team": label });
            } else {
                document["spec"] = Value::Object(spec(version, &fields));
            }
            told.push(format!("{manager} {document}"));
            let params = PatchParams::apply(manager).force();
            let patched = home.api(version).patch(&name, &params, &Patch::Apply(&document)).await;
            let patched = match patched {
                Ok(patched) => patched,
                Err(error) if error.to_string().contains(NO_METADATA) => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("seed {seed}, {told:#?}: {error}"),
            };
            model.apply(manager, &fields);
            let expected = model.fields();
            for (read, mut live) in [(version, patched), ("v3", home.api("v3").get(&name).await.unwrap())] {
                let mut expected_spec = spec(read, &expected);
                if read != "v3" {
                    expected_spec.remove("nicknames");
                }
                // A manifest of a version that has no nicknames says nothing of them: they may stay.
                if !expected_spec.contains_key("nicknames") {
                    live.data["spec"].as_object_mut().unwrap().remove("nicknames");
                }
                assert_eq!(live.data["spec"], Value::Object(expected_spec), "seed {seed}, {told:#?} read in {read}");
            }
        }
    }
    println!("{refused} of them are refused by the API server, whatever is converted");
}
