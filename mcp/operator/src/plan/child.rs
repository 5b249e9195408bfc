//! What a plan says about children.

use aws_lc_rs::digest::{SHA256, digest as hash};
use k8s_openapi::Resource;
use serde::Serialize;
use serde_json::Value;

use crate::apply::digest::hex;

pub use crate::apply::ChildKind;

/// A child by kind and name; its namespace is its server's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildRef {
    /// The kind.
    pub kind: ChildKind,
    /// `metadata.name`.
    pub name: String,
}

/// A child as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Which object it is.
    pub reference: ChildRef,
    /// The document: what the operator wants to own and nothing else.
    pub object: Value,
}

impl ChildRef {
    /// The child of this kind and name.
    pub fn new(kind: ChildKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }
}

impl Child {
    /// The document of `object`, whose metadata says `name`.
    pub(super) fn new<T: Resource + Serialize>(kind: ChildKind, name: &str, object: &T) -> Self {
        // Kubernetes types are structs of strings, numbers and maps with string keys: they always serialize.
        let object = serde_json::to_value(object).unwrap_or_default();
        Self { reference: ChildRef::new(kind, name), object }
    }
}

/// SHA-256 in lower-case hex.
pub fn digest(bytes: &[u8]) -> String {
    hex(&hash(&SHA256, bytes))
}
