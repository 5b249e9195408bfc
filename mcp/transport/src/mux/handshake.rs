//! The handshake is made once per process and serves every client.
//!
//! A process of both eras may refuse the handshake of the Legacy era because a request of the Modern one came first: the Go SDK's says that
//! it was initialized. Then what it says of itself in the Modern era is the result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mcp_wire::{MODERN_VERSION, Message, Revision};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Mux;

/// How long a process may take to answer the handshake, whoever waits for it meanwhile: it may be fetching its packages.
const PATIENCE: Duration = Duration::from_mins(3);

/// The notification that ends a handshake.
pub(super) const INITIALIZED: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";

/// What came of asking the process.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The result, as JSON text: the same for every client.
    Result(Arc<str>),
    /// The error that the process answered, with the client's id.
    Refused(Bytes),
    /// Nothing in time, or the process ended.
    Silence,
}

/// The handshake that was made, to be given out and to be repeated with a new process.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    made: Mutex<Option<Made>>,
    one_at_a_time: Arc<tokio::sync::Mutex<()>>,
    initialized: AtomicBool,
}

#[derive(Clone, Debug)]
struct Made {
    request: Bytes,
    result: Arc<str>,
}

impl Handshake {
    fn made(&self) -> Option<Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the result of an answer to `request`; `None` when the answer is an error.
    pub(super) fn keep(&self, request: &Bytes, answer: &[u8]) -> Option<Arc<str>> {
        let result = Message::parse(answer).ok()?.result()?.get().into();
        Some(self.keep_result(request, result))
    }

    fn keep_result(&self, request: &Bytes, result: Arc<str>) -> Arc<str> {
        // A copy: the request is a slice of what was read from the client.
        let made = Made { request: Bytes::copy_from_slice(request), result: Arc::clone(&result) };
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        result
    }

    /// The `initialize` that a new process is to be greeted with.
    pub(super) fn request(&self) -> Option<Bytes> {
        self.made().map(|made| made.request)
    }

    /// Whether this is the first `notifications/initialized` after a handshake, the one that reaches the process.
    pub(super) fn first_initialized(&self) -> bool {
        self.request().is_some() && !self.initialized.swap(true, Ordering::Relaxed)
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::Relaxed)
    }
}

/// The result of the handshake; made with `request`, a client's `initialize`, when it is the first.
pub(super) async fn make(mux: &Arc<Mux>, request: &Bytes, era: Revision) -> Outcome {
    timeout(mux.answer_timeout, make_once(mux, request, era)).await.unwrap_or(Outcome::Silence)
}

async fn make_once(mux: &Arc<Mux>, request: &Bytes, era: Revision) -> Outcome {
    if let Some(made) = mux.handshake.made() {
        return Outcome::Result(made.result);
    }
    let alone = Arc::clone(&mux.handshake.one_at_a_time).lock_owned().await;
    if let Some(made) = mux.handshake.made() {
        return Outcome::Result(made.result);
    }
    let (mux, request) = (Arc::clone(mux), request.clone());
    let tasks = mux.tasks.clone();
    // A client that leaves does not undo it: the process was asked, and may refuse to be asked again.
    let asked = tasks.spawn(async move {
        let _alone = alone;
        ask(&mux, &request, era).await
    });
    asked.await.unwrap_or(Outcome::Silence)
}

async fn ask(mux: &Mux, request: &Bytes, era: Revision) -> Outcome {
    let patience = PATIENCE.max(mux.answer_timeout);
    let Some(answer) = timeout(patience, mux.ask_patiently(request)).await.ok().flatten() else {
        return Outcome::Silence;
    };
    match mux.handshake.keep(request, &answer) {
        Some(result) => Outcome::Result(result),
        None if era == Revision::Modern => Outcome::Refused(answer),
        None => match discover(mux, request).await {
            Some(result) => Outcome::Result(mux.handshake.keep_result(request, result.into())),
            None => Outcome::Refused(answer),
        },
    }
}

/// The result for `request`, an `initialize`, of a process that is asked in the Modern era what it is. `None` where it does not know that era, or no other.
async fn discover(mux: &Mux, request: &Bytes) -> Option<String> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "portcullis", "version": env!("CARGO_PKG_VERSION") },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discover = json!({ "jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": { "_meta": meta } });
    let answer = mux.ask(&discover.to_string().into()).await?;
    let discovered: Value = serde_json::from_str(Message::parse(&answer).ok()?.result()?.get()).ok()?;
    let params: Value = serde_json::from_str(Message::parse(request).ok()?.params()?.get()).ok()?;
    as_result(&params, &discovered).map(|result| result.to_string())
}

/// What was `discovered`, as the answer to an `initialize` with these `params`.
fn as_result(params: &Value, discovered: &Value) -> Option<Value> {
    let versions = discovered["supportedVersions"].as_array()?.iter().filter_map(Value::as_str);
    let legacy: Vec<&str> = versions.filter(|version| *version < MODERN_VERSION).collect();
    let wanted = params["protocolVersion"].as_str().filter(|wanted| legacy.contains(wanted));
    let version = wanted.or_else(|| legacy.iter().copied().max())?;
    let named = &discovered["_meta"]["io.modelcontextprotocol/serverInfo"];
    let server = if named.is_object() { named.clone() } else { json!({ "name": "unknown", "version": "" }) };
    let mut result =
        json!({ "protocolVersion": version, "capabilities": discovered["capabilities"], "serverInfo": server });
    if let Some(instructions) = discovered["instructions"].as_str() {
        result["instructions"] = instructions.into();
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_of_both_eras_says_of_itself_is_a_handshake_and_of_one_era_is_none() {
        let both = json!({
            "supportedVersions": ["2026-07-28", "2025-11-25", "2025-06-18"], "capabilities": {"tools": {}}, "instructions": "ask",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}},
        });
        for (wanted, version) in
            [("2025-06-18", "2025-06-18"), ("2024-11-05", "2025-11-25"), ("2026-07-28", "2025-11-25")]
        {
            let result = as_result(&json!({"protocolVersion": wanted}), &both).unwrap();
            let expected = json!({
                "protocolVersion": version, "capabilities": {"tools": {}}, "instructions": "ask", "serverInfo": {"name": "s", "version": "1"},
            });
            assert_eq!(result, expected);
        }
        let modern = json!({"supportedVersions": ["2026-07-28"], "capabilities": {}});
        assert_eq!(as_result(&json!({}), &modern), None);
        let nameless = json!({"supportedVersions": ["2025-11-25"], "capabilities": {}});
        assert_eq!(as_result(&json!({}), &nameless).unwrap()["serverInfo"]["name"], "unknown");
    }
}
