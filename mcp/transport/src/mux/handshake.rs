//! The handshake is the proxy's own, made once per process: no client decides what a process that all share is told. A process that refuses
//! the newest revision, where it should name one that it knows, is asked for the older ones.
//!
//! It comes before the first request of the Modern era too. Processes of the Python and TypeScript SDKs serve the era of the first message alone,
//! and those of the Rust SDK refuse Legacy calls behind a Modern one: a client of the Modern era would lock those of the other out.
//! The Modern era is opened by `server/discover`, without which processes of the Go SDK answer its calls as those of the other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mcp_wire::{MODERN_VERSION, Message, MessageError, OwnedMessage, splice};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::calls::Reply;
use super::{Mux, Sent};
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
    made: Mutex<Option<Made>>,
    /// Whether the process serves the Modern era, once it was asked.
    modern: Mutex<Option<bool>>,
    one_at_a_time: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Debug)]
struct Made {
    /// The revision that the process was asked for.
    version: &'static str,
    result: Arc<str>,
    /// Whether the process is told that the handshake is over, so that requests may follow.
    over: bool,
}

/// The `initialize` by which every process is greeted in revision `version`: with no capabilities, as requests of a shared process to its client
/// are refused.
pub(super) fn request(version: &str) -> Result<OwnedMessage, MessageError> {
    let client = json!({ "name": "portcullis", "version": env!("CARGO_PKG_VERSION") });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
    OwnedMessage::read(
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string().into(),
    )
}

/// The request by which every process is asked whether it serves the Modern era.
pub(super) fn discovery() -> Result<OwnedMessage, MessageError> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "portcullis", "version": env!("CARGO_PKG_VERSION") },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discover = json!({ "jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": { "_meta": meta } });
    OwnedMessage::read(discover.to_string().into())
}

impl Handshake {
    /// The result, where the handshake is over.
    fn result(&self) -> Option<Arc<str>> {
        self.made().clone().filter(|made| made.over).map(|made| made.result)
    }

    /// The revision to greet a new process in. `None` before the first handshake.
    pub(super) fn version(&self) -> Option<&'static str> {
        self.made().as_ref().map(|made| made.version)
    }

    /// Keeps the result in the answer of a process to the handshake in `version`. Returns false when the answer is an error.
    pub(super) fn keep(&self, version: &'static str, answer: &Message<'_>) -> bool {
        let made = answer.result().map(|result| Made { version, result: result.get().into(), over: false });
        let is_made = made.is_some();
        if is_made {
            *self.made() = made;
        }
        is_made
    }

    /// Forgets a handshake that the process never heard the end of.
    fn forget(&self) {
        *self.made() = None;
    }

    /// Notes that the process is told that the handshake is over, and returns the result.
    pub(super) fn end(&self) -> Option<Arc<str>> {
        self.made().as_mut().map(|made| {
            made.over = true;
            Arc::clone(&made.result)
        })
    }

    /// Whether the process serves the Modern era. `None` before it was asked.
    pub(super) fn serves_modern(&self) -> Option<bool> {
        *self.modern()
    }

    /// Notes whether the process serves the Modern era.
    pub(super) fn set_modern(&self, serves: Option<bool>) {
        *self.modern() = serves;
    }

    fn modern(&self) -> MutexGuard<'_, Option<bool>> {
        self.modern.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn made(&self) -> MutexGuard<'_, Option<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (Ok(request), reply) = (request(version), |answer| Reply::Handshake(version, answer)) else {
            return Outcome::Silence;
        };
        let Some(answer) = timeout(patience, mux.ask_patiently(&request, None, reply)).await.ok().flatten() else {
            return Outcome::Silence;
        };
        let refused = Message::parse(&answer).map_or(true, |answer| answer.result().is_none());
        if refused {
            refusal.get_or_insert(answer);
            continue;
        }
        if mux.notify(Bytes::from_static(INITIALIZED), None).await != Sent::Queued {
            mux.handshake.forget();
            return Outcome::Silence;
        }
        return mux.handshake.end().map_or(Outcome::Silence, Outcome::Result);
    }
    let refusal = refusal.unwrap_or_default();
    let error = Message::parse(&refusal).ok().and_then(|answer| Some(answer.error()?.get().into()));
    error.map_or(Outcome::Silence, Outcome::Refused)
}

/// Whether the process, to which the handshake was made or which refuses it, serves the Modern era. One that does not say is taken to do so: it
/// answers the request itself.
pub(super) async fn serves_modern(mux: &Mux) -> bool {
    let Ok(discover) = discovery() else { return true };
    let Some(answer) = mux.ask(&discover, None).await else { return true };
    let serves = Message::parse(&answer).is_ok_and(|answer| answer.result().is_some());
    mux.handshake.set_modern(Some(serves));
    serves
}

#[cfg(test)]
mod tests {
    use super::*;

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
