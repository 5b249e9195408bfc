//! The parts of a question that a policy reads. One that reads none of them is decided once for each caller.

use cedar_policy::{EntityUid, Policy, ResourceConstraint};
use serde_json::Value;

use crate::hints;

/// The parts of a question that policies read. A part that is read in vain costs time alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reads {
    /// The attributes or the ancestors of what is asked for, beside its name.
    pub(crate) resource: bool,
    /// The arguments in the context.
    pub(crate) arguments: bool,
}

/// What is found in a policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) reads: Reads,
    /// Whether it reads the hints of a tool.
    pub(crate) hints: bool,
    /// The entities that its conditions name. Those in its scope are compared by their names.
    pub(crate) entities: Vec<EntityUid>,
}

impl Reads {
    pub(crate) fn any(self) -> bool {
        self.resource || self.arguments
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self { resource: self.resource || other.resource, arguments: self.arguments || other.arguments }
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
        let everything = Reads { resource: true, arguments: true };
        found.unwrap_or_else(|| Self { reads: everything, hints: true, entities: policy.entity_literals() })
    }

    /// Looks in the JSON of expressions; `None` where that is not understood.
    fn look(&mut self, json: &Value) -> Option<()> {
        match json {
            Value::Array(items) => items.iter().try_for_each(|item| self.look(item)),
            Value::Object(members) => {
                match variable(json) {
                    Some("resource") => self.reads.resource = true,
                    Some("context") => self.reads.arguments = true,
                    _ => {}
                }
                if members.contains_key("__entity") {
                    self.entities.push(EntityUid::from_json(json.clone()).ok()?);
                }
                let mut parts = members.iter().filter(|(operator, operands)| !is_of_claim(operator, operands));
                parts.try_for_each(|(_, part)| self.look(part))
            }
            _ => Some(()),
        }
    }
}

fn variable(expression: &Value) -> Option<&str> {
    expression.get("Var").and_then(Value::as_str)
}

/// Whether it asks the context for a member that is no argument.
fn is_of_claim(operator: &str, operands: &Value) -> bool {
    let name = operands.get("attr").and_then(Value::as_str);
    matches!(operator, "." | "has")
        && name.is_some_and(|name| !name.starts_with("arg_"))
        && operands.get("left").and_then(variable) == Some("context")
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
