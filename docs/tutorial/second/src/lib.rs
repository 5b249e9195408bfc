//! An operator for backups.

mod conversion;
mod defaults;
mod rules;
pub mod v1;
pub mod v2;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kube::core::crd::{MergeError, merge_crds};
use portcullis::webhooks::Webhooks;

/// The webhooks that the API server calls.
pub fn webhooks() -> Webhooks {
    Webhooks::new().validate(rules::rules()).mutate(defaults::defaults()).convert(conversion::conversion())
}

/// Both versions of the kind; version 2 is what is stored.
///
/// # Errors
/// When the versions are not of one kind.
pub fn crd() -> Result<CustomResourceDefinition, MergeError> {
    merge_crds(vec![v1::Backup::crd(), v2::Backup::crd()], "v2")
}
