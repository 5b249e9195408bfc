//! The policies of a configuration, parsed: at admission as in the proxy (toolhive-auth §4.1, §4.3).

use std::collections::HashSet;
use std::str::FromStr as _;

use cedar_policy::{
    Entities, Entity, EntityId, EntityTypeName, EntityUid, ParseErrors, Policy, PolicyId, RestrictedExpression,
};
use mcp_runconfig::CedarConfig;
use miette::Diagnostic;

use crate::entities;
use crate::error::quoted;
use crate::index::{Index, Set};
use crate::reads::Found;
use crate::shape::{Shape, with_stack};
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
    /// The entities that policies name, or come to by attributes of those.
    pub(crate) named: HashSet<EntityUid>,
    /// The entities of the configuration that conditions can look at, with each action as its questions have it, in the order of [`Feature::ALL`].
    pub(crate) entities: Vec<Entities>,
    /// All entities of the configuration.
    pub(crate) configured: Entities,
    reads_hints: bool,
    /// Whether an entity that a policy names, or comes to, may be what is asked for.
    pub(crate) names_features: bool,
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

    /// Whether a request may have it as its principal, action or resource.
    fn is_of_request(&self, uid: &EntityUid) -> bool {
        let r#type = uid.type_name();
        *r#type == self.client || *r#type == self.action || self.features.contains(r#type)
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
        let mut shape = Shape::default();
        for (entry, text) in config.policies.iter().enumerate() {
            shape.add(text).map_err(|(at, problem)| PolicyError::at(entry, text, at, problem.to_owned()))?;
        }
        with_stack(|| Self::parse_shallow(config, server, shape.is_deep()))
    }

    fn parse_shallow(config: &CedarConfig, server: &str, deep: bool) -> Result<Self, PolicyError> {
        let types = types(&config.group_entity_type)?;
        let parse = |(entry, text): (usize, &String)| {
            let id = PolicyId::new(format!("policy{entry}"));
            Policy::parse(Some(id), text).map_err(|errors| located(entry, text, &errors))
        };
        let policies = config.policies.iter().enumerate().map(parse).collect::<Result<Vec<_>, _>>()?;
        let mut found: Vec<_> = policies.iter().map(Found::in_policy).collect();
        let configured = entities::read(&config.entities_json)?;
        let reachable =
            entities::reachable(found.iter().flat_map(|found| found.entities.clone()).collect(), &configured);
        let names_features = reachable.iter().any(|uid| types.features.contains(uid.type_name()));
        if names_features {
            // One of them may be what is asked for.
            for found in &mut found {
                found.reads.resource |= !found.entities.is_empty();
            }
        }
        let reads_hints = found.iter().any(|found| found.hints);
        let policies: Vec<_> = found.into_iter().map(|found| found.reads).zip(policies).collect();
        // Each keeps all of its ancestors, also those that are left out.
        let looked_at: Vec<_> = reachable.iter().filter_map(|uid| configured.get(uid)).cloned().collect();

        let (mut sets, mut indices, mut entities) = (0, Vec::new(), Vec::new());
        for feature in Feature::ALL {
            let action = uid(&types.action, feature.action());
            let groups: HashSet<_> = configured.ancestors(&action).into_iter().flatten().cloned().collect();
            indices.push(Index::new(&policies, &action, &groups, types.of(feature), &mut sets)?);
            entities.push(with_action(feature, action, groups, &looked_at)?);
        }
        let literals = policies.iter().flat_map(|(_, policy)| policy.entity_literals());
        let (named, server) = (literals.chain(reachable).collect(), uid(&types.server, server));
        Ok(Self {
            indices,
            config: config.clone(),
            types,
            server,
            named,
            entities,
            configured,
            reads_hints,
            names_features,
            deep,
        })
    }

    /// The policies that may decide on what `principals` do with the entity of this name: a caller and its ancestors.
    pub(crate) fn on<'a>(
        &'a self,
        feature: Feature,
        name: &str,
        principals: &'a [EntityUid],
    ) -> impl Iterator<Item = &'a Set> {
        self.indices.get(feature as usize).into_iter().flat_map(|index| index.of(name, principals))
    }

    /// The policies of all actions; one that is for several comes several times.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Policy> {
        self.indices.iter().flat_map(Index::policies)
    }

    /// Whether a decision may depend on what the MCP server says of its tools.
    pub fn reads_hints(&self) -> bool {
        self.reads_hints
    }

    /// The ancestors of an entity of a request that policies can compare with something: of `parents`, and of those that the configuration gives it.
    /// They are told as parents, so that no decision has to look through the configuration's entities.
    pub(crate) fn ancestors(&self, uid: &EntityUid, parents: Vec<EntityUid>) -> HashSet<EntityUid> {
        let own = self.configured.ancestors(uid).into_iter().flatten().cloned();
        let of_parents = parents.iter().filter_map(|parent| self.configured.ancestors(parent)).flatten().cloned();
        let mut all: HashSet<_> = own.chain(of_parents).collect();
        all.extend(parents);
        all.retain(|other| other != uid && (self.named.contains(other) || self.types.is_of_request(other)));
        all
    }
}

/// These entities, and the action of a feature in place of one that is among them.
fn with_action(
    feature: Feature,
    action: EntityUid,
    ancestors: HashSet<EntityUid>,
    entities: &[Entity],
) -> Result<Entities, PolicyError> {
    let problem = |error| entities::problem(&error);
    let operation = RestrictedExpression::new_string(feature.action().to_owned());
    let attributes = [("operation".to_owned(), operation)].into();
    let action =
        Entity::new(action, attributes, ancestors).map_err(|error| PolicyError::Entities(error.to_string()))?;
    let entities = Entities::from_entities(entities.iter().cloned(), None).map_err(problem)?;
    entities.upsert_entities([action], None).map_err(problem)
}

fn types(group: &str) -> Result<Types, PolicyError> {
    let refused = |problem: String| PolicyError::GroupType { name: quoted(group), problem: quoted(&problem) };
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

fn located(entry: usize, text: &str, errors: &ParseErrors) -> PolicyError {
    let error = errors.iter().next();
    let label = error.and_then(|error| error.labels()?.next());
    let offset = label.map_or(0, |label| label.offset()).min(text.len());
    PolicyError::at(entry, text, offset, errors.to_string())
}
