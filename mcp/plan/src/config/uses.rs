//! The uses of configurations that the spec of a workload asks for.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use mcp_runconfig::chain;

use super::{Config, Terms, Words};
use crate::{additions::Additions, reference::Reference, settings::Settings};

/// The configurations that workloads may refer to, by kind and name.
pub type Configs = BTreeMap<(Cow<'static, str>, String), Arc<dyn Config>>;

/// The effect of a setting that does not exist: the end of a sentence.
pub(crate) const SETTING_MISSING: &str = "until then no proxy is made, and one that runs stays as it is";

/// The role of a configuration in a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It protects: a proxy without it must not serve.
    Guard,
    /// It shapes: a change of it rolls the Deployment, and takes nothing down.
    Setting,
    /// It is tried: a proxy that cannot have it serves without it.
    Trial,
}

/// The place where a spec has the sessions of its proxy kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sessions {
    /// Each proxy keeps its own.
    #[default]
    Own,
    /// The proxies share the Redis that the spec names.
    Named,
    /// The spec leaves it to the operator.
    Open,
}

/// The place of a configuration.
#[derive(Clone, Debug)]
pub enum Origin {
    /// An object of this kind and name.
    Object {
        /// The kind.
        kind: Cow<'static, str>,
        /// The name.
        name: String,
    },
    /// The spec of the workload itself.
    Inline(Arc<dyn Config>),
}

/// A use of a configuration by a workload.
#[derive(Clone, Debug)]
pub struct ConfigUse {
    /// Its role.
    pub role: Role,
    /// The field that asks for it.
    pub field: &'static str,
    /// Its place.
    pub origin: Origin,
    /// The terms of the reference, beside the name.
    pub terms: Terms,
    /// The words of conditions. Without words they say nothing of one that can be used, and `Valid` speaks of another.
    pub words: Option<Words>,
    /// The annotation of a Deployment by which versions before the guards' digest tell of it.
    pub annotation: Option<&'static str>,
    /// The types of middleware that it takes, whatever the configuration says.
    pub middleware: &'static [&'static str],
    /// The word that pods have for it in place of its kind, where a workload may use one object in two ways.
    pub mark: Option<&'static str>,
}

/// The wishes of a spec for its proxy.
#[derive(Clone, Debug, Default)]
pub struct Requested {
    /// The configurations.
    pub uses: Vec<ConfigUse>,
    /// The requests of the workload's annotations to its proxy. They are part of each guard: a proxy that was made before a
    /// change of them enforces something else.
    pub additions: Additions,
    /// The place of its sessions.
    pub sessions: Sessions,
}

// === impl ConfigUse ===

impl ConfigUse {
    /// A use of what the spec itself says at `field`.
    pub fn inline(
        role: Role,
        field: &'static str,
        config: Arc<dyn Config>,
        middleware: &'static [&'static str],
    ) -> Self {
        let origin = Origin::Inline(config);
        Self { role, field, origin, terms: Terms::default(), words: None, annotation: None, middleware, mark: None }
    }

    /// Lists its references: to an object, or to those that the spec itself names for it.
    pub fn references(&self) -> Vec<Reference> {
        let (kind, name) = match &self.origin {
            Origin::Object { kind, name } => (kind.clone(), name),
            Origin::Inline(config) => return config.references(),
        };
        let reference = Reference::of_proxy(self.field, kind, name);
        let while_missing = match self.role {
            Role::Guard => reference.while_missing,
            Role::Setting => SETTING_MISSING,
            Role::Trial => "until then the proxy serves without it",
        };
        vec![Reference { while_missing, ..reference }]
    }

    /// Whether the proxy's image has what it takes.
    pub fn is_built(&self, settings: &Settings) -> bool {
        settings.can_run(self.middleware)
    }

    /// Whether it judges messages, so that the proxy serves MCP endpoints alone.
    pub fn judges_messages(&self) -> bool {
        self.middleware.iter().any(|kind| chain::judges_messages(kind))
    }

    /// The configuration, where it is in the spec or among `configs`.
    pub fn found(&self, configs: &Configs) -> Option<Arc<dyn Config>> {
        match &self.origin {
            Origin::Object { kind, name } => configs.get(&(kind.clone(), name.clone())).cloned(),
            Origin::Inline(config) => Some(config.clone()),
        }
    }

    /// The kind and name by which pods tell of it.
    pub(crate) fn id(&self) -> (String, String) {
        match &self.origin {
            Origin::Object { kind, name } => (self.mark.unwrap_or(kind).to_owned(), name.clone()),
            Origin::Inline(_) => ("inline".to_owned(), self.field.to_owned()),
        }
    }

    /// The name that messages have for it.
    pub fn title(&self) -> String {
        match &self.origin {
            Origin::Object { kind, name } => format!("{kind} {name:?}"),
            Origin::Inline(_) => self.field.to_owned(),
        }
    }
}

// === impl Requested ===

impl Requested {
    /// Collects the members of `uses` that are asked for, and the requests of the workload's annotations.
    pub fn of(
        uses: impl IntoIterator<Item = Option<ConfigUse>>,
        annotations: Option<&BTreeMap<String, String>>,
    ) -> Self {
        let uses = uses.into_iter().flatten().collect();
        Self { uses, additions: Additions::of(annotations), sessions: Sessions::default() }
    }

    /// Everything that they refer to.
    pub fn references(&self) -> Vec<Reference> {
        self.uses.iter().flat_map(ConfigUse::references).collect()
    }

    /// The fields and annotations that ask for a guard which the proxy's image does not have.
    pub fn unbuilt(&self, settings: &Settings) -> Vec<&'static str> {
        let uses = self.fields_without_middleware(true, settings);
        let additions = self.additions.unbuilt(settings).filter(|_| self.judge_messages());
        uses.chain(additions).collect()
    }

    /// The fields that ask for no guard, and for something that the proxy's image does not have: they change nothing.
    pub fn without_effect(&self, settings: &Settings) -> Vec<&'static str> {
        self.fields_without_middleware(false, settings).collect()
    }

    /// Whether one of them judges messages, so that the proxy serves MCP endpoints alone.
    pub fn judge_messages(&self) -> bool {
        self.uses.iter().any(ConfigUse::judges_messages)
    }

    /// Whether one of them takes middleware of this type.
    pub fn has(&self, kind: &str) -> bool {
        self.uses.iter().any(|it| it.middleware.contains(&kind))
    }

    fn fields_without_middleware(&self, guards: bool, settings: &Settings) -> impl Iterator<Item = &'static str> {
        let uses = self.uses.iter().filter(move |it| (it.role == Role::Guard) == guards && !it.is_built(settings));
        uses.map(|it| it.field)
    }
}
