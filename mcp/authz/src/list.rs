//! Lists in answers, of which a caller sees the items that it may call, get or read (toolhive-auth §4.7, toolhive-0.63 §5.2).

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::item::{Malformed, members, only};
use crate::{Feature, Hints, Question};

/// A list in an answer, whose items the caller sees where it may call, get or read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// The list of `tools/list`.
    Tools,
    /// The list of `prompts/list`.
    Prompts,
    /// The list of `resources/list`.
    Resources,
    /// The list of `resources/templates/list`.
    Templates,
    /// The list of `skills/list`.
    Skills,
}

impl List {
    /// The member of `result` that is the list.
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Skills => "skills",
        }
    }

    /// The kind of its items.
    pub fn feature(self) -> Feature {
        match self {
            Self::Tools => Feature::Tool,
            Self::Prompts => Feature::Prompt,
            Self::Resources | Self::Templates => Feature::Resource,
            Self::Skills => Feature::Skill,
        }
    }

    fn identifier(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources | Self::Skills => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// The question that decides whether the caller sees this item. Hints are those that the item itself has.
    ///
    /// # Errors
    /// Two readers could find different names or hints in the item, or none.
    pub fn question(self, item: &RawValue) -> Result<Question<'_>, Malformed> {
        let members = members(item, "it is no object")?;
        let id = only(&members, self.identifier(), "it has two names")?.filter(|id| id.get().starts_with('"'));
        let id = id.and_then(|id| serde_json::from_str(id.get()).ok());
        let Text(id) = id.ok_or(Malformed::of("it has no name"))?;
        let hints = if self == Self::Tools { Hints::of(&members)? } else { Hints::default() };
        Ok(Question { hints, ..Question::new(self.feature(), id) })
    }
}

/// A string, borrowed where it holds no escape.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
