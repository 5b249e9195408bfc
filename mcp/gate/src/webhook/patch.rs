//! The edits that a mutating webhook may make to a request (toolhive-runner §3.8): RFC 6902 within `/mcp_request/`.
//!
//! Not with the crate `json-patch`: it works on `serde_json::Value`, which rounds large numbers, drops their text and sorts or rewrites
//! what no operation touches, and it knows no bound on what `copy` makes. Here the rest of a request keeps its bytes.

use mcp_runconfig::webhook::{MAX_REQUEST_BYTES, PATCH_TYPE};
use mcp_wire::check_structure;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::pointer::tokens;
use super::tree::{Node, NotThere, Work};

/// The prefix of every path.
const SCOPE: &str = "/mcp_request/";
/// More operations than any review needs.
const MAX_OPERATIONS: usize = 10_000;

/// A patch that is not applied. The failure policy decides what becomes of the request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatchError {
    #[error("patch_type {0:?} is not supported; use \"{PATCH_TYPE}\"")]
    Unsupported(String),
    #[error("the patch is not a list of operations ({0})")]
    Malformed(String),
    #[error("operation {0}: {1}")]
    Invalid(usize, &'static str),
    #[error("operation {0} reaches outside {SCOPE}")]
    Scope(usize),
    #[error("operation {0} does not apply: {1}")]
    Apply(usize, NotThere),
    #[error("the patch changes the request's id, which is the client's")]
    Id,
}

impl PatchError {
    /// The message for the MCP client.
    pub(crate) fn client_message(&self) -> &'static str {
        match self {
            Self::Unsupported(_) => "Unsupported patch type from webhook",
            Self::Malformed(_) => "Malformed patch from webhook",
            // ToolHive lets the id be changed, and its client gets an answer to a request it never sent.
            Self::Invalid(..) | Self::Id => "Invalid patch from webhook",
            Self::Scope(_) => "Patch must be scoped to mcp_request",
            Self::Apply(..) => "Failed to apply patch from webhook",
        }
    }
}

#[derive(Deserialize)]
struct Operation<'a> {
    #[serde(default)]
    op: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    from: String,
    /// `Some("null")` where the value is null.
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The request after `patch`; `None` when the patch has no operations.
pub(crate) fn apply(request: &[u8], patch_type: &str, patch: &RawValue) -> Result<Option<Vec<u8>>, PatchError> {
    if patch_type != PATCH_TYPE {
        return Err(PatchError::Unsupported(patch_type.chars().take(64).collect()));
    }
    let malformed = |error: &dyn std::fmt::Display| PatchError::Malformed(error.to_string());
    check_structure(patch.get()).map_err(|error| malformed(&error))?;
    let operations: Vec<Operation<'_>> = serde_json::from_str(patch.get()).map_err(|error| malformed(&error))?;
    if operations.is_empty() {
        return Ok(None);
    }
    // All of them are checked before the first is applied.
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::Invalid(MAX_OPERATIONS, "there are too many operations"));
    }
    operations.iter().enumerate().try_for_each(|(at, operation)| check(at, operation))?;
    operations.iter().enumerate().try_for_each(|(at, operation)| scope(at, operation))?;
    let request = std::str::from_utf8(request).map_err(|error| malformed(&error))?;
    let mut document = Node::Raw(request.trim_matches([' ', '\t', '\r', '\n']));
    let id = id(&mut document);
    // `copy` alone makes more of what is there; twenty in a row could make a million times as much.
    let (mut copied, mut work) = (0, Work::default());
    for (at, operation) in operations.iter().enumerate() {
        run(&mut document, operation, &mut copied, &mut work).map_err(|error| PatchError::Apply(at, error))?;
    }
    if self::id(&mut document) != id {
        return Err(PatchError::Id);
    }
    let mut text = String::with_capacity(request.len() + patch.get().len());
    document.write(&mut text);
    Ok(Some(text.into_bytes()))
}

fn id(document: &mut Node<'_>) -> Option<String> {
    let id = document.get(&["id".into()], &mut Work::default()).ok()?;
    let mut text = String::new();
    id.write(&mut text);
    Some(text)
}

fn check(at: usize, operation: &Operation<'_>) -> Result<(), PatchError> {
    let problem = match operation.op.as_str() {
        _ if operation.path.is_empty() => "path is missing",
        "add" | "replace" | "test" if operation.value.is_none() => "value is missing",
        "copy" | "move" if operation.from.is_empty() => "from is missing",
        "add" | "replace" | "test" | "copy" | "move" | "remove" => return Ok(()),
        _ => "op is not one of add, remove, replace, copy, move, test",
    };
    Err(PatchError::Invalid(at, problem))
}

fn scope(at: usize, operation: &Operation<'_>) -> Result<(), PatchError> {
    let from = matches!(operation.op.as_str(), "copy" | "move").then_some(&operation.from);
    let inside = std::iter::once(&operation.path).chain(from).all(|path| path.starts_with(SCOPE));
    if inside { Ok(()) } else { Err(PatchError::Scope(at)) }
}

fn run<'a>(
    document: &mut Node<'a>,
    operation: &'a Operation<'a>,
    copied: &mut usize,
    work: &mut Work,
) -> Result<(), NotThere> {
    // The scope's slash is the root of the request.
    let within =
        |path: &'a str| path.get(SCOPE.len() - 1..).and_then(tokens).ok_or(NotThere("the path is not a JSON pointer"));
    let path = within(&operation.path)?;
    let value = || Node::Raw(operation.value.map_or("null", RawValue::get));
    match operation.op.as_str() {
        "add" => document.add(&path, value(), work),
        "remove" => document.remove(&path, work).map(drop),
        "replace" => document.get(&path, work).map(|node| *node = value()),
        "test" if document.get(&path, work)?.same(&mut value(), work)? => Ok(()),
        "test" => Err(NotThere("the test failed")),
        "copy" => {
            let node = document.get(&within(&operation.from)?, work)?.clone();
            *copied += node.size();
            if *copied > MAX_REQUEST_BYTES {
                return Err(NotThere("the request gets too long"));
            }
            document.add(&path, node, work)
        }
        // "move": `check` let nothing else through.
        _ => {
            let from = within(&operation.from)?;
            if path.len() > from.len() && path.starts_with(&from) {
                return Err(NotThere("a value cannot be moved into itself"));
            }
            let node = document.remove(&from, work)?;
            document.add(&path, node, work)
        }
    }
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
