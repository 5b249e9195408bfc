//! An operator for entities, people with a user name: a rule, a default, a field that may not change, and three versions
//! of the kind. One file for each of them:
//!
//! | file | what it shows |
//! |---|---|
//! | `v1.rs`, `v2.rs`, `v3.rs` | the versions of the kind; `v3` is stored |
//! | `status.rs` | the status that the controller writes, in every version |
//! | `webhooks.rs` | validation, mutation, and everything registered as one value |
//! | `conversion.rs` | conversion of each version to the stored one and back |
//! | `controller.rs` | a controller that writes the status, and the rights that it needs |
//! | `main.rs` | the binary: `run`, `generate`, `certs`, `dev`, `doctor`, `migrate-storage` |

pub mod controller;
mod conversion;
mod status;
pub mod v1;
pub mod v2;
pub mod v3;
mod webhooks;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kube::core::crd::merge_crds;

pub use status::EntityStatus;
pub use webhooks::webhooks;

/// The CRD with all versions of the kind.
///
/// # Errors
/// When the versions are not of one kind.
pub fn crd() -> anyhow::Result<CustomResourceDefinition> {
    let versions = vec![v1::Entity::crd(), v2::Entity::crd(), v3::Entity::crd()];
    Ok(merge_crds(versions, "v3")?)
}
