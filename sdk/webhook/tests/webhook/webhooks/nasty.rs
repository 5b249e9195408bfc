//! Types that write what they read in another form, order or number.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use kube::CustomResource;
use portcullis::webhooks::{Context, Mutate, Mutation, Webhooks};
use portcullis_testing::admission::{Answer, Reviews};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Port {
    name: String,
    port: u16,
}

#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(group = "demo.example", version = "v1", kind = "Nasty", plural = "nasties", namespaced)]
#[serde(rename_all = "camelCase", default)]
struct NastySpec {
    edit: String,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    sorted: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    ports: BTreeSet<Port>,
    #[serde(skip_serializing_if = "HashSet::is_empty")]
    any_order: HashSet<String>,
    #[serde(skip_serializing_if = "HashMap::is_empty")]
    map: HashMap<String, BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f32>,
    #[serde(skip_serializing_if = "is_zero")]
    tries: Tries,
}

/// Left out when it is 0, and 5 when it is left out.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Tries(u8);

impl Default for Tries {
    fn default() -> Self {
        Self(5)
    }
}

fn is_zero(tries: &Tries) -> bool {
    tries.0 == 0
}

type Change = fn(&mut NastySpec);

/// The answer to the creation of an object that a handler edits by `change`.
async fn answer(spec: Value, change: fn(&mut NastySpec)) -> Answer {
    let webhooks =
        Webhooks::new().mutate(Mutate::<Nasty>::new("nasty").on_create(move |mut new: Nasty, _: Context| async move {
            change(&mut new.spec);
            Mutation::modified(new)
        }));
    let object = json!({"apiVersion": "demo.example/v1", "kind": "Nasty", "metadata": {"name": "one"}, "spec": spec});
    Reviews::new(&webhooks).unwrap().create(&object).mutate("nasty").await
}

/// Returns the spec that the API server would store.
async fn edited(spec: Value, change: fn(&mut NastySpec)) -> Value {
    answer(spec, change).await.patched()["spec"].take()
}

#[tokio::test]
async fn an_edit_that_does_not_round_trip_is_an_error_and_no_patch() {
    for spec in [json!({}), json!({"edit": "", "tries": 3}), json!({"edit": "", "map": {}, "tries": 5, "new": 1})] {
        answer(spec.clone(), |new| new.tries = Tries(0)).await.assert_http_error(500);
        let made = edited(spec, |new| new.tries = Tries(7)).await;
        assert_eq!(made["tries"], 7);
    }
}

#[tokio::test]
async fn elements_of_a_sorted_set_are_edited_in_place() {
    // (before, edit, after)
    let cases: [(Value, Change, Value); 5] = [
        (json!({"sorted": ["b", "a"]}), |new| _ = new.sorted.remove("a"), json!({"sorted": ["b"]})),
        (json!({"sorted": ["b", "a"]}), |new| _ = new.sorted.remove("b"), json!({"sorted": ["a"]})),
        (json!({"sorted": ["b", "a", "b"]}), |new| _ = new.sorted.remove("b"), json!({"sorted": ["a"]})),
        (
            json!({"ports": [{"name": "b", "port": 1, "new": "b"}, {"name": "a", "port": 2, "new": "a"}]}),
            |new| new.ports = new.ports.iter().cloned().map(|port| Port { port: port.port + 1, ..port }).collect(),
            json!({"ports": [{"name": "a", "port": 3, "new": "a"}, {"name": "b", "port": 2, "new": "b"}]}),
        ),
        (
            json!({"ports": [{"name": "b", "port": 1, "new": "b"}, {"name": "a", "port": 2, "new": "a"}]}),
            |new| _ = new.ports.pop_last(),
            json!({"ports": [{"name": "a", "port": 2, "new": "a"}]}),
        ),
    ];
    for (spec, change, mut expected) in cases {
        let mut made = edited(spec.clone(), change).await;
        for spec in [&mut made, &mut expected] {
            spec.as_object_mut().unwrap().remove("edit");
        }
        assert_eq!(made, expected, "{spec}");
    }
}

#[tokio::test]
async fn sets_and_maps_without_order_never_fail_an_edit_beside_them() {
    let many: Vec<_> = (0..20).map(|n| format!("{n}")).collect();
    for _ in 0..20 {
        let spec = json!({"anyOrder": many, "map": {"~a/b": {"x/~1": "1"}, "c": {}, "d": {}}, "ratio": 0.1, "new": 1});
        let made = edited(spec, |new| new.edit = "edited".into()).await;
        assert_eq!(made["edit"], "edited");
        assert_eq!(made["new"], 1);
        assert_eq!(made["ratio"], 0.1);
        let mut set: Vec<_> =
            made["anyOrder"].as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect();
        set.sort_by_key(|text| text.parse::<u8>().unwrap());
        assert_eq!(set, many);
        let made = edited(json!({"anyOrder": many, "map": {"~a/b": {"x/~1": "1", "y": "2"}, "c": {}}}), |new| {
            _ = new.any_order.remove("7");
            new.map.get_mut("~a/b").unwrap().insert("x/~1".into(), "2".into());
        })
        .await;
        assert_eq!(made["anyOrder"].as_array().unwrap().len(), 19);
        assert_eq!(made["map"], json!({"~a/b": {"x/~1": "2", "y": "2"}, "c": {}}));
    }
}
