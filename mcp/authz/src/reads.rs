//! The parts of a question that a policy reads. One that reads none of them is decided once for each caller.

use cedar_policy::{EntityUid, Policy, ResourceConstraint};
use serde_json::{Map, Value};

use crate::hints;

/// The parts of a question that policies read. A part that is read in vain costs time alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reads {
    /// The attributes or the ancestors of what is asked for, beside its name.
    pub(crate) resource: bool,
    /// The arguments in the context.
    pub(crate) arguments: bool,
    /// The claims in the context. The claims of the principal are there in any case.
    pub(crate) claims: bool,
}

/// The parts of a question that a policy reads, as far as they are found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) reads: Reads,
    /// Whether it reads the hints of a tool.
    pub(crate) hints: bool,
    /// The entities that its conditions name. Those in its scope are compared by their names.
    pub(crate) entities: Vec<EntityUid>,
}

impl Reads {
    /// Whether it depends on the question.
    pub(crate) fn any(self) -> bool {
        self.resource || self.arguments
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            resource: self.resource || other.resource,
            arguments: self.arguments || other.arguments,
            claims: self.claims || other.claims,
        }
    }
}

impl Found {
    pub(crate) fn in_policy(policy: &Policy) -> Self {
        let resource = matches!(policy.resource_constraint(), ResourceConstraint::In(_) | ResourceConstraint::IsIn(..));
        let found = policy.to_json().ok().and_then(|json| {
            let reads = Reads { resource, ..Reads::default() };
            let mut found = Self { reads, hints: names_hint(&json), ..Self::default() };
            json.get("conditions").map_or(Some(()), |conditions| found.look(conditions))?;
            Some(found)
        });
        let everything = Reads { resource: true, arguments: true, claims: true };
        found.unwrap_or_else(|| Self { reads: everything, hints: true, entities: policy.entity_literals() })
    }

    /// Looks in the JSON of expressions; `None` where that is not understood.
    fn look(&mut self, json: &Value) -> Option<()> {
        match json {
            Value::Array(items) => items.iter().try_for_each(|item| self.look(item)),
            Value::Object(members) => {
                match variable(json) {
                    Some("resource") => self.reads.resource = true,
                    Some("context") => (self.reads.arguments, self.reads.claims) = (true, true),
                    _ => {}
                }
                if members.contains_key("__entity") {
                    self.entities.push(EntityUid::from_json(json.clone()).ok()?);
                }
                members.iter().try_for_each(|(operator, part)| match member_of_context(operator, part) {
                    Some(name) if name.starts_with("arg_") => {
                        self.reads.arguments = true;
                        Some(())
                    }
                    Some(_) => {
                        self.reads.claims = true;
                        Some(())
                    }
                    None => self.look(part),
                })
            }
            _ => Some(()),
        }
    }
}

fn variable(expression: &Value) -> Option<&str> {
    expression.get("Var").and_then(Value::as_str)
}

/// The one member that it asks the context for.
fn member_of_context<'a>(operator: &str, operands: &'a Value) -> Option<&'a str> {
    let name = operands.get("attr").and_then(Value::as_str)?;
    let left = operands.get("left").and_then(variable);
    (matches!(operator, "." | "has") && left == Some("context")).then_some(name)
}

/// Whether the value of an expression may depend on the arguments of a call, which are in the context and among the attributes of what is asked for.
/// Where that may be an entity that the expression names, `names_features`, each of those counts for it.
pub(crate) fn reads_arguments(json: &Value, names_features: bool) -> bool {
    let reads = |json: &Value| reads_arguments(json, names_features);
    match json {
        Value::Array(items) => items.iter().any(reads),
        Value::Object(members) => {
            if matches!(variable(json), Some("context" | "resource")) || (names_features && is_entity(json)) {
                return true;
            }
            members.iter().any(|(operator, part)| match (operator.as_str(), part.get("left")) {
                ("." | "has", Some(left)) if matches!(variable(left), Some("context" | "resource")) => {
                    part.get("attr").and_then(Value::as_str).is_none_or(|name| name.starts_with("arg_"))
                }
                // They compare entities by their names and ancestors.
                ("==" | "!=" | "in" | "is" | "contains" | "containsAll" | "containsAny", Some(_)) => {
                    let operands = part.as_object().into_iter().flat_map(Map::values);
                    operands.filter(|operand| !is_name(operand)).any(reads)
                }
                _ => reads(part),
            })
        }
        _ => false,
    }
}

/// Whether it is an entity, or a set of such, of which nothing but the names is told.
fn is_name(json: &Value) -> bool {
    let entities = |items: &Vec<Value>| items.iter().all(is_name);
    variable(json) == Some("resource")
        || json.get("Value").is_some_and(is_entity)
        || json.get("Set").and_then(Value::as_array).is_some_and(entities)
}

fn is_entity(json: &Value) -> bool {
    json.get("__entity").is_some()
}

/// Whether it names one of the hints, as an attribute or as a text.
fn names_hint(json: &Value) -> bool {
    match json {
        Value::String(text) => hints::NAMES.contains(&&**text),
        Value::Array(items) => items.iter().any(names_hint),
        Value::Object(members) => members.values().any(names_hint),
        _ => false,
    }
}
