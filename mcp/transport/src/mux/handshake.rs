//! The handshake is the proxy's own, made once per process: no client decides what a process that all share is told. A process that refuses
//! the newest revision, where it should name one that it knows, is asked for the older ones.
//!
//! A process of both eras may refuse the handshake of the Legacy era because a request of the Modern one came first: the Go SDK's says that
//! it was initialized. Then what it says of itself in the Modern era is the result.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mcp_wire::{MODERN_VERSION, Message, splice};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Mux;
use crate::modern::REVISIONS;

/// How long a process may take to answer the handshake, whoever waits for it meanwhile: it may be fetching its packages.
const PATIENCE: Duration = Duration::from_mins(3);

/// The notification that ends a handshake.
pub(super) const INITIALIZED: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";

/// The result of asking the process.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The result, as JSON text: the same for every client.
    Result(Arc<str>),
    /// The error that the process answered, as JSON text.
    Refused(Arc<str>),
    /// Nothing in time, or the process ended.
    Silence,
}

/// The handshake that was made, to be given out and to be repeated with a new process.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// The revision that the process was asked for, and its result.
    made: Mutex<Option<(&'static str, Arc<str>)>>,
    one_at_a_time: Arc<tokio::sync::Mutex<()>>,
}

/// The `initialize` by which every process is greeted in revision `version`: with no capabilities, as requests of a shared process to its client
/// are refused.
pub(super) fn request(version: &str) -> Bytes {
    let client = json!({ "name": "portcullis", "version": env!("CARGO_PKG_VERSION") });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string().into()
}

impl Handshake {
    /// The result, where the handshake was made.
    fn result(&self) -> Option<Arc<str>> {
        self.made().map(|(_, result)| result)
    }

    /// The revision to greet a new process in. `None` before the first handshake.
    pub(super) fn version(&self) -> Option<&'static str> {
        self.made().map(|(version, _)| version)
    }

    fn made(&self) -> Option<(&'static str, Arc<str>)> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the result in the answer of a process to the handshake in `version`; `None` when the answer is an error.
    pub(super) fn keep(&self, version: &'static str, answer: &[u8]) -> Option<Arc<str>> {
        Some(self.keep_result(version, Message::parse(answer).ok()?.result()?.get().into()))
    }

    fn keep_result(&self, version: &'static str, result: Arc<str>) -> Arc<str> {
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some((version, Arc::clone(&result)));
        result
    }
}

/// The result of the handshake for a client that wants the revision `wanted`; made when the client is the first.
pub(super) async fn make(mux: &Arc<Mux>, wanted: Option<&str>) -> Outcome {
    match timeout(mux.answer_timeout, make_once(mux)).await.unwrap_or(Outcome::Silence) {
        Outcome::Result(result) => Outcome::Result(for_client(&result, wanted).map_or(result, Into::into)),
        other => other,
    }
}

/// `result` for a client that wants an older revision than the process speaks. Revisions of the era add to each other, and clients pass over what
/// they do not know, but end at a revision that they do not know. `None` where the result is as it should be.
fn for_client(result: &str, wanted: Option<&str>) -> Option<String> {
    #[derive(Deserialize)]
    struct Versioned<'a> {
        #[serde(borrow, rename = "protocolVersion")]
        version: &'a RawValue,
    }
    let wanted = wanted.filter(|wanted| REVISIONS.contains(wanted))?;
    let Versioned { version } = serde_json::from_str(result).ok()?;
    let spoken: &str = serde_json::from_str(version.get()).ok()?;
    if wanted >= spoken {
        return None;
    }
    let wanted = Value::from(wanted).to_string();
    String::from_utf8(splice(result.as_bytes(), &[(version.get(), &wanted)])).ok()
}

async fn make_once(mux: &Arc<Mux>) -> Outcome {
    if let Some(result) = mux.handshake.result() {
        return Outcome::Result(result);
    }
    let alone = Arc::clone(&mux.handshake.one_at_a_time).lock_owned().await;
    if let Some(result) = mux.handshake.result() {
        return Outcome::Result(result);
    }
    let mux = Arc::clone(mux);
    let tasks = mux.tasks.clone();
    // A client that leaves does not undo it: the process was asked, and may refuse to be asked again.
    let asked = tasks.spawn(async move {
        let _alone = alone;
        ask(&mux).await
    });
    asked.await.unwrap_or(Outcome::Silence)
}

async fn ask(mux: &Mux) -> Outcome {
    let patience = PATIENCE.max(mux.answer_timeout);
    let mut refusal = None;
    for version in REVISIONS.into_iter().filter(|version| *version != MODERN_VERSION).rev() {
        let Some(answer) = timeout(patience, mux.ask_patiently(&request(version), None)).await.ok().flatten() else {
            return Outcome::Silence;
        };
        let result = match mux.handshake.keep(version, &answer) {
            None if refusal.is_none() => {
                discover(mux).await.map(|result| mux.handshake.keep_result(version, result.into()))
            }
            result => result,
        };
        if let Some(result) = result {
            mux.notify(Bytes::from_static(INITIALIZED), None).await;
            return Outcome::Result(result);
        }
        refusal.get_or_insert(answer);
    }
    let refusal = refusal.unwrap_or_default();
    let error = Message::parse(&refusal).ok().and_then(|answer| Some(answer.error()?.get().into()));
    error.map_or(Outcome::Silence, Outcome::Refused)
}

/// The result of a process that is asked in the Modern era what it is. `None` where it does not know that era, or no other.
async fn discover(mux: &Mux) -> Option<String> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "portcullis", "version": env!("CARGO_PKG_VERSION") },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discover = json!({ "jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": { "_meta": meta } });
    let answer = mux.ask(&discover.to_string().into(), None).await?;
    let discovered: Value = serde_json::from_str(Message::parse(&answer).ok()?.result()?.get()).ok()?;
    as_result(&discovered).map(|result| result.to_string())
}

/// The answer to an `initialize` by a process that was `discovered`.
fn as_result(discovered: &Value) -> Option<Value> {
    let versions = discovered["supportedVersions"].as_array()?.iter().filter_map(Value::as_str);
    let version = versions.filter(|version| *version < MODERN_VERSION).max()?;
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
        let expected = json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "instructions": "ask", "serverInfo": {"name": "s", "version": "1"},
        });
        assert_eq!(as_result(&both), Some(expected));
        let modern = json!({"supportedVersions": ["2026-07-28"], "capabilities": {}});
        assert_eq!(as_result(&modern), None);
        let nameless = json!({"supportedVersions": ["2025-11-25"], "capabilities": {}});
        assert_eq!(as_result(&nameless).unwrap()["serverInfo"]["name"], "unknown");
    }

    #[test]
    fn a_client_of_an_older_revision_is_answered_in_it() {
        let result = |version: &str| format!(r#"{{"x":1.0,"protocolVersion":"{version}","capabilities":{{}}}}"#);
        for (spoken, wanted, told) in [
            ("2025-11-25", Some("2025-11-25"), None),
            ("2025-11-25", Some("2024-11-05"), Some("2024-11-05")),
            ("2025-11-25", Some("2026-07-28"), None),
            ("2025-11-25", Some("2023-01-01"), None),
            ("2025-11-25", None, None),
            ("2025-03-26", Some("2025-06-18"), None),
        ] {
            assert_eq!(for_client(&result(spoken), wanted), told.map(result), "{spoken} {wanted:?}");
        }
        assert_eq!(for_client(r#"{"protocolVersion":7}"#, Some("2024-11-05")), None);
    }
}
