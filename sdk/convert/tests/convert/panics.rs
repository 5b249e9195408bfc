//! Types and converters of users may panic anywhere: where they read, write, convert and drop, and with anything.

use std::panic::panic_any;

use kube::CustomResource;
use portcullis_convert::{Engine, Hub};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::{convert_text, read};

/// Panics when it is dropped, as a panic's payload may.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic_any(Self);
        }
    }
}

/// A text that panics where it says.
#[derive(Clone, Debug, JsonSchema)]
pub struct Mine(String);

fn blow(at: &str, text: &str) {
    if text == at {
        panic_any(Grenade);
    }
}

impl<'de> Deserialize<'de> for Mine {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        blow("read", &text);
        Ok(Self(text))
    }
}

impl Serialize for Mine {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        blow("write", &self.0);
        self.0.serialize(to)
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            blow("drop", &self.0);
        }
    }
}

macro_rules! version {
    ($module:ident, $version:literal) => {
        mod $module {
            use super::*;

            #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
            #[kube(group = "demo.example", version = $version, kind = "Field", namespaced)]
            pub struct FieldSpec {
                pub mine: Mine,
            }
        }
    };
}

version!(v1, "v1");
version!(v2, "v2");

fn engine() -> Engine {
    let there = |v1: v1::Field| {
        blow("there", &v1.spec.mine.0);
        v2::Field { metadata: v1.metadata, spec: v2::FieldSpec { mine: v1.spec.mine } }
    };
    let back = |v2: v2::Field| {
        blow("back", &v2.spec.mine.0);
        v1::Field { metadata: v2.metadata, spec: v1::FieldSpec { mine: v2.spec.mine } }
    };
    Hub::<v2::Field>::new().spoke(there, back).build().unwrap()
}

// Issue 13 of docs/src/reference/issues.md: users saw EOF.
#[test]
fn no_panic_gets_out_of_the_engine_wherever_and_whatever_it_is() {
    for at in ["read", "write", "drop", "there", "back", "nowhere"] {
        for extra in [json!({ "mine": at }), json!({ "mine": at, "unknown": 1 })] {
            let object = json!({
                "apiVersion": "demo.example/v1", "kind": "Field", "metadata": { "name": "n" }, "spec": extra,
            });
            let there = convert_text(&engine(), &object.to_string(), "v2");
            if at != "drop" {
                assert_eq!(there.problem.is_none(), ["back", "nowhere"].contains(&at), "{at}: {:?}", there.problem);
            }
            assert_eq!(read(&there)["spec"], object["spec"]);
            let back = read(&convert_text(&engine(), &there.object, "v1"));
            assert_eq!(back["spec"], object["spec"], "{at}: {}", there.object);
        }
    }
}
