//! Schemas that no Rust type carries: what Kubernetes itself defines, and what is left open.
//!
//! A field with such a schema needs `#[serde(default)]`: nothing else tells the derive that it may be absent.

pub(crate) mod scheduling;

use schemars::{Schema, SchemaGenerator, json_schema};

/// A list of conditions, with the bounds that Kubernetes' own type has and its Rust counterpart does not carry.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the object's state, as last observed.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "type": "string", "format": "date-time",
                    "description": "When `status` last changed from one value to another.",
                },
                "message": {
                    "type": "string", "maxLength": 32768,
                    "description": "What a person should know about the transition. May be empty.",
                },
                "observedGeneration": {
                    "type": "integer", "format": "int64", "minimum": 0,
                    "description": "The `metadata.generation` this condition was computed from; older than the object's means out of date.",
                },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "A CamelCase word that programs may match on.",
                },
                "status": {
                    "type": "string", "enum": ["True", "False", "Unknown"],
                    "description": "Whether the condition holds.",
                },
                "type": {
                    "type": "string", "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "The name of the condition, unique within the list.",
                },
            },
        },
    })
}

/// A whole number of any size; the derive would add the format of the Rust type.
pub(crate) fn integer(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer"})
}

/// Any value.
pub(crate) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-preserve-unknown-fields": true})
}

/// An object whose members the API server keeps as they are, because their schema is Kubernetes' own.
pub(crate) fn open_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
