//! Members of an item that every reader takes for the same.

use mcp_wire::{Members, same_name};
use serde_json::value::RawValue;

/// An item of a list that can be read in two ways, or in none. The list must not reach the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an item of the list cannot be judged: {0}")]
pub struct Malformed(&'static str);

impl Malformed {
    pub(crate) fn of(problem: &'static str) -> Self {
        Self(problem)
    }
}

pub(crate) fn members<'a>(raw: &'a RawValue, problem: &'static str) -> Result<Members<'a>, Malformed> {
    serde_json::from_str(raw.get()).map_err(|_| Malformed(problem))
}

/// The member that every reader takes for `name`; none where it is absent.
pub(crate) fn only<'a>(
    Members(members): &Members<'a>,
    name: &str,
    problem: &'static str,
) -> Result<Option<&'a RawValue>, Malformed> {
    let mut found = members.iter().filter(|(key, _)| same_name(key, name));
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some((key, value)), None) if key == name => Ok(Some(value)),
        _ => Err(Malformed(problem)),
    }
}
