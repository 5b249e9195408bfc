//! A kind that uses whatever makes types and JSON disagree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Defaults that are written though nobody sent them, aliases, a flattened map, an enum with content, a number that may
/// be text, lists with and without keys, floats, and a member that any JSON fits in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nasty {
    /// Written always, though mostly nobody sends it.
    pub replicas: i64,
    /// As large as a number gets.
    pub limit: Option<u64>,
    /// Written in another spelling than it may be read.
    #[serde(alias = "displayName")]
    pub title: Option<String>,
    /// The shortest text that reads back as the same float is another one than was sent.
    pub ratio: Option<f64>,
    /// A number or a text.
    pub port: Option<NumberOrText>,
    /// One of several shapes.
    pub source: Option<Source>,
    /// Elements with an identity.
    pub items: Vec<Item>,
    /// Elements without.
    pub words: Vec<String>,
    /// Keys that anybody chooses.
    pub labels: BTreeMap<String, String>,
    /// Anything.
    pub blob: Option<Value>,
    /// Members that the type has no name for.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// As Kubernetes' `IntOrString`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NumberOrText {
    /// A number.
    Number(i32),
    /// A text.
    Text(String),
}

/// An enum whose variants hold different members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// With one member.
    Inline(String),
    /// With several.
    Remote {
        /// Where.
        url: String,
        /// The number of retries.
        #[serde(default)]
        retries: u8,
    },
}

/// An element of a list that Kubernetes would merge by `name`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Item {
    /// The identity.
    pub name: String,
    /// Left out when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<i64>,
}
