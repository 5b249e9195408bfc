//! What the process says, and to whom it goes.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use mcp_middleware::beside;
use mcp_wire::{ErrorBody, Kind, Message, code, compact, splice};
use serde_json::value::RawValue;

use super::Mux;
use super::calls::Reply;
use super::ids;
use super::queue::Line;
use super::rewrite::Params;

/// What a server tells all of its clients.
const LISTS: [&str; 3] =
    ["notifications/prompts/list_changed", "notifications/resources/list_changed", "notifications/tools/list_changed"];
/// How much of a line that is no message is shown in the log.
const SHOWN: usize = 200;

/// Passes one line of the process on.
pub(super) async fn line(mux: &Arc<Mux>, line: Bytes) {
    let mux = Arc::clone(mux);
    beside(line.len(), move || pass(&mux, &line)).await;
}

fn pass(mux: &Mux, line: &Bytes) {
    let Some(json) = object(line) else {
        if !line.trim_ascii().is_empty() {
            log_noise(line);
        }
        return;
    };
    let mut json = line.slice(json);
    if json.contains(&b'\r') {
        // It stands between tokens, and would end a line of an event stream.
        json = Bytes::from(compact(&json).into_owned());
    }
    let Ok(message) = Message::parse(&json) else {
        log_noise(line);
        return;
    };
    match message.kind() {
        Kind::Response => response(mux, &json, &message),
        Kind::Request => request(mux, &message),
        Kind::Notification => notification(mux, &json, &message),
    }
}

/// From the first brace to the last: some servers print around their messages.
fn object(line: &[u8]) -> Option<Range<usize>> {
    let start = line.iter().position(|byte| *byte == b'{')?;
    let end = line.iter().rposition(|byte| *byte == b'}')?;
    (start < end).then_some(start..end + 1)
}

fn log_noise(line: &[u8]) {
    tracing::warn!(line = %beginning(line), "dropped a line of the MCP server's process that is no JSON-RPC message");
}

/// As much of `line` as a log should hold.
fn beginning(line: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(line.get(..SHOWN).unwrap_or(line))
}

fn response(mux: &Mux, json: &Bytes, message: &Message<'_>) {
    mux.note_answer();
    let Some(id) = message.id() else {
        let error = message.error().map(|error| beginning(error.get().as_bytes()));
        tracing::warn!(error = error.as_deref(), "the MCP server could not read a message");
        return;
    };
    let Some(call) = ids::read(id.raw()).and_then(|number| mux.calls.close(number)) else {
        tracing::debug!(id = id.raw(), "dropped an answer that nobody waits for");
        return;
    };
    if let Reply::Handshake(version, _) = call.reply {
        mux.handshake.keep(version, message);
    }
    let result = Params::read_loose(message.result());
    let mut edits = vec![(id.raw(), &*call.id)];
    if let Some(subscription) = result.meta.as_ref().and_then(|meta| meta.subscription) {
        edits.push((subscription.get(), &*call.id));
    }
    edits.sort_unstable_by_key(|(old, _)| old.as_ptr() as usize);
    let answer = splice(json, &edits);
    mux.calls.answer(call, answer);
}

/// Requests to a client cannot be routed on a shared pipe; they are answered, so that the server does not wait.
fn request(mux: &Mux, message: &Message<'_>) {
    let Some(id) = message.id() else { return };
    let answer = if message.method() == Some("ping") {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}", id.raw()).into_bytes()
    } else {
        let refusal = "not available: this server's process is shared by all of its clients";
        ErrorBody::new(code::METHOD_NOT_FOUND, refusal).id(Some(id)).encode()
    };
    mux.queue.push(Line::of_ours(answer));
}

fn notification(mux: &Mux, json: &Bytes, message: &Message<'_>) {
    let params = Params::read_loose(message.params());
    let method = message.method().unwrap_or_default();
    let named = |raw: Option<&RawValue>| raw.and_then(|raw| ids::read(raw.get()));
    if method == "notifications/progress" {
        if let (Some(token), Some(id)) = (params.progress_token, named(params.progress_token)) {
            mux.calls.notify(id, |call| {
                let restored = call.token.as_deref().unwrap_or(&call.id);
                splice(json, &[(token.get(), restored)])
            });
        }
    } else if let Some(subscription) = params.meta.as_ref().and_then(|meta| meta.subscription) {
        if let Some(id) = named(Some(subscription)) {
            mux.calls.notify(id, |call| splice(json, &[(subscription.get(), &call.id)]));
        }
    } else if method == "notifications/resources/updated" {
        if let Some(uri) = params.uri {
            mux.listeners.tell(&mux.subscriptions.subscribers(&uri), json);
        }
    } else if LISTS.contains(&method) {
        // Every client hears of it, so nothing in it may be meant for one of them (toolhive-0.63 §4.3).
        mux.listeners.tell_all(format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}").as_bytes());
    } else {
        // `notifications/message` above all: nobody can tell whose log it is.
        tracing::debug!(method, "dropped a notification that cannot be attributed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_between_what_a_server_prints_around_it() {
        for (line, expected) in [
            ("{}", Some("{}")),
            ("\u{feff}log: {\"a\":{}} \u{7}\r", Some("{\"a\":{}}")),
            ("no message", None),
            ("} {", None),
            ("", None),
        ] {
            let found = object(line.as_bytes()).map(|range| &line[range]);
            assert_eq!(found, expected, "{line:?}");
        }
    }
}
