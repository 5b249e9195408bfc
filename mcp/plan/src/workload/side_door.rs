//! Ways to a workload's pods that its NetworkPolicy does not close, and who opened them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

/// Ways to the pods of a Deployment or StatefulSet, or past a NetworkPolicy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// The pods are in the network of their node, where no NetworkPolicy applies.
    pub host_network: bool,
    /// A port of the node leads to a container.
    pub host_port: bool,
    /// The NetworkPolicy has rules beside ours.
    pub ingress: bool,
}

/// The ways that a live object has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The ways that this operator applied, as the author asked.
    pub ours: Ways,
    /// The ways that other field managers opened.
    pub others: Ways,
}

impl Ways {
    /// Reads the ways from a document to apply. Its NetworkPolicy has no rules but ours.
    pub fn of_document(document: &Value) -> Self {
        let Some(pod) = document.pointer("/spec/template/spec") else { return Self::default() };
        let lists = ["containers", "initContainers"].into_iter().filter_map(|list| pod[list].as_array());
        let ports = lists.flatten().filter_map(|container| container["ports"].as_array()).flatten();
        Self {
            host_network: pod["hostNetwork"] == true,
            host_port: ports.into_iter().any(|port| port["hostPort"].as_i64().is_some_and(|port| port > 0)),
            ingress: false,
        }
    }

    /// Reads the ways that a field manager set, from its entry in `managedFields`.
    fn of_fields(fields: &Value) -> Self {
        let spec = &fields["f:spec"];
        let pod = &spec["f:template"]["f:spec"];
        let lists = ["f:containers", "f:initContainers"].into_iter().filter_map(|list| pod[list].as_object());
        let ports = lists.flatten().filter_map(|(_, container)| container["f:ports"].as_object()).flatten();
        Self {
            host_network: pod.get("f:hostNetwork").is_some(),
            host_port: ports.into_iter().any(|(_, port)| port.get("f:hostPort").is_some()),
            ingress: spec.get("f:ingress").is_some(),
        }
    }

    /// Joins the ways of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            host_network: self.host_network || other.host_network,
            host_port: self.host_port || other.host_port,
            ingress: self.ingress || other.ingress,
        }
    }
}

impl Opened {
    /// Reads the ways of an object that `manager` applies.
    pub fn of(metadata: &ObjectMeta, manager: &str) -> Self {
        let mut opened = Self::default();
        for entry in metadata.managed_fields.iter().flatten() {
            let Some(fields) = &entry.fields_v1 else { continue };
            let ours = entry.manager.as_deref() == Some(manager);
            let side = if ours { &mut opened.ours } else { &mut opened.others };
            *side = side.and(Ways::of_fields(&fields.0));
        }
        // Rules are one value: where we hold it, it is ours.
        opened.others.ingress &= !opened.ours.ingress;
        opened.ours.ingress = false;
        opened
    }
}
