//! A kind with subresources, and with fields that CEL makes immutable wherever a schema can have them.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "demo.example",
    version = "v1",
    kind = "Fleet",
    namespaced,
    status = "FleetStatus",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = "self.home.port == oldSelf.home.port")]
pub(crate) struct FleetSpec {
    pub(crate) replicas: i32,
    #[x_kube(validation = "self == oldSelf")]
    #[schemars(length(max = 20))]
    pub(crate) flag: String,
    pub(crate) home: Home,
    #[serde(default)]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub(crate) ships: Vec<Ship>,
    #[serde(default)]
    #[schemars(extend("maxProperties" = 5))]
    pub(crate) crews: BTreeMap<String, Crew>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
pub(crate) struct Home {
    #[schemars(length(max = 20))]
    pub(crate) port: String,
    pub(crate) berth: i32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
pub(crate) struct Ship {
    #[schemars(length(max = 20))]
    pub(crate) name: String,
    #[x_kube(validation = "self == oldSelf")]
    pub(crate) masts: i32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
pub(crate) struct Crew {
    #[x_kube(validation = "self == oldSelf")]
    #[schemars(length(max = 20))]
    pub(crate) captain: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FleetStatus {
    #[serde(default)]
    pub(crate) replicas: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = "self == oldSelf")]
    #[schemars(length(max = 20))]
    pub(crate) founded: Option<String>,
}

pub(crate) fn fleet(name: &str) -> Fleet {
    let ships = ["ant", "bee"].map(|name| Ship { name: name.into(), masts: 3 }).into();
    let crews = [("a.b/c".to_owned(), Crew { captain: "Ada".into() })].into();
    let home = Home { port: "Kiel".into(), berth: 1 };
    Fleet::new(name, FleetSpec { replicas: 2, flag: "blue".into(), home, ships, crews })
}
