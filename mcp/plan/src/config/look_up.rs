//! The uses of a workload, looked up: whether each configuration exists and can be used, and what it brings.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::EnvVar;
use mcp_api::names::{condition, reason};
use mcp_runconfig::RunConfig;

use super::{BundleWords, Config, ConfigUse, Configs, Misfit, Needs, Origin, Part, Requested, Role, Target, Words};
use crate::{
    additions::Additions,
    digest::short_digest_of,
    problem::{Problem, sentences},
    reference::{Content, Data, MountedFile, Needed, SecretVariable, Source},
    settings::Settings,
};

/// The configurations that a workload uses, looked up.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    target: Target,
    all: Vec<Used>,
    unbuilt: Vec<&'static str>,
    additions: Additions,
}

/// A use, looked up.
#[derive(Clone, Debug)]
pub(crate) struct Used {
    /// The use, with its part as the configuration says it.
    pub(crate) asked: ConfigUse,
    pub(crate) state: State,
    /// Whether pods tell of it: the use asks for a guard, whatever the configuration says. While that is gone, those pods stay that were
    /// made with it.
    is_told: bool,
    conditions: Vec<UseCondition>,
}

/// A condition of a workload about a configuration that it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UseCondition {
    /// The kind of the configuration; none where the spec itself says it.
    pub kind: Option<Cow<'static, str>>,
    /// The condition's type.
    pub type_: &'static str,
    /// Whether all is well.
    pub good: bool,
    /// One word for it.
    pub reason: &'static str,
    /// A sentence for the author.
    pub message: String,
    /// The role of the configuration.
    pub role: Role,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    /// It can be used.
    Usable(Usable),
    /// It cannot be used, and why.
    Unusable(String),
}

#[derive(Clone, Debug)]
pub(crate) struct Usable {
    config: Arc<dyn Config>,
    /// The hash of the configuration.
    pub(crate) hash: String,
    needs: Needs,
}

/// Something that keeps a configuration from being used.
struct Fault {
    /// The word for it.
    reason: Reason,
    /// The end of a sentence that begins with the configuration.
    problem: String,
}

/// A word for a fault: one of the use's, or its own.
enum Reason {
    OfUse(fn(&Words) -> &'static str),
    Own(&'static str),
}

// === impl Uses ===

impl Uses {
    /// Looks up what the workload `target` asks for.
    pub fn look_up(asked: Requested, target: Target, configs: &Configs, data: &Data, settings: &Settings) -> Self {
        let unbuilt = asked.unbuilt(settings);
        let Requested { uses, additions, .. } = asked;
        let has_effect = |asked: &ConfigUse| asked.role == Role::Guard || asked.is_built(settings);
        let uses = uses.into_iter().filter(has_effect);
        let all = uses.map(|asked| Used::look_up(asked, &target, configs, data, settings)).collect();
        Self { target, all, unbuilt, additions }
    }

    /// The fields that ask for a guard that this version cannot enforce.
    pub fn unbuilt(&self) -> &[&'static str] {
        &self.unbuilt
    }

    /// Whether all guards can be put in place.
    pub fn can_be_enforced(&self) -> bool {
        self.unbuilt.is_empty() && self.guards().all(|it| matches!(it.state, State::Usable(_)))
    }

    /// The conditions of the workload about each.
    pub fn conditions(&self) -> impl Iterator<Item = &UseCondition> {
        self.all.iter().flat_map(|used| &used.conditions)
    }

    /// The annotation of a proxy made with these guards; none where there are none.
    pub fn digest(&self) -> Option<String> {
        let told = self.all.iter().filter(|used| used.is_told);
        let mut all: Vec<String> = told
            .filter_map(Used::usable)
            .map(|(asked, usable)| {
                let (kind, name) = asked.id();
                format!("{kind}/{name}/{}", self.mark(asked, &usable.hash))
            })
            .collect();
        all.sort();
        if all.is_empty() { None } else { Some(all.join(",")) }
    }

    /// The annotations of the proxy's Deployment by which older versions know its guards.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        let named = self.usable().filter_map(|(asked, usable)| {
            Some((asked.annotation?.to_owned(), format!("{}/{}", asked.id().1, usable.hash)))
        });
        named.collect()
    }

    /// The files that the proxy needs, in a fixed order, each once.
    pub fn files(&self) -> Vec<&MountedFile> {
        let all = self.needs().flat_map(|needs| &needs.files).map(|file| (&file.directory, file));
        all.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// The variables with values of Secrets that the proxy's process needs, in a fixed order.
    pub fn secrets(&self) -> Vec<&SecretVariable> {
        self.needs().flat_map(|needs| &needs.secrets).collect()
    }

    /// The other variables that the proxy's process needs, in a fixed order.
    pub fn variables(&self) -> Vec<&EnvVar> {
        self.needs().flat_map(|needs| &needs.variables).collect()
    }

    /// Whether the proxy needs the CA and the token of its pod's ServiceAccount.
    pub fn need_account(&self) -> bool {
        self.needs().any(|needs| needs.account)
    }

    /// Puts into the document of the proxy what it is to do.
    pub fn render(&self, document: &mut RunConfig) {
        for (asked, usable) in self.usable() {
            usable.config.render(&self.target, &asked.terms, document);
        }
        self.additions.render(document);
    }

    pub(crate) fn all(&self) -> &[Used] {
        &self.all
    }

    pub(crate) fn guards(&self) -> impl Iterator<Item = &Used> {
        self.all.iter().filter(|it| it.asked.role == Role::Guard)
    }

    /// The mark of a proxy that enforces this guard: the hash of the configuration, and after a slash a digest of what
    /// the reference and the workload's annotations say, if they say anything. Both decide who may call.
    pub(crate) fn mark(&self, asked: &ConfigUse, hash: &str) -> String {
        let additions = Some(&self.additions).filter(|it| !it.is_empty());
        let additions = additions.map(|it| serde_json::to_string(it).unwrap_or_default()).unwrap_or_default();
        let told = format!("{}{additions}", asked.terms.text());
        if told.is_empty() { hash.to_owned() } else { format!("{hash}/{}", short_digest_of(told.as_bytes())) }
    }

    /// The paths that are open although a guard judges messages: the end of a sentence.
    pub(crate) fn passed_by(&self) -> String {
        let open = &self.additions.members.open_paths;
        if open.is_empty() || !self.all.iter().any(|it| it.asked.judges_messages()) {
            return String::new();
        }
        format!("; requests to {} pass unjudged", open.join(", "))
    }

    fn usable(&self) -> impl Iterator<Item = (&ConfigUse, &Usable)> {
        self.all.iter().filter_map(Used::usable)
    }

    fn needs(&self) -> impl Iterator<Item = &Needs> {
        self.usable().map(|(_, usable)| &usable.needs)
    }
}

// === impl Used ===

impl Used {
    /// Whether it can be used with these configurations and what they need.
    fn look_up(mut asked: ConfigUse, target: &Target, configs: &Configs, data: &Data, settings: &Settings) -> Self {
        let (what, is_told) = (asked.title(), asked.role == Role::Guard);
        let kind = match &asked.origin {
            Origin::Object { kind, .. } => Some(kind.clone()),
            Origin::Inline(_) => None,
        };
        let config = asked.found(configs);
        let part = config.as_ref().map_or_else(|| Part::of(&asked), |config| config.part(&asked, target));
        let lacks = |kind: &&'static str| !asked.middleware.contains(kind) && !settings.can_run(&[kind]);
        let unbuilt: Vec<_> = part.middleware.iter().copied().filter(lacks).collect();
        let misfit = part.misfit.map(|Misfit { reason, problem }| Fault::own(reason, &problem));
        (asked.role, asked.middleware, asked.mark) = (part.role, part.middleware, part.mark);
        let role = asked.role;
        let problems = config.as_ref().map(|config| config.problems(settings)).unwrap_or_default();
        let needs = config.as_ref().filter(|_| problems.is_empty()).map(|config| config.needs(target, &asked.terms));
        let bundle = asked.words.and_then(|words| words.bundle).zip(needs.as_ref());
        let bundle = bundle.and_then(|(words, needs)| bundle_condition(words, kind.clone(), role, &needs.files, data));
        let subject = if config.is_some() { what.clone() } else { format!("{}: {what}", asked.field) };
        let found = match (config, needs) {
            (None, _) => Err(Fault::new(|words| words.not_found, "does not exist; create it".to_owned())),
            (Some(_), None) => {
                Err(Fault::new(|words| words.not_valid, format!("is not valid: {}", sentences(&problems))))
            }
            _ if !unbuilt.is_empty() => {
                let problem = format!("takes {}, which the image of the proxies does not have", unbuilt.join(", "));
                Err(Fault::new(|words| words.not_valid, problem))
            }
            (Some(config), Some(needs)) => Usable::of(asked.field, config, needs, data, settings),
        };
        let words = asked.words;
        let (state, condition) = match misfit.map_or(found, Err) {
            Ok(usable) => {
                let message = format!("{what} {}", part.note.unwrap_or("is valid"));
                let valid = |Words { condition, valid, .. }| UseCondition {
                    kind: kind.clone(),
                    type_: condition,
                    good: true,
                    reason: valid,
                    message,
                    role,
                };
                (State::Usable(usable), words.map(valid))
            }
            Err(Fault { reason, problem }) => {
                let message = format!("{subject} {problem}");
                let (type_, reason) = words
                    .as_ref()
                    .map_or((condition::VALID, reason::VALIDATION_FAILED), |words| (words.condition, reason.of(words)));
                let kind = kind.clone();
                let condition = UseCondition { kind, type_, good: false, reason, message: message.clone(), role };
                (State::Unusable(message), Some(condition))
            }
        };
        Self { asked, state, is_told, conditions: condition.into_iter().chain(bundle).collect() }
    }

    fn usable(&self) -> Option<(&ConfigUse, &Usable)> {
        match &self.state {
            State::Usable(usable) => Some((&self.asked, usable)),
            State::Unusable(_) => None,
        }
    }
}

// === impl Usable ===

impl Usable {
    /// The configuration that a workload asks for at `field`, where what it needs exists and can be used.
    fn of(
        field: &'static str,
        config: Arc<dyn Config>,
        needs: Needs,
        data: &Data,
        settings: &Settings,
    ) -> Result<Self, Fault> {
        let [missing, broken] = faults(field, &*config, &needs, data);
        let unusable =
            |problem: String| Fault::new(|words| words.data_not_valid, format!("needs what cannot be used: {problem}"));
        if !missing.is_empty() {
            let problem = format!("needs what does not exist: {}", sentences(&missing));
            return Err(Fault::new(|words| words.data_not_found, problem));
        }
        if !broken.is_empty() {
            return Err(unusable(sentences(&broken)));
        }
        let read = config.read_texts(data).map_err(unusable)?;
        if let problems @ [_, ..] = &*read.as_ref().map(|read| read.problems(settings)).unwrap_or_default() {
            return Err(unusable(sentences(problems)));
        }
        let config = read.unwrap_or(config);
        Ok(Self { hash: config.hash(), config, needs })
    }
}

// === impl Fault ===

impl Fault {
    fn new(reason: fn(&Words) -> &'static str, problem: String) -> Self {
        Self { reason: Reason::OfUse(reason), problem }
    }

    fn own(reason: &'static str, problem: &str) -> Self {
        Self { reason: Reason::Own(reason), problem: problem.to_owned() }
    }
}

impl Reason {
    fn of(&self, words: &Words) -> &'static str {
        match self {
            Self::OfUse(word) => word(words),
            Self::Own(word) => word,
        }
    }
}

/// The problems of the values that a configuration needs: of those that do not exist, and of those that cannot be used. A value that it names
/// by no field of its own is named by `field`.
fn faults(field: &'static str, config: &dyn Config, needs: &Needs, data: &Data) -> [Vec<Problem>; 2] {
    let references = config.references();
    let files = needs
        .files
        .iter()
        .filter(|file| !file.optional)
        .map(|file| (file.source.clone(), file.key.clone(), file.content.clone()));
    let secret = |it: &SecretVariable| (Source::Secret(it.secret.clone()), it.key.clone(), it.content.clone());
    let texts = needs.texts.iter().map(|(source, key)| (source.clone(), key.clone(), Content::Bytes));
    let all = files.chain(needs.secrets.iter().map(secret)).chain(texts);
    data.faults(all.map(|(source, key, content)| {
        let named = references.iter().find(|it| it.key == key && it.source().as_ref() == Some(&source));
        Needed { field: named.map_or(field.into(), |it| it.field.clone()), source, key, content }
    }))
}

/// The condition about the CA bundle in a ConfigMap, where there is one.
fn bundle_condition(
    words: BundleWords,
    kind: Option<Cow<'static, str>>,
    role: Role,
    files: &[MountedFile],
    data: &Data,
) -> Option<UseCondition> {
    let file = files.iter().find(|file| matches!(file.source, Source::ConfigMap(_)))?;
    let (name, key) = (file.source.name(), &file.key);
    let (good, reason, message) = if let Some(problem) = data.absence(&file.source, key) {
        (false, words.not_found, format!("CA bundle {problem}"))
    } else if let Some(problem) = data.problem(&file.source, key, &file.content) {
        (false, words.not_valid, format!("CA bundle {problem}"))
    } else {
        (true, words.valid, format!("CA bundle ConfigMap '{name}' is valid (key: {key})"))
    };
    Some(UseCondition { kind, type_: words.condition, good, reason, message, role })
}
