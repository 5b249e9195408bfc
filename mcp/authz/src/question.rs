//! Questions to policies: may this be called, got or read?

use std::borrow::Cow;

use mcp_wire::{Entry, ListKind};
use serde_json::value::RawValue;

use crate::Hints;

/// A kind of thing that an MCP server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Tools are called.
    Tool,
    /// Prompts are got.
    Prompt,
    /// Resources are read, and subscribed to.
    Resource,
    /// Skills are got.
    Skill,
}

impl Feature {
    pub(crate) const ALL: [Self; 4] = [Self::Tool, Self::Prompt, Self::Resource, Self::Skill];

    /// The kind of the entries of a list.
    pub fn of(list: ListKind) -> Self {
        match list {
            ListKind::Tools => Self::Tool,
            ListKind::Prompts => Self::Prompt,
            ListKind::Resources | ListKind::ResourceTemplates => Self::Resource,
            ListKind::Skills => Self::Skill,
        }
    }

    /// The type of its entities.
    pub(crate) fn entity(self) -> &'static str {
        match self {
            Self::Tool => "Tool",
            Self::Prompt => "Prompt",
            Self::Resource => "Resource",
            Self::Skill => "Skill",
        }
    }

    /// The action of its questions.
    pub(crate) fn action(self) -> &'static str {
        match self {
            Self::Tool => "call_tool",
            Self::Prompt => "get_prompt",
            Self::Resource => "read_resource",
            Self::Skill => "get_skill",
        }
    }

    /// The attributes `feature` and `operation` of its entities.
    pub(crate) fn words(self) -> [&'static str; 2] {
        match self {
            Self::Tool => ["tool", "call"],
            Self::Prompt => ["prompt", "get"],
            Self::Resource => ["resource", "read"],
            Self::Skill => ["skill", "get"],
        }
    }

    /// Whether its entities have the attribute `uri`.
    pub(crate) fn has_uri(self) -> bool {
        matches!(self, Self::Resource | Self::Skill)
    }
}

/// One question to policies: may the caller call, get or read this?
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The kind of what is asked for.
    pub feature: Feature,
    /// The name or URI of what is asked for.
    pub id: Cow<'a, str>,
    /// The arguments of a call.
    pub arguments: Option<&'a RawValue>,
    /// The hints of a tool, as far as they are known.
    pub hints: Hints,
    /// The backend of a tool behind an endpoint that joins several servers.
    pub backend: Option<Cow<'a, str>>,
}

impl<'a> Question<'a> {
    /// The question that decides whether a caller sees this entry of a list. The hints are those that the entry itself has.
    ///
    /// # Errors
    /// Two readers could find different hints in it. The list must not reach a client.
    pub fn of(entry: &'a Entry<'_>) -> Result<Self, &'static str> {
        let feature = Feature::of(entry.kind());
        let hints = if feature == Feature::Tool { Hints::of(entry)? } else { Hints::default() };
        Ok(Self { hints, ..Self::new(feature, entry.name()) })
    }

    /// A question without arguments.
    pub fn new(feature: Feature, id: impl Into<Cow<'a, str>>) -> Self {
        Self { feature, id: id.into(), arguments: None, hints: Hints::default(), backend: None }
    }
}
