//! The caller, as policies see it: the principal of every question that it asks (toolhive-auth §4.2, §4.3).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, OnceLock, PoisonError};

use cedar_policy::{Context, Entities, Entity, EntityUid, RestrictedExpression};
use mcp_runconfig::CedarConfig;
use serde_json::{Map, Value};

use crate::policies::uid;
use crate::value::{Attributes, claim};
use crate::verdict::Verdict;
use crate::{Denial, Feature, Policies};

/// The claims that have a caller's groups where the configuration names none, or the token lacks the named one.
const GROUPS: [&str; 3] = ["groups", "roles", "cognito:groups"];

/// The token that claims come from. Policies read it as `thv_claim_source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimSource<'a> {
    /// The token of the request.
    Request,
    /// No token: everybody is the local user.
    Local,
    /// The token of the request, which was made without a login at an identity provider.
    NoUpstreamSession,
    /// The token of the request, as the identity provider's cannot be read.
    UpstreamOpaque,
    /// The token of this identity provider.
    Upstream(&'a str),
}

impl ClaimSource<'_> {
    fn text(self) -> String {
        match self {
            Self::Request | Self::Local => "request".to_owned(),
            Self::NoUpstreamSession => "request:no-upstream-session".to_owned(),
            Self::UpstreamOpaque => "request:upstream-opaque".to_owned(),
            Self::Upstream(provider) => format!("upstream:{provider}"),
        }
    }
}

/// The principal of questions, as the policies see it that it was made for. It may be kept: what policies say of the caller alone, they say once.
#[derive(Debug)]
pub struct Caller {
    pub(crate) principal: EntityUid,
    /// The principal and its ancestors, as far as policies name them.
    pub(crate) principals: Vec<EntityUid>,
    /// The principal with its claims.
    entity: Entity,
    /// The context of a question without arguments.
    pub(crate) context: Context,
    /// The principal among the entities that policies can look at, for each of [`Feature::ALL`].
    entities: [OnceLock<Entities>; 4],
    /// The verdicts of sets of policies on the caller alone, by their numbers.
    verdicts: Mutex<HashMap<usize, Verdict>>,
    size: usize,
}

/// The most verdicts that a caller keeps.
const VERDICTS: usize = 256;

impl Caller {
    /// The caller with these claims, as `policies` see it.
    ///
    /// # Errors
    /// The claims name no subject, or are not those of the identity provider whose claims the configuration asks for.
    pub fn new(policies: &Policies, claims: &Map<String, Value>, source: ClaimSource<'_>) -> Result<Self, Denial> {
        let config = &policies.config;
        let provider = &config.primary_upstream_provider;
        match source {
            _ if provider.is_empty() => {}
            ClaimSource::Upstream(name) if name == provider => {}
            ClaimSource::NoUpstreamSession | ClaimSource::UpstreamOpaque => {}
            ClaimSource::Request | ClaimSource::Local | ClaimSource::Upstream(_) => {
                return Err(Denial::Refused("there is no token of the identity provider that the policies ask for"));
            }
        }
        let subject = claims.get("sub").and_then(Value::as_str).filter(|subject| !subject.is_empty());
        let subject = subject.ok_or(Denial::Refused("the caller has no subject"))?;
        let principal = uid(&policies.types.client, subject);

        let groups = groups(claims, config).into_iter().map(|group| uid(&policies.types.group, group));
        let parents = policies.ancestors(&principal, groups.collect());
        let principals = [&principal].into_iter().chain(&parents).filter(|uid| policies.named.contains(uid));
        let principals = principals.cloned().collect();
        let size = 4 * claims.values().map(size).sum::<usize>()
            + 256 * (parents.len() + policies.entities.iter().map(Entities::len).sum::<usize>());
        let entity = Entity::new(principal.clone(), attributes(claims, source, config).into_iter().collect(), parents)
            .map_err(|_| Denial::UNTOLD)?;
        // A number that no decimal holds differs from itself, in the context as in the principal.
        let context = Context::from_pairs(attributes(claims, source, config)).map_err(|_| Denial::UNTOLD)?;
        let (entities, verdicts) = Default::default();
        Ok(Self { principal, principals, entity, context, entities, verdicts, size })
    }

    /// About the memory that it takes, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The principal among the entities that policies can look at.
    pub(crate) fn entities(&self, policies: &Policies, feature: Feature) -> Result<&Entities, Denial> {
        let place = self.entities.get(feature as usize).ok_or(Denial::UNTOLD)?;
        if let Some(entities) = place.get() {
            return Ok(entities);
        }
        let entities = policies.entities.get(feature as usize).ok_or(Denial::UNTOLD)?.clone();
        let entities = entities.upsert_entities([self.entity.clone()], None).map_err(|_| Denial::UNTOLD)?;
        Ok(place.get_or_init(|| entities))
    }

    /// The verdict of the set with this number on the caller alone, which `decide` finds where it is not known.
    pub(crate) fn verdict(
        &self,
        number: usize,
        decide: impl FnOnce() -> Result<Verdict, Denial>,
    ) -> Result<Verdict, Denial> {
        let verdicts = || self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = verdicts().get(&number) {
            return Ok(verdict.clone());
        }
        let verdict = decide()?;
        let mut verdicts = verdicts();
        if verdicts.len() < VERDICTS {
            verdicts.insert(number, verdict.clone());
        }
        Ok(verdict)
    }
}

/// About the memory for a claim, in bytes.
fn size(claim: &Value) -> usize {
    64 + match claim {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

pub(crate) fn attributes(claims: &Map<String, Value>, source: ClaimSource<'_>, config: &CedarConfig) -> Attributes {
    let local = source == ClaimSource::Local;
    let named = claims.iter().filter_map(|(name, value)| Some((format!("claim_{name}"), claim(value, local)?)));
    let mut attributes: Attributes = named.collect();
    for name in &config.multi_valued_claims {
        let (text, words) = match claims.get(name) {
            Some(Value::String(text)) => (text.clone(), text.split_whitespace().map(str::to_owned).collect()),
            Some(Value::Array(items)) => {
                let words: Vec<_> = items.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                (words.join(" "), words)
            }
            _ => continue,
        };
        let words = words.into_iter().map(RestrictedExpression::new_string);
        attributes.insert(format!("claim_{name}"), RestrictedExpression::new_string(text));
        attributes.insert(format!("claimset_{name}"), RestrictedExpression::new_set(words));
    }
    attributes.insert("thv_claim_source".to_owned(), RestrictedExpression::new_string(source.text()));
    attributes
}

/// The groups and roles that claims name.
pub(crate) fn groups<'a>(claims: &'a Map<String, Value>, config: &CedarConfig) -> HashSet<&'a str> {
    let mut named = [&*config.group_claim_name].into_iter().chain(GROUPS);
    let groups = named.find_map(|name| names(claims, name));
    groups.into_iter().chain(names(claims, &config.role_claim_name)).flatten().collect()
}

/// The texts of a list among the claims; `None` where there is no list by that name, which may be a path.
fn names<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<Vec<&'a str>> {
    if name.is_empty() {
        return None;
    }
    let by_path = || {
        let mut steps = name.split('.');
        let first = claims.get(steps.next()?)?;
        steps.try_fold(first, |value, step| value.as_object()?.get(step))
    };
    let value = claims.get(name).or_else(by_path)?;
    Some(value.as_array()?.iter().filter_map(Value::as_str).collect())
}
