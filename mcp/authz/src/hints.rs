//! Hints of tools, which an MCP server gives and policies may read (toolhive-auth §4.5).

use std::collections::HashMap;

use mcp_wire::{Entry, Members, same_name};

/// The attributes of a tool that a server's hints become.
pub(crate) const NAMES: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

const TWO_WAYS: &str = "its annotations can be read in two ways";

/// The most tools whose hints are kept, and the longest of their names, in bytes.
const MOST: usize = 20_000;
const NAME: usize = 1 << 10;

/// The four hints of a tool; none where its server does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hints(pub(crate) [Option<bool>; 4]);

impl Hints {
    /// The hints that an entry of a list has.
    pub(crate) fn of(tool: &Entry<'_>) -> Result<Self, &'static str> {
        let Some(annotations) = tool.member("annotations")?.filter(|value| value.get() != "null") else {
            return Ok(Self::default());
        };
        let Members(annotations) = serde_json::from_str(annotations.get()).map_err(|_| TWO_WAYS)?;
        let mut hints = Self::default();
        for (name, hint) in NAMES.into_iter().zip(&mut hints.0) {
            let mut found = annotations.iter().filter(|(key, _)| same_name(key, name));
            *hint = match (found.next().map(|(key, value)| (&**key, value.get())), found.next()) {
                (None, _) => None,
                (Some((key, "null")), None) if key == name => None,
                (Some((key, "true")), None) if key == name => Some(true),
                (Some((key, "false")), None) if key == name => Some(false),
                _ => return Err(TWO_WAYS),
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
    /// Keeps what a page says of a tool, unless its name has more than 1 KiB. Returns whether it has forgotten all others for it: there were 20,000.
    pub fn learn(&mut self, tool: &str, hints: Hints) -> bool {
        if let Some(known) = self.0.get_mut(tool) {
            *known = hints;
            return false;
        }
        if tool.len() > NAME {
            return false;
        }
        let is_full = self.0.len() >= MOST;
        if is_full {
            self.forget();
        }
        self.0.insert(tool.to_owned(), hints);
        is_full
    }

    /// Forgets all tools.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// The hints of a tool; `None` where no list had it yet.
    pub fn of(&self, tool: &str) -> Option<Hints> {
        self.0.get(tool).copied()
    }
}
