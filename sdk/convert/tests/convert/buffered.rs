//! Types that buffer what they read: flattened ones and untagged enums pass over members in a way that serde does not
//! say.

use kube::CustomResource;
use portcullis_convert::{Engine, Hub};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::convert;

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Shared {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Always written, though no client sent it.
    #[serde(default)]
    pub pull_always: bool,
    /// The same.
    #[serde(default)]
    pub container_min_port_number: u16,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Target {
    Port {
        port: u16,
    },
    Path {
        path: String,
        #[serde(default)]
        strict: bool,
    },
}

macro_rules! version {
    ($module:ident, $version:literal) => {
        mod $module {
            use super::*;

            #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
            #[kube(group = "demo.example", version = $version, kind = "Flat", namespaced)]
            pub struct FlatSpec {
                #[serde(flatten)]
                pub shared: Shared,
                #[serde(default, skip_serializing_if = "Vec::is_empty")]
                #[schemars(with = "Vec<String>")]
                pub targets: Vec<Target>,
            }
        }
    };
}

version!(v1, "v1");
version!(v2, "v2");

fn engine() -> Engine {
    let there = |v1: v1::Flat| v2::Flat {
        metadata: v1.metadata,
        spec: v2::FlatSpec { shared: v1.spec.shared, targets: v1.spec.targets },
    };
    let back = |v2: v2::Flat| v1::Flat {
        metadata: v2.metadata,
        spec: v1::FlatSpec { shared: v2.spec.shared, targets: v2.spec.targets },
    };
    Hub::<v2::Flat>::new().spoke(there, back).build().unwrap()
}

fn object(spec: &Value) -> Value {
    json!({ "apiVersion": "demo.example/v1", "kind": "Flat", "metadata": { "name": "n" }, "spec": spec })
}

#[test]
fn a_written_default_does_not_hide_an_ignored_member() {
    for spec in [
        json!({ "image": "i", "new": 1 }),
        json!({ "image": "i", "pullAlways": true, "targets": [{ "port": 1, "new": 1 }, { "path": "/" }] }),
        // As long as a member that is written by default, with the same first and last eight letters.
        json!({ "containerMaxPortNumber": 8080, "pullAlways": true, "targets": [{ "path": "/", "strict": true }] }),
        json!({ "image": "i", "new": { "a": null }, "targets": [{ "path": "/" }, { "path": "/", "strict": true }] }),
    ] {
        let v2 = convert(&engine(), &object(&spec), "v2");
        for (key, value) in spec.as_object().unwrap() {
            if key != "targets" {
                assert_eq!(&v2["spec"][key], value, "{spec}");
            }
        }
        assert_eq!(v2["spec"]["targets"][0]["new"], spec["targets"][0]["new"]);
        let back = convert(&engine(), &v2, "v1");
        assert_eq!(back["spec"]["new"], spec["new"]);
        assert_eq!(back["spec"]["targets"][0]["new"], spec["targets"][0]["new"]);
    }
}
