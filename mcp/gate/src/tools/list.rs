//! `tool-filter`: lists of tools in answers.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use mcp_http::Body;
use mcp_middleware::response_filter::{ResponseFilter, Verdict, filter_response};
use mcp_middleware::{BuildContext, BuildError, Middleware, Next};
use mcp_runconfig::{TOOL_FILTER, ToolFilterParameters};
use mcp_wire::{Members, check_structure, same_name, splice};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::names::ToolNames;

const MALFORMED: &str = "it starts like a message and is not JSON";
const LENIENT: &str = "it is not JSON, and a lenient reader may find a list of tools in it";
const TWO_WAYS: &str = "its list of tools can be read in two ways";
const NO_LIST: &str = "its list of tools is malformed";

/// Leaves the tools that clients may see in the answers of the MCP server, under the names that clients see.
pub(crate) struct ToolFilter(Arc<ToolNames>);

/// A tool as clients see it.
struct Presented<'a> {
    name: String,
    /// Its JSON text.
    text: Cow<'a, str>,
    /// Whether that differs from the MCP server's.
    edited: bool,
}

impl ToolFilter {
    pub(crate) fn new(parameters: ToolFilterParameters, context: &BuildContext) -> Result<Self, BuildError> {
        Ok(Self(Arc::new(ToolNames::build(parameters, context)?)))
    }
}

impl Middleware for ToolFilter {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        async move {
            // For the id: an answer that is withheld must reach the call that it answers.
            match next.context().read(request).await {
                Ok(request) => filter_response(TOOL_FILTER, &self.0, request, next).await,
                Err(refusal) => refusal,
            }
        }
        .boxed()
    }

    fn reads_messages(&self) -> bool {
        true
    }

    fn judges_messages(&self) -> bool {
        true
    }
}

impl ResponseFilter for ToolNames {
    fn filter(&self, text: &str) -> Verdict {
        match self.answer(text) {
            Ok(None) => Verdict::Pass,
            Ok(Some(text)) => Verdict::Replace(text),
            Err(reason) => Verdict::Withhold(reason),
        }
    }
}

impl ToolNames {
    /// What goes in place of `text`; `None` when it may stay as it is, `Err` when it may not go at all.
    fn answer(&self, text: &str) -> Result<Option<String>, &'static str> {
        match text.trim_start_matches([' ', '\t', '\r', '\n']).as_bytes().first() {
            Some(b'{') => self.message(text),
            Some(b'[') => {
                let messages: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| MALFORMED)?;
                // Batches are of older revisions, and nobody asked for one.
                let lists = messages.iter().filter(|message| message.get().starts_with('{'));
                let changed = lists.map(|message| self.message(message.get())).collect::<Result<Vec<_>, _>>()?;
                if changed.iter().any(Option::is_some) { Err(TWO_WAYS) } else { Ok(None) }
            }
            _ if may_be_list(text) => Err(LENIENT),
            _ => Ok(None),
        }
    }

    fn message(&self, text: &str) -> Result<Option<String>, &'static str> {
        let message: Members<'_> = serde_json::from_str(text).map_err(|_| MALFORMED)?;
        let Some(result) = member(&message, "result")?.filter(|result| result.get().starts_with('{')) else {
            return Ok(None);
        };
        let Some(tools) = member(&members(result)?, "tools")?.filter(|tools| tools.get() != "null") else {
            return Ok(None);
        };
        check_structure(text).map_err(|_| TWO_WAYS)?;
        let list: Vec<&RawValue> = serde_json::from_str(tools.get()).map_err(|_| NO_LIST)?;
        let mut names = BTreeSet::new();
        let mut presented = Vec::with_capacity(list.len());
        let mut changed = false;
        for tool in list {
            let Some(Presented { name, text, edited }) = self.present(tool)? else {
                changed = true;
                continue;
            };
            if !names.insert(name) {
                return Err(TWO_WAYS);
            }
            changed |= edited;
            presented.push(text);
        }
        if !changed {
            return Ok(None);
        }
        edited(text, &[(tools.get(), &format!("[{}]", presented.join(",")))]).map(Some)
    }

    /// A tool as clients see it; `None` when they do not.
    fn present<'a>(&self, raw: &'a RawValue) -> Result<Option<Presented<'a>>, &'static str> {
        let tool = members(raw)?;
        let (name, description) = (member(&tool, "name")?.ok_or(NO_LIST)?, member(&tool, "description")?);
        let tool: String = serde_json::from_str(name.get()).map_err(|_| NO_LIST)?;
        let Some(presented) = self.presented(&tool) else { return Ok(None) };
        let json = |text: &str| serde_json::Value::from(text).to_string();
        let mut new_name = if presented == tool { name.get().to_owned() } else { json(presented) };
        let new_description = self.description(&tool).map(json);
        let mut edits = Vec::with_capacity(2);
        if let Some((old, new)) = description.zip(new_description.as_ref()) {
            edits.push((old.get(), new.as_str()));
        } else if let Some(new) = &new_description {
            new_name = format!("{new_name},\"description\":{new}");
        }
        if new_name != name.get() {
            edits.push((name.get(), &new_name));
        }
        edits.sort_unstable_by_key(|(old, _)| old.as_ptr() as usize);
        let is_edited = !edits.is_empty();
        let text = if is_edited { edited(raw.get(), &edits)?.into() } else { raw.get().into() };
        Ok(Some(Presented { name: presented.to_owned(), text, edited: is_edited }))
    }
}

/// `text` with `edits` made, which are whole values of it.
fn edited(text: &str, edits: &[(&str, &str)]) -> Result<String, &'static str> {
    String::from_utf8(splice(text.as_bytes(), edits)).map_err(|_| MALFORMED)
}

/// Whether a reader that skips what is not JSON may find a list of tools in `text`, its name in any case or escaped.
fn may_be_list(text: &str) -> bool {
    // In capitals, U+017F is an S too.
    text.contains('{')
        && (text.contains('\\') || text.to_uppercase().contains("TOOLS"))
        && serde_json::from_str::<IgnoredAny>(text).is_err()
}

fn members(raw: &RawValue) -> Result<Members<'_>, &'static str> {
    if raw.get().starts_with('{') { serde_json::from_str(raw.get()).map_err(|_| NO_LIST) } else { Err(NO_LIST) }
}

/// The one member that some reader takes for `name`.
fn member<'a>(members: &Members<'a>, name: &str) -> Result<Option<&'a RawValue>, &'static str> {
    let mut found = members.0.iter().filter(|(other, _)| same_name(other, name));
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some((spelt, value)), None) if spelt == name => Ok(Some(*value)),
        _ => Err(TWO_WAYS),
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
