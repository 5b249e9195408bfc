//! Configurations, whatever their kind: what the plan of a workload takes from them. The trait of their kinds, and the plan
//! of their own status, are the operator's.

mod terms;

use std::fmt::Debug;

use mcp_runconfig::RunConfig;

use crate::{
    problem::Problem,
    reference::{MountedFile, Reference, SecretVariable},
    settings::Settings,
};

pub use terms::{Guarded, Terms};

/// How the conditions of workloads speak of a kind of configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// The condition's type.
    pub condition: &'static str,
    /// Reason: it can be used.
    pub valid: &'static str,
    /// Reason: it does not exist.
    pub not_found: &'static str,
    /// Reason: its spec breaks a rule.
    pub not_valid: &'static str,
    /// Reason: a Secret, a ConfigMap or a key that it names does not exist.
    pub data_not_found: &'static str,
    /// Reason: what one of those holds cannot be used.
    pub data_not_valid: &'static str,
    /// How they speak of the CA bundle that it names in a ConfigMap, for a kind that can.
    pub bundle: Option<BundleWords>,
}

/// How the conditions of workloads speak of a CA bundle in a ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleWords {
    /// The condition's type.
    pub condition: &'static str,
    /// Reason: it can be used.
    pub valid: &'static str,
    /// Reason: the ConfigMap or the key does not exist.
    pub not_found: &'static str,
    /// Reason: it is no bundle of certificates.
    pub not_valid: &'static str,
}

/// A configuration whose kind does not matter.
pub trait Config: Debug + Send + Sync {
    /// Every rule that it breaks under the operator's settings. With one of them it can never work.
    fn problems(&self, settings: &Settings) -> Vec<Problem>;
    /// Everything that it refers to.
    fn references(&self) -> Vec<Reference>;
    /// The hash of its spec.
    fn hash(&self) -> String;
    /// The files that a proxy needs for it.
    fn files(&self) -> Vec<MountedFile>;
    /// The variables that a proxy's process needs for it.
    fn variables(&self) -> Vec<SecretVariable>;
    /// Whether a proxy needs the CA and the token of its pod's ServiceAccount for it.
    fn needs_account(&self) -> bool;
    /// Puts into the document of a workload's proxy what it is to enforce.
    fn enforce(&self, guarded: &Guarded<'_>, document: &mut RunConfig);
}
