//! Opening a session anew after the server lost it, so that the client need not know (toolhive-runner §1.10, 7).
//!
//! A request is repeated only when the server said that it does not know the session, or when the address that opened the session takes no
//! connection: then nothing has acted on it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use mcp_http::{Body, BoxError, collect, empty, full, json};
use mcp_store::{SessionRecord, SessionStore};
use mcp_wire::{ErrorBody, code, headers as mcp};
use serde::Deserialize;
use serde_json::Value;

use super::LAST_EVENT_ID;
use super::rejoin::rejoin;
use super::upstream::{Outgoing, Upstream, UpstreamError, accept_answers};
use crate::carriers;

/// Error bodies longer than this are not looked into.
const MAX_ERROR: usize = 64 << 10;
/// How long an error body may take after its head.
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer to a handshake.
const MAX_HANDSHAKE_ANSWER: usize = 4 << 20;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// The time that the end of a session that nobody uses may take.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that forgets its sessions all the time is not asked more often than this.
const PAUSE: Duration = Duration::from_secs(1);
const PING: &[u8] = br#"{"jsonrpc":"2.0","id":"portcullis","method":"ping"}"#;
const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The state of the server's session, as an answer tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The server knows it, or says nothing of it.
    Lives,
    /// The refusal may be about the request or about the session: [ask](refuses_ping).
    Doubtful,
    /// The server does not know it.
    Lost,
}

/// Reads what the answer says of the session. The answer stays whole; one that breaks off becomes a 502 with `id`.
///
/// 404 is what the specification asks for. Servers on the TypeScript SDK say 400 with code -32000 and name the session, or that they
/// are not initialized; others say 400, 401 or 410 in words of their own. A 404 with -32601 is about the method, and one with the id of the
/// request is its answer: the server has acted on it, so it must not be sent again.
pub(super) async fn said_of_session(response: &mut Response<Body>, id: Option<&str>) -> Said {
    let status = response.status();
    // A challenge is about the caller.
    if !may_be_about_session(status) || response.headers().contains_key(WWW_AUTHENTICATE) {
        return Said::Lives;
    }
    let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_ERROR) {
        return Said::Lives;
    }
    let mut body = std::mem::replace(response.body_mut(), empty());
    let read = tokio::time::timeout(ERROR_TIMEOUT, read_error(&mut body)).await;
    match read {
        Ok(Ok(bytes)) if bytes.len() <= MAX_ERROR => {
            *response.body_mut() = full(bytes.clone());
            says(status, &bytes, id)
        }
        Ok(Ok(bytes)) => {
            *response.body_mut() = rejoin(bytes, body);
            Said::Lives
        }
        // What came of it is gone, so it cannot be passed on as the whole.
        Ok(Err(_)) | Err(_) => {
            let error = ErrorBody::new(code::INTERNAL, "the MCP server broke off its answer").raw_id(id).encode();
            *response = json(StatusCode::BAD_GATEWAY, error);
            Said::Lives
        }
    }
}

/// The whole of a short body, or the beginning of one that is longer than [`MAX_ERROR`].
async fn read_error(body: &mut Body) -> Result<Bytes, BoxError> {
    let mut read = BytesMut::new();
    while read.len() <= MAX_ERROR
        && let Some(frame) = body.frame().await
    {
        read.extend_from_slice(&frame?.into_data().unwrap_or_default());
    }
    Ok(read.freeze())
}

fn may_be_about_session(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND | StatusCode::GONE)
}

/// Whether the server refuses a `ping` in the session of the request `like` as well: then it does not know the session, and has not acted on
/// the request.
pub(super) async fn refuses_ping(upstream: &Upstream, like: &Outgoing) -> bool {
    let ping = post(like, headers_like(like), like.target.clone(), Bytes::from_static(PING), like.to);
    let answer = tokio::time::timeout(HANDSHAKE_TIMEOUT, upstream.send(&ping)).await;
    let Ok(Ok((mut response, _))) = answer else { return false };
    // At most a few bytes; the connection can be used again once they are read.
    let _ = tokio::time::timeout(Duration::from_secs(1), read_error(response.body_mut())).await;
    may_be_about_session(response.status())
}

fn says(status: StatusCode, body: &[u8], id: Option<&str>) -> Said {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        id: Value,
        error: Error,
    }
    #[derive(Deserialize)]
    struct Error {
        code: i64,
        #[serde(default)]
        message: String,
    }
    let not_found = status == StatusCode::NOT_FOUND;
    let Ok(Answer { id: answered, error }) = serde_json::from_slice(body) else {
        return if not_found { Said::Lost } else { Said::Doubtful };
    };
    let message = error.message.to_ascii_lowercase();
    let names_it = error.code == -32000 && (message.contains("session") || message.contains("not initialized"));
    if names_it {
        return Said::Lost;
    }
    if !not_found {
        return Said::Doubtful;
    }
    let is_answer = id.is_some_and(|id| serde_json::from_str::<Value>(id).is_ok_and(|id| id == answered));
    let lost = error.code == code::SESSION_NOT_FOUND || error.code != code::METHOD_NOT_FOUND && !is_answer;
    if lost { Said::Lost } else { Said::Lives }
}

/// The sessions that are being opened anew, or were a moment ago: one attempt at a time for each.
#[derive(Debug, Default)]
pub(super) struct Reopening(Mutex<HashMap<Box<str>, Arc<LastAttempt>>>);

type LastAttempt = tokio::sync::Mutex<Option<Attempt>>;

#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// When it began, or ended without a connection.
    at: Instant,
    /// Whether there was a connection, as far as is known.
    reached: bool,
}

impl Attempt {
    /// Whether it speaks for a request that has asked for one since `asked`: it found nobody while that waited, or the server was asked a
    /// moment ago.
    fn is_enough(self, asked: Instant) -> bool {
        if self.reached { self.at.elapsed() < PAUSE } else { self.at >= asked }
    }
}

impl Reopening {
    fn of(&self, id: &str) -> Arc<LastAttempt> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = all.get(id) {
            return Arc::clone(last);
        }
        // Looking at every entry is dear, so it waits until there are twice as many.
        if all.len().is_power_of_two() {
            all.retain(|_, last| {
                let recent = |last: Option<Attempt>| last.is_some_and(|last| last.at.elapsed() < PAUSE);
                // Somebody may have it and not have locked it yet.
                Arc::strong_count(last) > 1 || last.try_lock().map_or(true, |last| recent(*last))
            });
        }
        Arc::clone(all.entry(id.into()).or_default())
    }
}

/// Opens `session` anew, at whatever address of the server answers, unless another request has done so since it was looked up. `like` lends
/// its headers, so that the handshake carries what lets this client in. Returns the session as it is now when the request may be sent once more.
pub(super) async fn recover(
    upstream: &Upstream,
    store: &dyn SessionStore,
    reopening: &Reopening,
    session: &SessionRecord,
    like: &Outgoing,
) -> Option<Arc<SessionRecord>> {
    let handshake = Bytes::copy_from_slice(session.handshake.as_ref()?.as_bytes());
    let asked = Instant::now();
    let attempt = async {
        let last = reopening.of(&session.id);
        let mut last = last.lock().await;
        let current = store.load(&session.id, &session.principal).await.ok().flatten()?;
        if (&current.backend_id, current.backend_address) != (&session.backend_id, session.backend_address) {
            return Some(current);
        }
        if last.is_some_and(|last| last.is_enough(asked)) {
            return None;
        }
        *last = Some(Attempt { at: Instant::now(), reached: true });
        let opened = open(upstream, handshake, like).await;
        if let Err(UpstreamError::Unreachable(_)) = opened {
            tracing::debug!("the MCP server cannot be reached, so its session is not opened anew");
            *last = Some(Attempt { at: Instant::now(), reached: false });
        }
        let (id, address) = opened.ok().flatten()?;
        let mut reopened = SessionRecord::clone(&current);
        reopened.backend_id = Some(id.to_str().ok()?.into());
        reopened.backend_address = address;
        // Another replica may have been quicker: one of the two is used by both.
        let kept = store.replace(&current, reopened).await.ok().flatten();
        if kept.as_ref().is_none_or(|kept| kept.backend_id.as_deref().map(str::as_bytes) != Some(id.as_bytes())) {
            end(upstream, like, id, address).await;
        }
        let kept = kept?;
        tracing::info!(address = ?kept.backend_address, "the MCP server had lost a session; it was opened anew");
        Some(kept)
    };
    tokio::time::timeout(HANDSHAKE_TIMEOUT, attempt).await.ok().flatten()
}

/// Ends the server's session `id`, which nobody will know. `like` lends its headers.
pub(super) async fn end(upstream: &Upstream, like: &Outgoing, id: HeaderValue, to: Option<SocketAddr>) {
    let mut headers = headers_like(like);
    headers.insert(mcp::SESSION_ID, id);
    let delete = Outgoing { method: Method::DELETE, ..post(like, headers, like.target.clone(), Bytes::new(), to) };
    // Servers that cannot end sessions let them expire.
    let _ = tokio::time::timeout(END_TIMEOUT, upstream.send(&delete)).await;
}

/// The headers of the request `like` that a message of the proxy's own may have.
fn headers_like(like: &Outgoing) -> HeaderMap {
    let mut headers = like.headers.clone();
    for name in [mcp::METHOD, mcp::NAME, CONTENT_LENGTH, LAST_EVENT_ID] {
        headers.remove(name);
    }
    accept_answers(&mut headers);
    headers
}

fn post(like: &Outgoing, headers: HeaderMap, target: Uri, body: Bytes, to: Option<SocketAddr>) -> Outgoing {
    let (signer, sent) = (like.signer.clone(), AtomicBool::new(false));
    Outgoing { method: Method::POST, target, place: None, headers, body, to, open: false, signer, sent }
}

/// The server's id for a new session, and the address to go on with; `None` when the answer opens no session.
async fn open(
    upstream: &Upstream,
    handshake: Bytes,
    like: &Outgoing,
) -> Result<Option<(HeaderValue, Option<SocketAddr>)>, UpstreamError> {
    let mut headers = headers_like(like);
    headers.remove(mcp::SESSION_ID);
    let target = carriers::rename(&like.target, None).unwrap_or_else(|| like.target.clone());
    let post = |headers, body, to| post(like, headers, target.clone(), body, to);
    let mut first = headers.clone();
    // The handshake itself negotiates the version.
    first.remove(mcp::PROTOCOL_VERSION);
    let (response, from) = upstream.send(&post(first, handshake, None)).await?;
    let id = response.headers().get(mcp::SESSION_ID).filter(|_| response.status() == StatusCode::OK).cloned();
    let Some(id) = id else { return Ok(None) };
    // Read to its end: leaving early could be taken for a disconnect.
    if collect(response.into_body(), MAX_HANDSHAKE_ANSWER).await.is_err() {
        return Ok(None);
    }
    headers.insert(mcp::SESSION_ID, id.clone());
    let (accepted, _) = upstream.send(&post(headers, Bytes::from_static(INITIALIZED), from)).await?;
    let fine = accepted.status().is_success();
    // At most a few bytes; the connection can be used again once they are read.
    let _ = tokio::time::timeout(Duration::from_secs(1), accepted.into_body().collect()).await;
    Ok(fine.then_some((id, from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_in_words_of_its_own_leaves_doubt_about_the_session() {
        for (status, body, expected) in [
            (404, "", Said::Lost),
            (404, "404 page not found\n", Said::Lost),
            (404, r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#, Said::Lost),
            (404, r#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":1}"#, Said::Lives),
            (404, r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":"7"}"#, Said::Lost),
            (404, r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Session not found"},"id":"7"}"#, Said::Lost),
            (404, r#"{"jsonrpc":"2.0","error":{"code":-32002,"message":"Resource not found"},"id":"7"}"#, Said::Lives),
            (404, r#"{"jsonrpc":"2.0","error":{"code":-32002,"message":"Resource not found"},"id":7}"#, Said::Lost),
            (
                404,
                r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Session not found"},"id":"server-error"}"#,
                Said::Lost,
            ),
            (400, r#"{"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#, Said::Lost),
            (400, r#"{"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}"#, Said::Lost),
            (400, r#"{"error":{"code":-32000,"message":"Bad Request: Unsupported protocol version"}}"#, Said::Doubtful),
            (400, r#"{"error":{"code":-32602,"message":"no such session in params"}}"#, Said::Doubtful),
            (400, "Bad Request: session ID is not valid", Said::Doubtful),
            (
                400,
                r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request"}}"#,
                Said::Doubtful,
            ),
            (401, "Unauthorized: Session not found", Said::Doubtful),
        ] {
            let said = says(StatusCode::from_u16(status).unwrap(), body.as_bytes(), Some(r#""7""#));
            assert_eq!(said, expected, "{status} {body}");
        }
    }
}
