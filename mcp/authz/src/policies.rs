//! The policies of a configuration, parsed: at admission as in the proxy (toolhive-auth §4.1, §4.3).

use std::collections::{HashMap, HashSet};
use std::str::FromStr as _;

use cedar_policy::{
    Entities, EntityId, EntityTypeName, EntityUid, EvalResult, ParseErrors, Policy, PolicyId, PolicySet,
};
use mcp_runconfig::CedarConfig;
use miette::Diagnostic;
use serde_json::Value;

use crate::Feature;
use crate::hints;
use crate::shape::{self, with_stack};

/// The type of the entities that groups become where the configuration names none.
const GROUP: &str = "THVGroup";

/// Policies that cannot be used. An error names the member of [`CedarConfig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// There is none.
    #[error("policies is empty; write at least one policy")]
    NoPolicies,
    /// A text is not exactly one policy.
    #[error("policies[{entry}] is not one Cedar policy: line {line}, column {column}: {problem}")]
    Policy {
        /// The number of the text, from 0.
        entry: usize,
        /// The line of the error in that text, from 1.
        line: usize,
        /// The column of the error in that line, from 1.
        column: usize,
        /// The error as Cedar says it.
        problem: String,
    },
    /// The entities are not Cedar's JSON.
    #[error("entities_json is not a list of Cedar entities: {0}")]
    Entities(String),
    /// The type of groups is no name.
    #[error("group_entity_type {name:?} is not usable: {problem}; write one name such as \"Team\"")]
    GroupType {
        /// The name.
        name: String,
        /// The error.
        problem: String,
    },
}

impl PolicyError {
    fn at(entry: usize, text: &str, offset: usize, problem: String) -> Self {
        let before = text.get(..offset).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        Self::Policy { entry, line, column, problem }
    }
}

/// The policies of one MCP server.
#[derive(Debug)]
pub struct Policies {
    pub(crate) set: PolicySet,
    pub(crate) config: CedarConfig,
    pub(crate) types: Types,
    pub(crate) server: EntityUid,
    /// The entities that a policy can look at: those that it names, and those that are values of their attributes.
    pub(crate) entities: Entities,
    /// The ancestors of each of the configuration's entities.
    ancestors: HashMap<EntityUid, HashSet<EntityUid>>,
    reads_hints: bool,
    /// Whether decisions need more stack than a thread has.
    pub(crate) deep: bool,
}

/// Types of entities.
#[derive(Debug)]
pub(crate) struct Types {
    pub(crate) client: EntityTypeName,
    pub(crate) group: EntityTypeName,
    pub(crate) action: EntityTypeName,
    pub(crate) server: EntityTypeName,
    pub(crate) backend: EntityTypeName,
    features: [EntityTypeName; 4],
}

impl Types {
    pub(crate) fn of(&self, feature: Feature) -> &EntityTypeName {
        let [tool, prompt, resource, skill] = &self.features;
        match feature {
            Feature::Tool => tool,
            Feature::Prompt => prompt,
            Feature::Resource => resource,
            Feature::Skill => skill,
        }
    }
}

pub(crate) fn uid(r#type: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(r#type.clone(), EntityId::new(id))
}

impl Policies {
    /// Parses the policies of a configuration. `server` is the name of the MCP server, or empty for none.
    ///
    /// # Errors
    /// The first member that does not parse.
    pub fn parse(config: &CedarConfig, server: &str) -> Result<Self, PolicyError> {
        if config.policies.is_empty() {
            return Err(PolicyError::NoPolicies);
        }
        let mut most = 0;
        for (entry, text) in config.policies.iter().enumerate() {
            let too_deep = |at| PolicyError::at(entry, text, at, "it is too deep; write several policies".to_owned());
            most = shape::steps(text).map_err(too_deep)?.max(most);
        }
        with_stack(|| Self::parse_shallow(config, server, shape::is_deep(most)))
    }

    fn parse_shallow(config: &CedarConfig, server: &str, deep: bool) -> Result<Self, PolicyError> {
        let types = types(&config.group_entity_type)?;
        let mut set = PolicySet::new();
        for (entry, text) in config.policies.iter().enumerate() {
            let id = PolicyId::new(format!("policy{entry}"));
            let policy = Policy::parse(Some(id), text).map_err(|errors| located(entry, text, &errors))?;
            set.add(policy).map_err(|error| PolicyError::at(entry, text, 0, error.to_string()))?;
        }
        let all = entities(&config.entities_json)?;
        let ancestors = |uid: &EntityUid| all.ancestors(uid).into_iter().flatten().cloned().collect();
        let ancestors = all.iter().map(|entity| (entity.uid(), ancestors(&entity.uid()))).collect();
        let problem = |error: cedar_policy::entities_errors::EntitiesError| PolicyError::Entities(describe(&error));
        let entities = Entities::from_entities(reachable(&set, &all), None).map_err(problem)?;
        let reads_hints = set.policies().any(reads_hints);
        let server = uid(&types.server, server);
        Ok(Self { set, config: config.clone(), types, server, entities, ancestors, reads_hints, deep })
    }

    /// Whether a decision may depend on what the MCP server says of its tools.
    pub fn reads_hints(&self) -> bool {
        self.reads_hints
    }

    /// The ancestors of an entity of a request, with `parents` and those that the configuration gives it. They are told as parents, so
    /// that no decision has to look through the configuration's entities.
    pub(crate) fn ancestors(&self, uid: &EntityUid, parents: Vec<EntityUid>) -> HashSet<EntityUid> {
        let own = self.ancestors.get(uid).into_iter().flatten().cloned();
        let of_parents = parents.iter().filter_map(|parent| self.ancestors.get(parent)).flatten().cloned();
        let mut all: HashSet<_> = own.chain(of_parents).collect();
        all.extend(parents);
        all.remove(uid);
        all
    }
}

fn types(group: &str) -> Result<Types, PolicyError> {
    let refused = |problem: String| PolicyError::GroupType { name: group.to_owned(), problem };
    if group.contains("::") {
        return Err(refused("types in namespaces are not supported".to_owned()));
    }
    let name = |name: &str| EntityTypeName::from_str(name).map_err(|error| refused(error.to_string()));
    Ok(Types {
        client: name("Client")?,
        group: name(if group.is_empty() { GROUP } else { group })?,
        action: name("Action")?,
        server: name("MCP")?,
        backend: name("Backend")?,
        features: [
            name(Feature::Tool.entity())?,
            name(Feature::Prompt.entity())?,
            name(Feature::Resource.entity())?,
            name(Feature::Skill.entity())?,
        ],
    })
}

fn entities(json: &str) -> Result<Entities, PolicyError> {
    if matches!(json.trim(), "" | "null") {
        return Ok(Entities::empty());
    }
    let syntax = |error: serde_json::Error| PolicyError::Entities(error.to_string());
    let mut value: Value = serde_json::from_str(json).map_err(syntax)?;
    // Both may be left out where ToolHive reads them.
    for entity in value.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        entity.entry("attrs").or_insert_with(|| Value::Object(serde_json::Map::new()));
        entity.entry("parents").or_insert_with(|| Value::Array(Vec::new()));
    }
    Entities::from_json_value(value, None).map_err(|error| PolicyError::Entities(describe(&error)))
}

/// The entities whose attributes or ancestors a policy can ask for: it names one itself, or comes to it by an attribute. Claims and arguments are never
/// entities.
fn reachable(set: &PolicySet, all: &Entities) -> Vec<cedar_policy::Entity> {
    let mut wanted: Vec<EntityUid> = set.policies().flat_map(Policy::entity_literals).collect();
    let mut found = HashMap::new();
    while let Some(uid) = wanted.pop() {
        let Some(entity) = all.get(&uid).filter(|_| !found.contains_key(&uid)) else { continue };
        let values = entity.attrs().chain(entity.tags()).filter_map(|(_, value)| value.ok());
        values.for_each(|value| named(&value, &mut wanted));
        found.insert(uid, entity.clone());
    }
    // Each keeps all of its ancestors, also those that are left out.
    found.into_values().collect()
}

fn named(value: &EvalResult, uids: &mut Vec<EntityUid>) {
    match value {
        EvalResult::EntityUid(uid) => uids.push(uid.clone()),
        EvalResult::Set(set) => set.iter().for_each(|value| named(value, uids)),
        EvalResult::Record(record) => record.iter().for_each(|(_, value)| named(value, uids)),
        EvalResult::Bool(_) | EvalResult::Long(_) | EvalResult::String(_) | EvalResult::ExtensionValue(_) => {}
    }
}

/// Whether a policy names one of the hints, as an attribute or as a text.
fn reads_hints(policy: &Policy) -> bool {
    fn names_hint(value: &Value) -> bool {
        match value {
            Value::String(text) => hints::NAMES.contains(&&**text),
            Value::Array(items) => items.iter().any(names_hint),
            Value::Object(members) => members.values().any(names_hint),
            _ => false,
        }
    }
    policy.to_json().map_or(true, |json| names_hint(&json))
}

fn located(entry: usize, text: &str, errors: &ParseErrors) -> PolicyError {
    let error = errors.iter().next();
    let label = error.and_then(|error| error.labels()?.next());
    let offset = label.map_or(0, |label| label.offset()).min(text.len());
    PolicyError::at(entry, text, offset, errors.to_string())
}

/// An error with its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.ends_with(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text
}
