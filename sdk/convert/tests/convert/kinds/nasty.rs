//! A kind whose versions lose in every way there is. The hub is v2.
#![allow(clippy::option_option, clippy::struct_field_names, reason = "the kind is built to be nasty")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use portcullis_convert::{Engine, Hub};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub type Map = BTreeMap<String, String>;

/// Missing, null and a value are three things.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

fn two() -> i32 {
    2
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    Tcp,
    Udp,
    /// v1 does not have it.
    Sctp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum Source {
    Image { name: String, digest: Option<String> },
    Scratch,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

pub mod v1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "demo.example", version = "v1", kind = "Nasty", namespaced, status = "Status")]
    #[serde(rename_all = "camelCase")]
    pub struct NastySpec {
        /// host:port, two members in v2.
        pub address: String,
        /// Always written, though no client sent it.
        #[serde(default)]
        pub replicas: i32,
        /// On and off are all that v1 knows.
        #[serde(default)]
        pub enabled: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub note: Option<String>,
        /// A map in v2, a list here.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub tags: Vec<Tag>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub ports: Vec<Port>,
        /// Only what they run, of steps without a name.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub steps: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub zone: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ratio: Option<f32>,
        /// v2 does not have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub legacy: Option<Legacy>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<BTreeMap<String, String>>")]
        pub extra: Option<Value>,
    }

    #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct Tag {
        pub key: String,
        pub value: String,
    }

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Port {
        pub name: String,
        pub port: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub protocol: Option<Protocol>,
    }

    #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct Legacy {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub a: Option<i64>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub b: Vec<String>,
    }

    #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct Status {
        pub ready: bool,
    }
}

pub mod v2 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "demo.example", version = "v2", kind = "Nasty", namespaced, status = "Status")]
    #[serde(rename_all = "camelCase")]
    pub struct NastySpec {
        pub host: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub port: Option<u16>,
        #[serde(default = "two")]
        pub replicas: i32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mode: Option<String>,
        #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
        pub note: Option<Option<String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub labels: Option<Map>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub ports: Vec<Port>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub steps: Vec<Step>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub placement: Option<Placement>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub source: Option<Source>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ratio: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub signed: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub unsigned: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<BTreeMap<String, String>>")]
        pub extra: Option<Value>,
    }

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct Port {
        pub name: String,
        pub port: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub protocol: Option<Protocol>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        pub target_port: Option<IntOrString>,
    }

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Step {
        pub run: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub weight: Option<f64>,
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        pub env: Map,
    }

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Placement {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub zone: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub weight: Option<i32>,
    }

    #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct Status {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub phase: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub conditions: Vec<Condition>,
    }
}

/// Hardly anything: no status, no lists, one member moved out of its parent.
pub mod v3 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "demo.example", version = "v3", kind = "Nasty", namespaced)]
    pub struct NastySpec {
        pub endpoint: Endpoint,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub labels: Option<Map>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub source: Option<Source>,
        /// Without those that run nothing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub steps: Vec<v2::Step>,
        /// Host or note, whichever there is.
        pub title: String,
    }

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Endpoint {
        pub host: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub port: Option<u16>,
        /// Nothing else has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tls: Option<bool>,
    }
}

pub fn v1_to_v2(v1: v1::Nasty) -> v2::Nasty {
    let v1::NastySpec { address, replicas, enabled, note, tags, ports, steps, zone, ratio, legacy: _, extra } = v1.spec;
    let (host, port) = match address.rsplit_once(':').map(|(host, port)| (host, port.parse().ok())) {
        Some((host, Some(port))) => (host.to_owned(), Some(port)),
        _ => (address, None),
    };
    let spec = v2::NastySpec {
        host,
        port,
        replicas: replicas.max(1),
        mode: Some(if enabled { "Auto" } else { "Off" }.to_owned()),
        note: note.map(Some),
        labels: (!tags.is_empty()).then(|| tags.into_iter().map(|tag| (tag.key, tag.value)).collect()),
        ports: ports
            .into_iter()
            .map(|port| v2::Port { name: port.name, port: port.port, protocol: port.protocol, target_port: None })
            .collect(),
        steps: steps.into_iter().map(|run| v2::Step { run, weight: None, env: Map::new() }).collect(),
        placement: zone.map(|zone| v2::Placement { zone: Some(zone), weight: None }),
        source: None,
        ratio: ratio.map(f64::from),
        signed: None,
        unsigned: None,
        extra,
    };
    let status = v1.status.map(|status| v2::Status {
        phase: Some(if status.ready { "Ready" } else { "Pending" }.to_owned()),
        conditions: Vec::new(),
    });
    v2::Nasty { metadata: v1.metadata, spec, status }
}

pub fn v2_to_v1(v2: v2::Nasty) -> v1::Nasty {
    let spec = v2.spec;
    #[allow(clippy::cast_possible_truncation, reason = "v1 keeps less of it")]
    let ratio = spec.ratio.map(|ratio| ratio as f32);
    let spec = v1::NastySpec {
        address: match spec.port {
            Some(port) => format!("{}:{port}", spec.host),
            None => spec.host,
        },
        replicas: spec.replicas,
        enabled: spec.mode.is_some_and(|mode| mode != "Off"),
        note: spec.note.flatten(),
        tags: spec.labels.unwrap_or_default().into_iter().map(|(key, value)| v1::Tag { key, value }).collect(),
        ports: spec
            .ports
            .into_iter()
            .map(|port| v1::Port {
                name: port.name,
                port: port.port,
                protocol: port.protocol.filter(|protocol| *protocol != Protocol::Sctp),
            })
            .collect(),
        steps: spec.steps.into_iter().map(|step| step.run).collect(),
        zone: spec.placement.and_then(|placement| placement.zone),
        ratio,
        legacy: None,
        extra: spec.extra,
    };
    let status = v2.status.map(|status| v1::Status { ready: status.phase.as_deref() == Some("Ready") });
    v1::Nasty { metadata: v2.metadata, spec, status }
}

pub fn v3_to_v2(v3: v3::Nasty) -> v2::Nasty {
    let spec = v2::NastySpec {
        note: (v3.spec.title != v3.spec.endpoint.host).then_some(Some(v3.spec.title)),
        host: v3.spec.endpoint.host,
        port: v3.spec.endpoint.port,
        replicas: 2,
        mode: None,
        labels: v3.spec.labels,
        ports: Vec::new(),
        steps: v3.spec.steps,
        placement: None,
        source: v3.spec.source,
        ratio: None,
        signed: None,
        unsigned: None,
        extra: None,
    };
    v2::Nasty { metadata: v3.metadata, spec, status: None }
}

pub fn v2_to_v3(v2: v2::Nasty) -> v3::Nasty {
    let spec = v2.spec;
    let title = spec.note.flatten().unwrap_or_else(|| spec.host.clone());
    let endpoint = v3::Endpoint { host: spec.host, port: spec.port, tls: None };
    let steps = spec.steps.into_iter().filter(|step| !step.run.is_empty()).collect();
    v3::Nasty {
        metadata: v2.metadata,
        spec: v3::NastySpec { endpoint, labels: spec.labels, source: spec.source, steps, title },
    }
}

pub fn engine() -> Engine {
    Hub::<v2::Nasty>::new().spoke(v1_to_v2, v2_to_v1).spoke(v3_to_v2, v2_to_v3).build().unwrap()
}
