//! What a server of the Modern era checks of HTTP and one behind a pipe cannot (MCP 2026-07-28, Streamable HTTP).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use mcp_middleware::beside;
use mcp_wire::headers::{self, HeaderError};
use mcp_wire::{ErrorBody, Id, MODERN_VERSION, OwnedMessage, ToolHeaders, code};
use serde_json::{Value, json};

use crate::modern::REVISIONS;

/// Tools with mirrored arguments that are remembered.
const MAX_TOOLS: usize = 1_000;
/// A list that is longer teaches nothing: as a tree it takes many times its length.
const MAX_LIST: usize = 1 << 20;

/// Whether `method` is one of the Legacy era that went: the server need not be asked.
pub(super) fn is_gone(method: &str) -> bool {
    matches!(method, "initialize" | "resources/subscribe" | "resources/unsubscribe")
}

/// The refusal of a request to a process that serves the Legacy era alone.
pub(super) fn not_served(id: Option<Id<'_>>) -> Vec<u8> {
    let older: Vec<_> = REVISIONS.into_iter().filter(|revision| *revision != MODERN_VERSION).collect();
    let data = json!({ "supported": older, "requested": MODERN_VERSION }).to_string();
    let message = "the MCP server's process serves sessions alone: begin with server/discover or initialize";
    ErrorBody::new(code::UNSUPPORTED_VERSION, message).id(id).data(&data).encode()
}

/// Refuses a message whose headers do not say what its body says.
pub(super) async fn check(tools: &Tools, headers: &HeaderMap, owned: &OwnedMessage) -> Result<(), HeaderError> {
    let message = owned.message();
    if message.id().is_none() {
        return headers::check(headers, message);
    }
    headers::check_required(headers, message)?;
    if message.method() != Some("tools/call") {
        return Ok(());
    }
    let marks = message.target().ok().flatten().and_then(|name| tools.lock().get(&*name).cloned());
    let Some(marks) = marks else { return Ok(()) };
    let (headers, owned, length) = (headers.clone(), owned.clone(), owned.body().len());
    beside(length, move || marks.check(&headers, owned.message().param("arguments").ok().flatten())).await
}

/// The tools that were listed and have arguments which their callers mirror in headers.
#[derive(Debug, Default)]
pub(super) struct Tools(Mutex<HashMap<String, ToolHeaders>>);

impl Tools {
    /// Learns from an answer to `tools/list`.
    pub(super) fn learn(&self, answer: &[u8]) {
        // Most lists mark nothing, and need not be read.
        let marked = contains(answer, b"x-mcp-header");
        if !marked && self.lock().is_empty() {
            return;
        }
        if answer.len() > MAX_LIST {
            tracing::warn!(
                bytes = answer.len(),
                "a list of tools is too long to check the headers of their callers by it"
            );
            return;
        }
        let Ok(answer) = serde_json::from_slice::<Value>(answer) else { return };
        let tools = answer.pointer("/result/tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut known = self.lock();
        for tool in tools {
            let Some(name) = tool.get("name").and_then(Value::as_str) else { continue };
            let marks = tool.get("inputSchema").map(ToolHeaders::of_schema).unwrap_or_default();
            if marks.is_empty() {
                known.remove(name);
            } else if known.len() < MAX_TOOLS || known.contains_key(name) {
                known.insert(name.to_owned(), marks);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ToolHeaders>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tool_marks_is_known_from_its_last_list() {
        let tools = Tools::default();
        let list = |schema: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{{"name":"t","inputSchema":{schema}}}]}}}}"#)
        };
        tools.learn(list("{}").as_bytes());
        assert!(tools.lock().is_empty());
        tools.learn(list(r#"{"properties":{"a":{"x-mcp-header":"A"}}}"#).as_bytes());
        assert!(tools.lock().contains_key("t"));
        tools.learn(list("{}").as_bytes());
        assert!(tools.lock().is_empty());
        let long = format!(r#"{{"properties":{{"a":{{"x-mcp-header":"A"}}}},"x":[{}0]}}"#, "[],".repeat(MAX_LIST / 3));
        tools.learn(list(&long).as_bytes());
        assert!(tools.lock().is_empty(), "a tree of it would take some thirty megabytes");
    }
}
