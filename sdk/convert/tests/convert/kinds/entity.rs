//! The guide's kind: v1 has one name, v2 and v3 have two; v3 is the hub.

use kube::CustomResource;
use portcullis_convert::{Engine, Hub};
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub mod v1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "demo.example", version = "v1", kind = "Entity", namespaced)]
    pub struct EntitySpec {
        pub name: String,
    }
}

pub mod v2 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "demo.example", version = "v2", kind = "Entity", namespaced)]
    pub struct EntitySpec {
        pub firstname: String,
        pub lastname: String,
    }
}

pub mod v3 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "demo.example", version = "v3", kind = "Entity", namespaced)]
    pub struct EntitySpec {
        pub firstname: String,
        pub lastname: String,
    }
}

/// As the guide writes it: what is behind the first space is the last name.
pub fn v1_to_v3(v1: v1::Entity) -> v3::Entity {
    let (firstname, lastname) = v1.spec.name.split_once(' ').unwrap_or((&v1.spec.name, ""));
    v3::Entity::new("", v3::EntitySpec { firstname: firstname.into(), lastname: lastname.into() })
}

pub fn v3_to_v1(v3: v3::Entity) -> v1::Entity {
    v1::Entity::new("", v1::EntitySpec { name: format!("{} {}", v3.spec.firstname, v3.spec.lastname) })
}

pub fn v2_to_v3(v2: v2::Entity) -> v3::Entity {
    v3::Entity::new("", v3::EntitySpec { firstname: v2.spec.firstname, lastname: v2.spec.lastname })
}

pub fn v3_to_v2(v3: v3::Entity) -> v2::Entity {
    v2::Entity::new("", v2::EntitySpec { firstname: v3.spec.firstname, lastname: v3.spec.lastname })
}

pub fn engine() -> Engine {
    Hub::<v3::Entity>::new().spoke(v1_to_v3, v3_to_v1).spoke(v2_to_v3, v3_to_v2).build().unwrap()
}

pub fn entity(version: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("demo.example/{version}"), "kind": "Entity",
        "metadata": { "name": "ada", "namespace": "demo" }, "spec": spec,
    })
}

/// Names with no space, one, many, and what else people are called.
pub fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[A-Za-z]{1,8}", "[A-Za-zé ]{0,12}", "\\PC{0,6}", Just("  ".to_owned())]
}

/// Any entity of any version.
pub fn any_entity() -> impl Strategy<Value = Value> {
    let two = |version: &'static str| {
        (any_name(), any_name())
            .prop_map(move |(first, last)| entity(version, json!({ "firstname": first, "lastname": last })))
    };
    prop_oneof![any_name().prop_map(|name| entity("v1", json!({ "name": name }))), two("v2"), two("v3")]
}
