//! What all configuration kinds share: objects that workloads refer to, which guard them or shape their proxies.
//!
//! A kind says what is particular to it ([`ConfigKind`]). From that there is one [plan](plan_config), one controller and
//! one admission webhook for all of them.

mod plan;

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mcp_runconfig::RunConfig;

use crate::{
    digest::digest,
    problem::Problem,
    reference::{Reference, Referrer, SecretFile},
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

    /// The types of middleware that enforce it.
    const MIDDLEWARE: &'static [&'static str];

    /// The files that a proxy needs for it.
    fn files(&self) -> Vec<SecretFile> {
        Vec::new()
    }

    /// Puts into a proxy's document what it is to enforce.
    fn enforce(&self, document: &mut RunConfig);

    /// The conditions of a status.
    fn conditions(status: &Self::Status) -> Option<&Vec<Condition>>;

    /// The hash in a status.
    fn last_hash(status: &Self::Status) -> Option<&str>;

    /// The status of the kind.
    fn status_of(report: ConfigReport) -> Self::Status;

    /// The hash of the spec.
    fn hash(&self) -> String {
        // Members serialize in the order of their declaration: equal specs give equal bytes.
        let mut hash = digest(&serde_json::to_vec(self.spec()).unwrap_or_default());
        hash.truncate(HASH_LENGTH);
        hash
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
    /// Reason: a Secret or a key that it names does not exist.
    pub secret_not_found: &'static str,
    /// Reason: what a Secret holds cannot be used.
    pub secret_not_valid: &'static str,
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
    fn files(&self) -> Vec<SecretFile>;
    /// See [`ConfigKind::enforce`].
    fn enforce(&self, document: &mut RunConfig);
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

    fn files(&self) -> Vec<SecretFile> {
        ConfigKind::files(self)
    }

    fn enforce(&self, document: &mut RunConfig) {
        ConfigKind::enforce(self, document);
    }
}
