//! The common part of configuration kinds: objects that workloads refer to, as guards or as settings.
//!
//! A kind says what is particular to it ([`ConfigKind`]). From that follow the [plan](plan_config) of its status, and a
//! controller and an admission webhook of its own. Unlike [`mcp_plan::config`], which has what a workload's plan takes from
//! a configuration of any kind, this is about the configuration itself.

mod login;
mod plan;

use std::sync::Arc;

use kube::core::object::HasStatus;
use mcp_api::{names::reason, v1beta1::ConfigStatus};
use mcp_plan::{
    config::{Config, ConfigUse, Needs, Origin, Part, Role, Target, Terms, Words},
    digest::short_digest,
    problem::Problem,
    reference::{Reference, SECRET},
    settings::Settings,
};
use mcp_runconfig::RunConfig;
use serde::{Serialize, de::DeserializeOwned};

use crate::subject::Subject;

pub use login::LoginTerms;
pub use plan::{ConfigInputs, ConfigPlan, plan_config};

/// A kind of configuration.
pub trait ConfigKind: Subject + HasStatus<Status: Clone + From<ConfigStatus> + Into<ConfigStatus>> {
    /// Its name in the conditions of workloads.
    const WORDS: Words;

    /// The annotation of a proxy's Deployment by which versions before the guards' digest told, as `NAME/HASH`, which
    /// configuration of this kind the proxy enforces.
    const ANNOTATION: Option<&'static str> = None;

    /// Reasons of its own condition `Valid`: where it is true, where it is false.
    const VALIDITY: (&'static str, &'static str) = (reason::VALIDATION_SUCCEEDED, reason::VALIDATION_FAILED);

    /// The types of middleware that every configuration of this kind takes.
    const MIDDLEWARE: &'static [&'static str];

    /// The terms of a workload's reference to it, beside the name; `()` where there are none.
    type Terms: Serialize + DeserializeOwned + Default + PartialEq;

    /// Lists the needs of `target`'s proxy for it, used on these terms.
    fn needs(&self, target: &Target, terms: &Self::Terms) -> Needs {
        let _ = (target, terms);
        Needs::default()
    }

    /// Its part in `target`, which uses it as `asked` says.
    fn part(&self, asked: &ConfigUse, target: &Target) -> Part {
        let _ = target;
        Part::of(asked)
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
            mark: None,
        }
    }

    /// The reason of its condition `Valid` where that is false.
    fn invalid(&self) -> &'static str {
        Self::VALIDITY.1
    }

    /// The hash of the spec.
    fn hash(&self) -> String {
        short_digest(self.spec())
    }
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

    fn references(&self) -> Vec<Reference> {
        Subject::references(&*self.0)
    }

    fn hash(&self) -> String {
        ConfigKind::hash(&*self.0)
    }

    fn part(&self, asked: &ConfigUse, target: &Target) -> Part {
        ConfigKind::part(&*self.0, asked, target)
    }

    fn needs(&self, target: &Target, terms: &Terms) -> Needs {
        ConfigKind::needs(&*self.0, target, &terms.read())
    }

    fn render(&self, target: &Target, terms: &Terms, document: &mut RunConfig) {
        ConfigKind::render(&*self.0, target, &terms.read(), document);
    }
}
