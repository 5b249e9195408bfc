//! Dynamo's kinds, group `nvidia.com`, version `v1alpha1`, as of Dynamo 0.7 and 0.8.
//!
//! Each type has the fields that the rules read, with the constraints of Dynamo's own schema. Whatever else an object has
//! is kept: by the API server (`x-kubernetes-preserve-unknown-fields`), and by the types, in `rest`.

mod component;
mod component_deployment;
mod graph_deployment;
mod graph_deployment_request;
mod model;
mod quantity;
mod schema;
mod status;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::object::HasStatus;
use kube::{CustomResourceExt, Resource};
use portcullis::controller::Kind;
use portcullis::webhooks::AdmissionObject;
use serde_json::Value;

pub use component::{Component, Ingress, Multinode, ScalingAdapter, SharedMemory, VolumeMount};
pub use component_deployment::{DynamoComponentDeployment, DynamoComponentDeploymentSpec};
pub use graph_deployment::{DynamoGraphDeployment, DynamoGraphDeploymentSpec, Pvc};
pub use graph_deployment_request::{
    ConfigMapRef, DynamoGraphDeploymentRequest, DynamoGraphDeploymentRequestSpec, ProfilingConfig,
};
pub use model::{DynamoModel, DynamoModelSpec, ModelSource};
pub use quantity::Quantity;
pub(crate) use schema::is_immutable;
pub use status::Status;

/// Fields that no rule reads.
pub type Rest = BTreeMap<String, Value>;

/// A kind of this operator.
pub trait DynamoKind: Kind + AdmissionObject + HasStatus<Status = Status> {
    /// The kind in lower case: its webhooks, their paths and its controller are named after it.
    fn lower_case() -> String {
        <Self as Resource>::kind(&()).to_lowercase()
    }
}

impl DynamoKind for DynamoComponentDeployment {}
impl DynamoKind for DynamoGraphDeployment {}
impl DynamoKind for DynamoModel {}
impl DynamoKind for DynamoGraphDeploymentRequest {}

/// The CRDs of all kinds.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        DynamoComponentDeployment::crd(),
        DynamoGraphDeployment::crd(),
        DynamoModel::crd(),
        DynamoGraphDeploymentRequest::crd(),
    ]
}
