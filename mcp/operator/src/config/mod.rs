//! The common part of configuration kinds: objects that workloads refer to, as guards or as settings.
//!
//! A kind says what is particular to it ([`ConfigKind`]). From that follow the [plan](plan_config) of its status, and a
//! controller and an admission webhook of its own. Unlike [`mcp_plan::config`], which has what a workload's plan takes from
//! a configuration of any kind, this is about the configuration itself.

mod audit;
pub mod bundle;
mod login;
mod plan;
mod policies;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mcp_api::{names::reason, v1beta1::WorkloadRef};
use mcp_plan::{
    config::{Config, ConfigUse, Needs, Origin, Role, Target, Terms, Words},
    digest::short_digest,
    problem::Problem,
    reference::{Reference, Referrer, SECRET},
    settings::Settings,
};
use mcp_runconfig::RunConfig;
use serde::{Serialize, de::DeserializeOwned};

use crate::subject::Subject;

pub use audit::audit;
pub use login::LoginTerms;
pub use plan::{ConfigInputs, ConfigPlan, plan_config};
pub use policies::{PolicyTerms, tried};

/// A kind of configuration.
pub trait ConfigKind: Subject {
    /// How the conditions of workloads speak of it.
    const WORDS: Words;

    /// The annotation of a proxy's Deployment by which versions before the guards' digest told, as `NAME/HASH`, which
    /// configuration of this kind the proxy enforces.
    const ANNOTATION: Option<&'static str> = None;

    /// Reasons of its own condition `Valid`: where it is true, where it is false.
    const VALIDITY: (&'static str, &'static str) = (reason::VALIDATION_SUCCEEDED, reason::VALIDATION_FAILED);

    /// The types of middleware that it takes.
    const MIDDLEWARE: &'static [&'static str];

    /// The terms of a workload's reference to it, beside the name; `()` where there are none.
    type Terms: Serialize + DeserializeOwned + Default + PartialEq;

    /// Lists the needs of `target`'s proxy for it, used on these terms.
    fn needs(&self, target: &Target, terms: &Self::Terms) -> Needs {
        let _ = (target, terms);
        Needs::default()
    }

    /// The rule that a use of it on these terms breaks: the end of a sentence.
    fn problem_on(&self, terms: &Self::Terms) -> Option<String> {
        let _ = terms;
        None
    }

    /// Puts into the document of the proxy of `target` what it is to do, on these terms.
    fn render(&self, target: &Target, terms: &Self::Terms, document: &mut RunConfig);

    /// The use that a workload makes of the configuration of this kind and name, which `field` refers to on these terms.
    fn used(role: Role, field: &'static str, name: &str, terms: &Self::Terms) -> ConfigUse {
        ConfigUse {
            role,
            field,
            origin: Origin::Object { kind: Self::kind(&()), name: name.to_owned() },
            terms: Terms::of(terms),
            words: Some(Self::WORDS),
            annotation: Self::ANNOTATION,
            middleware: Self::MIDDLEWARE,
        }
    }

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

/// The parts that it may not have in the operator's own namespace: the Secrets there that belong to the operator, whose values it would send to
/// servers that its author names.
pub fn refused_secrets<K: ConfigKind>(config: &K, settings: &Settings) -> Vec<Problem> {
    let Some(home) = settings.home_in(config.meta().namespace.as_deref().unwrap_or_default()) else {
        return Vec::new();
    };
    let secrets = config.references().into_iter().filter(|reference| reference.kind == SECRET);
    secrets.filter_map(|it| Some(Problem::new(it.field, home.secret_problem(&it.name)?))).collect()
}

/// The workloads that a status lists; none where there is none.
pub fn workloads(referrers: Vec<Referrer>) -> Option<Vec<WorkloadRef>> {
    let workloads: Vec<_> = referrers.into_iter().map(|Referrer { kind, name }| WorkloadRef { kind, name }).collect();
    (!workloads.is_empty()).then_some(workloads)
}

/// The configuration, for those to whom its kind does not matter.
pub fn erased<K: ConfigKind>(config: Arc<K>) -> Arc<dyn Config> {
    Arc::new(Erased(config))
}

#[derive(Debug)]
struct Erased<K>(Arc<K>);

impl<K: ConfigKind> Config for Erased<K> {
    fn problems(&self, settings: &Settings) -> Vec<Problem> {
        self.0.every_problem(settings).into_iter().chain(refused_secrets(&*self.0, settings)).collect()
    }

    fn problem_on(&self, terms: &Terms) -> Option<String> {
        ConfigKind::problem_on(&*self.0, &terms.read())
    }

    fn references(&self) -> Vec<Reference> {
        Subject::references(&*self.0)
    }

    fn hash(&self) -> String {
        ConfigKind::hash(&*self.0)
    }

    fn needs(&self, target: &Target, terms: &Terms) -> Needs {
        ConfigKind::needs(&*self.0, target, &terms.read())
    }

    fn render(&self, target: &Target, terms: &Terms, document: &mut RunConfig) {
        ConfigKind::render(&*self.0, target, &terms.read(), document);
    }
}
