//! Components: the spec of a DynamoComponentDeployment, and each service of a graph.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Quantity, Rest, quantity, schema};

/// One component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Number of pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Access from outside of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Ingress>,
    /// Claims of the graph that are mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<Vec<VolumeMount>>,
    /// Shared memory, mounted at `/dev/shm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<SharedMemory>,
    /// Ignored: a DynamoGraphDeploymentScalingAdapter scales.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::open_object")]
    pub autoscaling: Option<BTreeMap<String, Value>>,
    /// Whether a DynamoGraphDeploymentScalingAdapter scales it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling_adapter: Option<ScalingAdapter>,
    /// Number of nodes per replica; one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multinode: Option<Multinode>,
    /// Ignored: the namespace and the graph give the Dynamo namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamo_namespace: Option<String>,
    /// Whether it is in the global Dynamo namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_dynamo_namespace: Option<bool>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}

impl Component {
    /// Whether one replica is spread over several nodes.
    pub fn is_multinode(&self) -> bool {
        self.multinode.as_ref().is_some_and(|multinode| multinode.node_count > 1)
    }
}

/// Access from outside of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    /// Whether there is access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}

/// A claim of the graph, mounted in a component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMount {
    /// Name of the claim.
    pub name: String,
    /// Mount path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_point: Option<String>,
    /// Whether a backend keeps what it compiled there, at a place that it chooses unless one is given.
    #[serde(default)]
    pub use_as_compilation_cache: bool,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}

/// Shared memory, mounted at `/dev/shm`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharedMemory {
    /// Whether none is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity::optional")]
    pub size: Option<Quantity>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}

/// Whether a DynamoGraphDeploymentScalingAdapter scales a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingAdapter {
    /// Whether one scales it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}

/// Nodes per replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Multinode {
    /// Two at least.
    #[serde(default = "two")]
    #[schemars(range(min = 2))]
    pub node_count: i32,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}

fn two() -> i32 {
    2
}
