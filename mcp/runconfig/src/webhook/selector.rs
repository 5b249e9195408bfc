//! The messages that a webhook is asked about: globs on the method, the tool and the principal.
//!
//! `*` stands for any characters, `/` among them, and everything else for itself. What cannot be told of a message matches every list, so
//! that nobody gets past a webhook by a message that is hard to read.

use serde::{Deserialize, Serialize};

use super::Problem;

/// The method of the messages that have a tool.
pub const TOOL_CALL: &str = "tools/call";

/// The most globs in one list.
const MAX_GLOBS: usize = 64;
/// The longest glob, in bytes.
const MAX_GLOB: usize = 256;
/// The longest method or tool that is compared with globs, in bytes: callers choose it, and no server has one that long.
const MAX_NAME: usize = 1 << 10;

/// The member `match`: a message has to be in every list that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Match {
    /// Globs on the method of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub methods: Option<Vec<String>>,
    /// Globs on the tool that is called, by the name that the webhook is told. Messages that call no tool are in no such list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Globs on the subject of the caller that has logged in. Callers that have not, or whose login names no subject, are in every such list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principals: Option<Vec<String>>,
}

/// A [`Match`], ready to be asked. The default matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    methods: Option<Vec<Glob>>,
    tools: Option<Vec<Glob>>,
    principals: Option<Vec<Glob>>,
}

/// A text with its stars.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Glob {
    /// The text before the first star, or all of it.
    head: String,
    /// The texts between stars, in their order.
    middle: Vec<String>,
    /// The text behind the last star; `None` where there is no star.
    tail: Option<String>,
}

// === impl Match ===

impl Match {
    /// Every rule that the lists break.
    pub fn problems(&self) -> Vec<Problem> {
        let lists = [
            ("portcullis.match.methods", &self.methods),
            ("portcullis.match.tools", &self.tools),
            ("portcullis.match.principals", &self.principals),
        ];
        let mut problems: Vec<_> = lists
            .into_iter()
            .filter_map(|(field, globs)| Some(Problem { field, message: list_problem(globs.as_ref()?)? }))
            .collect();
        if problems.is_empty() && self.tools.is_some() && !Selector::new(self).matches(Some(TOOL_CALL), None, None) {
            let message = format!(
                "has no glob that matches {TOOL_CALL}, so that the webhook would never be asked; add {TOOL_CALL:?}, or leave tools out"
            );
            problems.push(Problem { field: "portcullis.match.methods", message });
        }
        problems
    }

    /// Whether it leaves nothing out.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

fn list_problem(globs: &[String]) -> Option<String> {
    if globs.is_empty() {
        return Some("is empty and matches nothing; leave it out to match everything".to_owned());
    }
    if globs.len() > MAX_GLOBS {
        return Some(format!("has {} globs; {MAX_GLOBS} are the most", globs.len()));
    }
    globs.iter().find_map(|glob| glob_problem(glob))
}

fn glob_problem(glob: &str) -> Option<String> {
    if glob.is_empty() {
        return Some("has an empty glob; write a name, or * for any".to_owned());
    }
    if glob.len() > MAX_GLOB {
        return Some(format!("has a glob of {} bytes; {MAX_GLOB} are the most", glob.len()));
    }
    if glob.trim() != glob || glob.chars().any(char::is_control) {
        return Some(format!("has the glob {glob:?} with blanks around it or a control character; remove them"));
    }
    let other = glob.chars().find(|c| "?[]{}\\".contains(*c))?;
    Some(format!("has the glob {glob:?} with a {other}, which has no meaning here; write * for any characters"))
}

// === impl Selector ===

impl Selector {
    /// The selector of lists that break no rule.
    pub fn new(lists: &Match) -> Self {
        let compiled = |globs: &Option<Vec<String>>| globs.as_ref().map(|globs| globs.iter().map(Glob::new).collect());
        Self {
            methods: compiled(&lists.methods),
            tools: compiled(&lists.tools),
            principals: compiled(&lists.principals),
        }
    }

    /// Whether it matches everything.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a webhook is asked about a message with this method, of a caller with this subject, that calls this tool.
    ///
    /// `None` is what cannot be told: a message that cannot be read, a call that names no tool, a caller who has not logged in. It matches every
    /// list, as does a name that is not plain. `tool` counts for calls of tools alone: with a list of tools, no other message matches.
    pub fn matches(&self, method: Option<&str>, tool: Option<&str>, principal: Option<&str>) -> bool {
        let lists = |globs: &Option<Vec<Glob>>, text: Option<&str>, is_read: fn(&str) -> bool| match (globs, text) {
            (Some(globs), Some(text)) => !is_read(text) || globs.iter().any(|glob| glob.matches(text)),
            _ => true,
        };
        let may_call = self.tools.is_none() || method.is_none_or(|method| method == TOOL_CALL || !is_plain(method));
        may_call
            && lists(&self.methods, method, is_plain)
            && lists(&self.tools, tool, is_plain)
            && lists(&self.principals, principal, |_| true)
    }
}

/// Whether every server reads a method or the name of a tool alike: it is not empty, no reader trims it, and it is not long.
fn is_plain(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.starts_with(is_blank) && !name.ends_with(is_blank)
}

/// Whether some reader trims the character, or shows nothing for it.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
}

// === impl Glob ===

impl Glob {
    fn new(text: impl AsRef<str>) -> Self {
        let mut parts = text.as_ref().split('*').map(str::to_owned);
        let head = parts.next().unwrap_or_default();
        let tail = parts.next_back();
        Self { head, middle: parts.filter(|part| !part.is_empty()).collect(), tail }
    }

    /// Looks at each byte of `text` a fixed number of times: callers choose it, and its length.
    fn matches(&self, text: &str) -> bool {
        let Some(tail) = &self.tail else { return text == self.head };
        let rest = text.strip_prefix(&*self.head).and_then(|rest| rest.strip_suffix(&**tail));
        let mut parts = self.middle.iter();
        rest.is_some_and(|rest| parts.try_fold(rest, |rest, part| Some(rest.split_once(&**part)?.1)).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs<'a>(globs: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        globs.into_iter().map(str::to_owned).collect()
    }

    fn tools<'a>(tools: impl IntoIterator<Item = &'a str>) -> Match {
        Match { tools: Some(globs(tools)), ..Match::default() }
    }

    #[test]
    fn a_star_stands_for_any_characters_and_nothing_else_does() {
        for (glob, text, matched) in [
            ("echo", "echo", true),
            ("echo", "echo2", false),
            ("echo", "Echo", false),
            ("*", "", true),
            ("*", "a/b", true),
            ("get_*", "get_", true),
            ("get_*", "forget_it", false),
            ("*_get", "forget_get", true),
            ("resources/*", "resources/templates/list", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a**a", "aba", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("*b*b*", "b", false),
            ("*b*b*", "abab", true),
            ("a*bc*c", "abc", false),
            ("*é", "café", true),
            ("a.c", "abc", false),
        ] {
            assert_eq!(Glob::new(glob).matches(text), matched, "{glob} {text:?}");
        }
    }

    #[test]
    fn a_message_has_to_be_in_every_list_that_is_there() {
        let deploys = tools(["deploy_*", "delete"]);
        let of_ann = Match { principals: Some(globs(["ann", "svc-*"])), ..deploys.clone() };
        let reads = Match { methods: Some(globs(["resources/*", "prompts/get"])), ..Match::default() };
        let (call, longest) = (Some(TOOL_CALL), "x".repeat(1 << 10));
        let [longest, too_long] = [&*longest, &format!("{longest}x")];
        for (name, lists, method, tool, principal, matched) in [
            ("no lists", Match::default(), Some("ping"), None, Some("ann"), true),
            ("a tool of the list", deploys.clone(), call, Some("deploy_app"), None, true),
            ("another tool", deploys.clone(), call, Some("read"), None, false),
            ("no call of a tool", deploys.clone(), Some("prompts/get"), None, None, false),
            ("a call without a tool", deploys.clone(), call, None, None, true),
            ("an empty name", deploys.clone(), call, Some(""), None, true),
            ("a name with a blank before it", deploys.clone(), call, Some(" delete"), None, true),
            ("a name with a mark that nobody sees", deploys.clone(), call, Some("\u{feff}delete"), None, true),
            ("a name with a line break behind it", deploys.clone(), call, Some("delete\n"), None, true),
            ("a name with a blank in it", deploys.clone(), call, Some("read all"), None, false),
            ("a long name", deploys.clone(), call, Some(longest), None, false),
            ("a name that is too long", deploys.clone(), call, Some(too_long), None, true),
            ("a message that cannot be read", deploys, None, None, Some("bob"), true),
            ("tool and caller", of_ann.clone(), call, Some("delete"), Some("svc-7"), true),
            ("another caller", of_ann.clone(), call, Some("delete"), Some("bob"), false),
            ("a caller without a login", of_ann.clone(), call, Some("delete"), None, true),
            ("the caller alone", of_ann, call, Some("read"), Some("ann"), false),
            ("a method of the list", reads.clone(), Some("resources/read"), None, None, true),
            ("another method", reads.clone(), Some("tools/call"), Some("resources/"), None, false),
            ("a method that is too long", reads.clone(), Some(too_long), None, None, true),
            ("no method", reads, None, None, None, true),
        ] {
            assert_eq!(lists.problems(), [], "{name}");
            assert_eq!(Selector::new(&lists).matches(method, tool, principal), matched, "{name}");
        }
    }

    #[test]
    fn lists_that_match_nothing_or_are_no_globs_are_refused() {
        let (of_methods, of_tools) = ("portcullis.match.methods", "portcullis.match.tools");
        let idle = Match { methods: Some(globs(["prompts/*"])), ..tools(["*"]) };
        let no_principals = Match { principals: Some(Vec::new()), ..Match::default() };
        for (lists, field, text) in [
            (tools([]), of_tools, "is empty and matches nothing"),
            (tools([""]), of_tools, "has an empty glob"),
            (tools(["a", "b?"]), of_tools, "\"b?\" with a ?"),
            (tools(["{a,b}"]), of_tools, "write * for any characters"),
            (tools([" a"]), of_tools, "blanks around it"),
            (tools(["a\nb"]), of_tools, "a control character"),
            (tools([&*"a".repeat(257)]), of_tools, "256 are the most"),
            (tools(["a"; 65]), of_tools, "has 65 globs; 64 are the most"),
            (no_principals, "portcullis.match.principals", "leave it out"),
            (idle, of_methods, "would never be asked"),
        ] {
            let problems = lists.problems();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(problems[0].field, field);
            assert!(problems[0].message.contains(text), "{problems:?}");
        }
    }

    #[test]
    fn a_long_name_is_matched_in_time_that_grows_with_it_alone() {
        let (glob, name) = (Glob::new("*a".repeat(100) + "*b"), "a".repeat(1 << 20));
        assert!(!glob.matches(&name));
    }
}
