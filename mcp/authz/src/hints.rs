//! Hints of tools, which an MCP server gives and policies may read (toolhive-auth §4.5).

use std::collections::HashMap;

use mcp_wire::Members;
use serde_json::value::RawValue;

use crate::item::{Malformed, members, only};

/// The attributes of a tool that a server's hints become.
pub(crate) const NAMES: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

const TWO_WAYS: &str = "its annotations can be read in two ways";

/// The most tools whose hints are kept.
const MOST: usize = 20_000;

/// The four hints of a tool; none where its server does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints(pub(crate) [Option<bool>; 4]);

impl Hints {
    /// The hints among the members of a tool.
    pub(crate) fn of(tool: &Members<'_>) -> Result<Self, Malformed> {
        let mut hints = Self::default();
        let Some(annotations) = only(tool, "annotations", TWO_WAYS)?.filter(|value| value.get() != "null") else {
            return Ok(hints);
        };
        let annotations = members(annotations, TWO_WAYS)?;
        for (name, hint) in NAMES.into_iter().zip(&mut hints.0) {
            *hint = match only(&annotations, name, TWO_WAYS)?.map(RawValue::get) {
                None | Some("null") => None,
                Some("true") => Some(true),
                Some("false") => Some(false),
                Some(_) => return Err(Malformed::of(TWO_WAYS)),
            };
        }
        Ok(hints)
    }
}

/// The hints of the tools of one backend, from its lists before they are filtered.
///
/// A page of a list says what it says of its own tools. It tells nothing of the others: lists have pages, and not every client goes through all.
#[derive(Debug, Default)]
pub struct KnownHints(HashMap<String, Hints>);

impl KnownHints {
    /// Keeps what a page says of a tool, unless there are 20,000 others.
    pub fn learn(&mut self, tool: &str, hints: Hints) {
        if let Some(known) = self.0.get_mut(tool) {
            *known = hints;
        } else if self.0.len() < MOST {
            self.0.insert(tool.to_owned(), hints);
        }
    }

    /// The hints of a tool; `None` where no list had it yet.
    pub fn of(&self, tool: &str) -> Option<Hints> {
        self.0.get(tool).copied()
    }
}
