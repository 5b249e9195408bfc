//! What all configuration kinds share: objects that workloads refer to, which guard them or shape their proxies.
//!
//! A kind says what is particular to it ([`ConfigKind`]). From that there is one [plan](plan_config), one controller and
//! one admission webhook for all of them.

mod plan;

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mcp_api::names::reason;
use mcp_runconfig::RunConfig;
use serde::Serialize;

use crate::{
    digest::digest,
    problem::Problem,
    reference::{MountedFile, Reference, Referrer, SecretVariable},
    subject::Subject,
};

pub use plan::{ConfigInputs, ConfigPlan, plan_config};

/// Length of `status.configHash`: enough to tell two specs apart, short enough to read.
const HASH_LENGTH: usize = 16;

/// A kind of configuration.
pub trait ConfigKind: Subject {
    /// How the conditions of workloads speak of it.
    const WORDS: Words;

    /// The annotation of a proxy's Deployment by which versions before the guards' digest told, as `NAME/HASH`, which
    /// configuration of this kind the proxy enforces.
    const ANNOTATION: Option<&'static str> = None;

    /// Reasons of its own condition `Valid`: where it is true, where it is false.
    const VALIDITY: (&'static str, &'static str) = (reason::VALIDATION_SUCCEEDED, reason::VALIDATION_FAILED);

    /// The types of middleware that enforce it.
    const MIDDLEWARE: &'static [&'static str];

    /// The files that a proxy needs for it.
    fn files(&self) -> Vec<MountedFile> {
        Vec::new()
    }

    /// The variables that a proxy's process needs for it.
    fn variables(&self) -> Vec<SecretVariable> {
        Vec::new()
    }

    /// Whether a proxy needs the CA and the token of its pod's ServiceAccount for it.
    fn needs_account(&self) -> bool {
        false
    }

    /// Puts into the document of a workload's proxy what it is to enforce.
    fn enforce(&self, guarded: &Guarded<'_>, document: &mut RunConfig);

    /// The conditions of a status.
    fn conditions(status: &Self::Status) -> Option<&Vec<Condition>>;

    /// The hash in a status.
    fn last_hash(status: &Self::Status) -> Option<&str>;

    /// The status of the kind.
    fn status_of(report: ConfigReport) -> Self::Status;

    /// The hash of the spec.
    fn hash(&self) -> String {
        short_digest(self.spec())
    }
}

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
    pub secret_not_found: &'static str,
    /// Reason: what one of those holds cannot be used.
    pub secret_not_valid: &'static str,
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

/// What a workload's reference to a configuration says beside the name. A kind of configuration reads what concerns it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Terms {
    /// The audience that tokens must be issued for.
    pub audience: String,
    /// The scopes that tokens need.
    pub scopes: Vec<String>,
    /// The address by which clients know the workload, where it is not the one of its Service.
    pub resource_url: Option<String>,
}

/// The workload that a configuration guards.
#[derive(Clone, Copy, Debug)]
pub struct Guarded<'a> {
    /// Where clients inside the cluster reach it, as its status says.
    pub url: &'a str,
    /// What its reference to the configuration says.
    pub terms: &'a Terms,
}

/// What a controller of configurations reports, whatever the kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigReport {
    /// The conditions.
    pub conditions: Option<Vec<Condition>>,
    /// The hash of the last spec that could be used.
    pub config_hash: Option<String>,
    /// The generation that this describes.
    pub observed_generation: Option<i64>,
    /// Who refers to it, sorted, each once.
    pub referrers: Vec<Referrer>,
}

/// A configuration whose kind does not matter.
pub trait Config: Debug + Send + Sync {
    /// See [`Subject::problems`].
    fn problems(&self) -> Vec<Problem>;
    /// See [`Subject::references`].
    fn references(&self) -> Vec<Reference>;
    /// See [`ConfigKind::hash`].
    fn hash(&self) -> String;
    /// See [`ConfigKind::files`].
    fn files(&self) -> Vec<MountedFile>;
    /// See [`ConfigKind::variables`].
    fn variables(&self) -> Vec<SecretVariable>;
    /// See [`ConfigKind::needs_account`].
    fn needs_account(&self) -> bool;
    /// See [`ConfigKind::enforce`].
    fn enforce(&self, guarded: &Guarded<'_>, document: &mut RunConfig);
}

impl<K: ConfigKind> Config for K {
    fn problems(&self) -> Vec<Problem> {
        Subject::problems(self)
    }

    fn references(&self) -> Vec<Reference> {
        Subject::references(self)
    }

    fn hash(&self) -> String {
        ConfigKind::hash(self)
    }

    fn files(&self) -> Vec<MountedFile> {
        ConfigKind::files(self)
    }

    fn variables(&self) -> Vec<SecretVariable> {
        ConfigKind::variables(self)
    }

    fn needs_account(&self) -> bool {
        ConfigKind::needs_account(self)
    }

    fn enforce(&self, guarded: &Guarded<'_>, document: &mut RunConfig) {
        ConfigKind::enforce(self, guarded, document);
    }
}

// === impl Terms ===

impl Terms {
    /// A digest of what they say; none where they say nothing.
    pub fn digest(&self) -> Option<String> {
        let told = *self != Self::default();
        told.then(|| short_digest(self))
    }
}

/// Members serialize in the order of their declaration: equal values give equal digests.
fn short_digest(value: &impl Serialize) -> String {
    let mut digest = digest(&serde_json::to_vec(value).unwrap_or_default());
    digest.truncate(HASH_LENGTH);
    digest
}
