//! The CEL rules of the contract, each with an object on either side of it.

mod auth_server;
mod external_auth_config;
mod oidc_config;
mod remote_proxy;
mod server;
mod shared;
mod telemetry_config;
mod virtual_server;
mod webhook_config;

use serde_json::{Value, json};

use crate::contract::document::{field, is_about, locate};

/// A rule, and objects on both sides of it.
pub(crate) struct Case {
    pub(crate) kind: &'static str,
    /// The contract's path of the rule.
    pub(crate) path: String,
    /// The rule's message.
    pub(crate) rule: &'static str,
    /// What is laid over a bare object as a JSON merge patch.
    pub(crate) admitted: Value,
    pub(crate) refused: Value,
}

impl Case {
    /// What the API server says about `refused`, laid over a bare object to give `object`.
    pub(crate) fn complaint(&self, object: &Value) -> String {
        let Self { path, rule, .. } = self;
        let place = locate(object, path).into_iter().next();
        let pointer = place.unwrap_or_else(|| path.replace('.', "/").replace("[]", "/0"));
        let field = field(&pointer);
        match object.pointer(&pointer) {
            // Objects and lists are not shown.
            Some(Value::String(value)) => format!("{field}: Invalid value: {value:?}: {rule}"),
            _ => format!("{field}: Invalid value: {rule}"),
        }
    }

    /// Whether a complaint is about what this rule is on, or about something that it lies in.
    pub(crate) fn is_about(&self, complaint: &str) -> bool {
        is_about(complaint, &field(&self.path.replace('.', "/").replace("[]", "/0")))
    }
}

/// Where in a kind the rules of a block are, so that blocks which several kinds share have their cases once.
#[derive(Clone)]
struct Block {
    kind: &'static str,
    /// The contract's path of the block.
    path: String,
}

impl Block {
    fn spec(kind: &'static str) -> Self {
        Self { kind, path: ".spec".into() }
    }

    /// The block at `below` of this one, as the contract writes it.
    fn at(&self, below: &str) -> Self {
        Self { kind: self.kind, path: format!("{}{below}", self.path) }
    }

    /// A case whose objects have these values for the block.
    fn case(&self, below: &str, rule: &'static str, admitted: impl Into<Value>, refused: impl Into<Value>) -> Case {
        let [admitted, refused] = [admitted.into(), refused.into()].map(|value| wrap(&self.path, value));
        Case { kind: self.kind, path: format!("{}{below}", self.path), rule, admitted, refused }
    }
}

/// The object that has `value` at `path`.
fn wrap(path: &str, value: Value) -> Value {
    path.split('.').filter(|name| !name.is_empty()).rev().fold(value, |value, name| match name.strip_suffix("[]") {
        Some(list) => json!({list: [value]}),
        None => json!({name: value}),
    })
}

/// Every case, of every kind.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = external_auth_config::cases();
    cases.extend(oidc_config::cases());
    cases.extend(remote_proxy::cases());
    cases.extend(server::cases());
    cases.extend(telemetry_config::cases());
    cases.extend(webhook_config::cases());
    cases.extend(virtual_server::cases());
    cases
}

/// `object` with one member more.
fn with(object: &Value, member: &str, value: impl Into<Value>) -> Value {
    let mut object = object.clone();
    object[member] = value.into();
    object
}
