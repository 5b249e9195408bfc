//! Where a pod may run: the schemas of core/v1 `Affinity` and `Toleration`.
//!
//! The types are those of `k8s-openapi`, whose schemas lack the list and map types that the contract has.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// core/v1 `Affinity`.
pub(crate) fn affinity(_: &mut SchemaGenerator) -> Schema {
    let weight = json!({
        "type": "integer", "format": "int32",
        "description": "How much a match counts, from 1 to 100.",
    });
    let preferred_nodes = json!({
        "type": "array", "x-kubernetes-list-type": "atomic",
        "description": "The scheduler favours nodes that match; the weights of all matches of a node add up.",
        "items": {
            "type": "object", "required": ["preference", "weight"],
            "properties": {"preference": node_term("Which nodes are favoured."), "weight": weight},
        },
    });
    let required_nodes = json!({
        "type": "object", "required": ["nodeSelectorTerms"], "x-kubernetes-map-type": "atomic",
        "description": "The pod runs only on nodes that match. Not looked at again while it runs.",
        "properties": {"nodeSelectorTerms": {
            "type": "array", "x-kubernetes-list-type": "atomic",
            "description": "A node that matches one of the terms matches.",
            "items": node_term("Which nodes match."),
        }},
    });
    let pods = |favoured: &str, wanted: &str, description: &str| {
        let term = with_description(pod_term(), "Which pods are meant, and what counts as the same place.");
        json!({
            "type": "object",
            "description": description,
            "properties": {
                "preferredDuringSchedulingIgnoredDuringExecution": {
                    "type": "array", "x-kubernetes-list-type": "atomic",
                    "description": favoured,
                    "items": {
                        "type": "object", "required": ["podAffinityTerm", "weight"],
                        "properties": {"podAffinityTerm": term, "weight": weight},
                    },
                },
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "type": "array", "x-kubernetes-list-type": "atomic",
                    "description": wanted,
                    "items": pod_term(),
                },
            },
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "nodeAffinity": {
                "type": "object",
                "description": "Nodes by their labels and fields.",
                "properties": {
                    "preferredDuringSchedulingIgnoredDuringExecution": preferred_nodes,
                    "requiredDuringSchedulingIgnoredDuringExecution": required_nodes,
                },
            },
            "podAffinity": pods(
                "The scheduler favours places where such pods run.",
                "The pod runs only in places where pods of every term run.",
                "Places where certain other pods run.",
            ),
            "podAntiAffinity": pods(
                "The scheduler avoids places where such pods run.",
                "The pod runs only in places where no pod of any term runs.",
                "Places where certain other pods do not run.",
            ),
        },
    })
}

/// A list of core/v1 `Toleration`.
pub(crate) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "properties": {
                "effect": text("The effect of the taint: NoSchedule, PreferNoSchedule or NoExecute. Any when absent."),
                "key": text("The key of the taint. With operator Exists, an absent key matches every taint."),
                "operator": text("How the value is compared: Equal, which is the default, or Exists for any value."),
                "tolerationSeconds": {
                    "type": "integer", "format": "int64",
                    "description": "How long the pod stays after a NoExecute taint appears. For ever when absent.",
                },
                "value": text("The value of the taint, for the operator Equal."),
            },
        },
    })
}

/// core/v1 `NodeSelectorTerm`.
fn node_term(description: &str) -> Value {
    json!({
        "type": "object", "x-kubernetes-map-type": "atomic",
        "description": description,
        "properties": {
            "matchExpressions": requirements("Conditions on labels; all have to hold."),
            "matchFields": requirements("Conditions on fields of the node; all have to hold."),
        },
    })
}

/// core/v1 `PodAffinityTerm`.
fn pod_term() -> Value {
    json!({
        "type": "object", "required": ["topologyKey"],
        "properties": {
            "labelSelector": label_selector("The pods, by their labels. None when absent."),
            "matchLabelKeys": texts("Label keys whose values the other pods have to share with this one."),
            "mismatchLabelKeys": texts("Label keys whose values the other pods must not share with this one."),
            "namespaceSelector": label_selector("The namespaces of the pods, by their labels, beside `namespaces`."),
            "namespaces": texts("The namespaces of the pods, by name. This pod's own when both are absent."),
            "topologyKey": text("The node label whose value says which nodes are one place."),
        },
    })
}

/// meta/v1 `LabelSelector`.
fn label_selector(description: &str) -> Value {
    json!({
        "type": "object", "x-kubernetes-map-type": "atomic",
        "description": description,
        "properties": {
            "matchExpressions": requirements("Conditions on labels; all have to hold."),
            "matchLabels": {
                "type": "object", "additionalProperties": {"type": "string"},
                "description": "Labels with their values; all have to be there.",
            },
        },
    })
}

/// A list of core/v1 `NodeSelectorRequirement` or of meta/v1 `LabelSelectorRequirement`.
fn requirements(description: &str) -> Value {
    json!({
        "type": "array", "x-kubernetes-list-type": "atomic",
        "description": description,
        "items": {
            "type": "object", "required": ["key", "operator"],
            "properties": {
                "key": text("The key that the condition is on."),
                "operator": text("How key and values are related: In, NotIn, Exists, DoesNotExist; for nodes also Gt, Lt."),
                "values": texts("The values for In, NotIn, Gt and Lt; empty for the others."),
            },
        },
    })
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn texts(description: &str) -> Value {
    json!({
        "type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"},
        "description": description,
    })
}

fn with_description(mut schema: Value, description: &str) -> Value {
    schema["description"] = json!(description);
    schema
}
