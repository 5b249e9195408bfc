//! The hints that the MCP server gives of its tools, and policies read (toolhive-auth §4.5).

use std::sync::{PoisonError, RwLock};

use mcp_authz::{Feature, KnownHints, Question};
use mcp_wire::{List, ListKind};

/// The hints of the MCP server's tools, from its lists before they are filtered.
#[derive(Default)]
pub(super) struct Tools(RwLock<KnownHints>);

impl Tools {
    /// Learns what a list says, if it is one of tools.
    pub(super) fn learn(&self, list: &List) -> Result<(), &'static str> {
        if list.kind() != ListKind::Tools {
            return Ok(());
        }
        let tools = list.entries().iter().map(Question::of).collect::<Result<Vec<_>, _>>()?;
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for tool in tools {
            known.learn(&tool.id, tool.hints);
        }
        Ok(())
    }

    /// The question with the hints of the tool that it is about; `None` where no list had the tool yet.
    pub(super) fn tell<'a>(&self, question: Question<'a>) -> Option<Question<'a>> {
        if question.feature != Feature::Tool {
            return Some(question);
        }
        let hints = self.0.read().unwrap_or_else(PoisonError::into_inner).of(&question.id)?;
        Some(Question { hints, ..question })
    }

    /// The question with the hints, where they are known.
    pub(super) fn told<'a>(&self, question: Question<'a>) -> Question<'a> {
        self.tell(question.clone()).unwrap_or(question)
    }
}
