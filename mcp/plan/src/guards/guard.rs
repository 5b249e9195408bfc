//! One guard: what asks for it, and whether it can be enforced.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use mcp_runconfig::chain;

use crate::{
    config::{BundleWords, Config, Terms, Words},
    problem::sentences,
    reference::{Content, Data, MountedFile, Reference, SecretVariable, Source},
    settings::Settings,
};

/// The configurations that workloads may refer to, by kind and name.
pub type Configs = BTreeMap<(Cow<'static, str>, String), Arc<dyn Config>>;

/// A reference to a configuration that guards a workload.
#[derive(Clone, Debug)]
pub struct GuardRef {
    /// The field that asks for it.
    pub field: &'static str,
    /// The kind of the configuration.
    pub kind: Cow<'static, str>,
    /// Its name.
    pub name: String,
    /// What the reference says beside the name.
    pub terms: Terms,
    /// How conditions speak of the kind.
    pub words: Words,
    /// The annotation of a Deployment by which versions before the guards' digest tell of it.
    pub annotation: Option<&'static str>,
    /// The types of middleware that enforce it.
    pub middleware: &'static [&'static str],
}

/// A guard, looked up.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    pub(super) asked: GuardRef,
    pub(super) state: State,
    /// What the conditions of the workload say of it.
    pub(super) conditions: Vec<GuardCondition>,
}

/// What a condition of a workload says of one of its guards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardCondition {
    /// The condition's type.
    pub type_: &'static str,
    /// Whether all is well.
    pub good: bool,
    /// One word for it.
    pub reason: &'static str,
    /// A sentence for the author.
    pub message: String,
}

#[derive(Clone, Debug)]
pub(super) enum State {
    /// It can be enforced.
    Usable(Usable),
    /// It cannot be enforced, and why.
    Unusable(String),
}

#[derive(Clone, Debug)]
pub(super) struct Usable {
    pub(super) config: Arc<dyn Config>,
    /// The hash of the configuration.
    pub(super) hash: String,
    pub(super) files: Vec<MountedFile>,
    pub(super) variables: Vec<SecretVariable>,
}

/// A value that a configuration cannot do without.
struct Need {
    source: Source,
    key: String,
    content: Content,
}

// === impl GuardRef ===

impl GuardRef {
    /// The same reference, of a workload that says `terms` of it.
    #[must_use]
    pub fn on(self, terms: Terms) -> Self {
        Self { terms, ..self }
    }

    /// The same as a reference of any kind.
    pub fn reference(&self) -> Reference {
        Reference::of_proxy(self.field, self.kind.clone(), &self.name)
    }

    /// Whether the proxy's image can enforce it.
    pub fn is_built(&self, settings: &Settings) -> bool {
        settings.can_run(self.middleware)
    }

    /// Whether it judges messages, so that the proxy serves MCP endpoints alone.
    pub fn judges_messages(&self) -> bool {
        self.middleware.iter().any(|kind| chain::judges_messages(kind))
    }

    pub(super) fn id(&self) -> (String, String) {
        (self.kind.clone().into_owned(), self.name.clone())
    }

    /// What a proxy that enforces this says of it: the hash of the configuration, and after a slash a digest of what the
    /// reference says, if it says anything. Both decide who may call.
    pub(super) fn mark(&self, hash: &str) -> String {
        self.terms.digest().map_or_else(|| hash.to_owned(), |terms| format!("{hash}/{terms}"))
    }

    /// Whether it can be enforced with these configurations and what they need.
    pub(super) fn look_up(self, configs: &Configs, data: &Data, settings: &Settings) -> Guard {
        let words = self.words;
        let what = format!("{} {:?}", self.kind, self.name);
        let condition = |good, reason, message| GuardCondition { type_: words.condition, good, reason, message };
        let unusable =
            |reason, message: String| (State::Unusable(message.clone()), vec![condition(false, reason, message)]);
        let config = configs.get(&(self.kind.clone(), self.name.clone()));
        let problems = config.map(|config| config.problems(settings)).unwrap_or_default();
        let (state, mut conditions) = match config {
            None => unusable(words.not_found, format!("{what} does not exist")),
            Some(_) if !problems.is_empty() => {
                unusable(words.not_valid, format!("{what} is not valid: {}", sentences(&problems)))
            }
            Some(config) => {
                let (files, variables) = (config.files(), config.variables());
                let needs = needs(&files, &variables);
                let missing = data.missing(needs.iter().map(|need| (need.source.clone(), need.key.clone())));
                let broken: BTreeSet<String> =
                    needs.iter().filter_map(|need| data.problem(&need.source, &need.key, &need.content)).collect();
                if !missing.is_empty() {
                    let message = format!("{what} needs what does not exist: {}", missing.join(", "));
                    unusable(words.data_not_found, message)
                } else if !broken.is_empty() {
                    let broken: Vec<_> = broken.into_iter().collect();
                    let message = format!("{what} needs what cannot be used: {}", broken.join("; "));
                    unusable(words.data_not_valid, message)
                } else {
                    let valid = condition(true, words.valid, format!("{what} is valid"));
                    let usable = Usable { hash: config.hash(), config: config.clone(), files, variables };
                    (State::Usable(usable), vec![valid])
                }
            }
        };
        let files = config.filter(|_| problems.is_empty()).map(|config| config.files()).unwrap_or_default();
        conditions.extend(words.bundle.into_iter().filter_map(|words| bundle_conditions(words, &files, data)));
        Guard { asked: self, state, conditions }
    }
}

fn needs(files: &[MountedFile], variables: &[SecretVariable]) -> Vec<Need> {
    let files = files.iter().map(|file| Need {
        source: file.source.clone(),
        key: file.key.clone(),
        content: file.content.clone(),
    });
    let variables = variables.iter().map(|variable| Need {
        source: Source::Secret(variable.secret.clone()),
        key: variable.key.clone(),
        content: Content::Bytes,
    });
    files.chain(variables).collect()
}

/// What is to say of the CA bundle in a ConfigMap, where there is one.
fn bundle_conditions(words: BundleWords, files: &[MountedFile], data: &Data) -> Option<GuardCondition> {
    let file = files.iter().find(|file| matches!(file.source, Source::ConfigMap(_)))?;
    let (name, key) = (file.source.name(), &file.key);
    let (good, reason, message) = if data.entry(&file.source, key).is_none() {
        (false, words.not_found, format!("CA bundle ConfigMap {name:?} or its key {key:?} does not exist"))
    } else if let Some(problem) = data.problem(&file.source, key, &file.content) {
        (false, words.not_valid, format!("CA bundle {problem}"))
    } else {
        (true, words.valid, format!("CA bundle ConfigMap '{name}' is valid (key: {key})"))
    };
    Some(GuardCondition { type_: words.condition, good, reason, message })
}
