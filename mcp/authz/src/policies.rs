//! The policies of a configuration, parsed: at admission as in the proxy (toolhive-auth §4.1, §4.3).

use std::collections::HashSet;
use std::str::FromStr as _;

use cedar_policy::{Entities, EntityId, EntityTypeName, EntityUid, ParseErrors, Policy, PolicyId, PolicySet};
use mcp_runconfig::CedarConfig;
use miette::Diagnostic;
use serde_json::Value;

use crate::entities;
use crate::hints;
use crate::index::Index;
use crate::shape::{self, with_stack};
use crate::{Feature, PolicyError};

/// The type of the entities that groups become where the configuration names none.
const GROUP: &str = "THVGroup";

/// The policies of one MCP server.
#[derive(Debug)]
pub struct Policies {
    /// The policies of each action, in the order of [`Feature::ALL`].
    indices: Vec<Index>,
    pub(crate) config: CedarConfig,
    pub(crate) types: Types,
    pub(crate) server: EntityUid,
    /// The entities that a policy can look at: those that it names, and those that are values of their attributes.
    pub(crate) entities: Entities,
    /// All entities of the configuration.
    configured: Entities,
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
        let parse = |(entry, text): (usize, &String)| {
            let id = PolicyId::new(format!("policy{entry}"));
            Policy::parse(Some(id), text).map_err(|errors| located(entry, text, &errors))
        };
        let policies = config.policies.iter().enumerate().map(parse).collect::<Result<Vec<_>, _>>()?;
        let configured = entities::read(&config.entities_json)?;
        let index = |feature: Feature| {
            let action = uid(&types.action, feature.action());
            let groups = configured.ancestors(&action).into_iter().flatten().cloned().collect();
            Index::new(&policies, &action, &groups, types.of(feature))
        };
        let indices = Feature::ALL.into_iter().map(index).collect::<Result<_, _>>()?;
        let reachable = entities::reachable(&policies, &configured);
        let entities = Entities::from_entities(reachable, None).map_err(|error| entities::problem(&error))?;
        let reads_hints = policies.iter().any(reads_hints);
        let server = uid(&types.server, server);
        Ok(Self { indices, config: config.clone(), types, server, configured, entities, reads_hints, deep })
    }

    /// The policies that may decide on what `principals` do with an entity: a caller and its ancestors.
    pub(crate) fn on<'a>(
        &'a self,
        feature: Feature,
        resource: &EntityUid,
        principals: &'a [EntityUid],
    ) -> impl Iterator<Item = &'a PolicySet> {
        let at = Feature::ALL.iter().position(|other| *other == feature);
        at.and_then(|at| self.indices.get(at)).into_iter().flat_map(|index| index.of(resource, principals))
    }

    /// Whether a decision may depend on what the MCP server says of its tools.
    pub fn reads_hints(&self) -> bool {
        self.reads_hints
    }

    /// The ancestors of an entity of a request, with `parents` and those that the configuration gives it. They are told as parents, so
    /// that no decision has to look through the configuration's entities.
    pub(crate) fn ancestors(&self, uid: &EntityUid, parents: Vec<EntityUid>) -> HashSet<EntityUid> {
        let own = self.configured.ancestors(uid).into_iter().flatten().cloned();
        let of_parents = parents.iter().filter_map(|parent| self.configured.ancestors(parent)).flatten().cloned();
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
