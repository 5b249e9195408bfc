//! One request of a client.

use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderValue;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use mcp_http::{Body, CollectError, collect, empty, json, text};
use mcp_wire::{ErrorBody, Kind, Message, MessageError, Revision, classify, code, headers as mcp};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use uuid::Uuid;

use super::answer::{accepted, as_stream, error, events, is_json, passed_on, result};
use super::stream::{Waiting, listen};
use super::{Client, Front, Line};
use crate::modern::{not_allowed, protocol_version, revision_refusal};
use crate::sessions::{Named, not_found};
use crate::stdio::calls::{Call, PROCESS_ENDED, QUEUE, Reply};
use crate::stdio::events::{Deadline, Events};
use crate::stdio::handshake::{self, Outcome};
use crate::stdio::rewrite::{Params, line, request_line};

const PATH: &str = "/mcp";
const METHODS: &str = "GET, POST, DELETE, OPTIONS";
const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
const TIMED_OUT: i64 = -32000;

/// The session that a request names.
struct Session {
    id: Arc<str>,
    client: Arc<Client>,
}

/// A request of a client that was read and let in.
struct Asked<'a> {
    body: &'a Bytes,
    message: &'a Message<'a>,
    params: Params<'a>,
    revision: Revision,
    session: Option<Session>,
}

/// Serves one HTTP request.
pub(super) async fn handle(front: &Arc<Front>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    if parts.uri.path() != PATH {
        return text(StatusCode::NOT_FOUND, "Not Found");
    }
    if front.strict_versions
        && parts.headers.contains_key(mcp::PROTOCOL_VERSION)
        && !protocol_version(&parts.headers).is_some_and(|version| REVISIONS.contains(&version))
    {
        return text(StatusCode::BAD_REQUEST, "Unsupported MCP-Protocol-Version");
    }
    match parts.method {
        Method::POST => match collect(body, front.max_body_bytes).await {
            Ok(body) => post(front, &parts, &body).await,
            Err(CollectError::TooLarge { .. }) => text(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large"),
            Err(CollectError::Broken(_)) => text(StatusCode::BAD_REQUEST, "Bad Request"),
        },
        Method::GET => match front.sessions.named(&parts.headers) {
            Named::Known(_, client) => listen(client),
            Named::Nothing => text(StatusCode::BAD_REQUEST, "Mcp-Session-Id is missing"),
            Named::Unknown => not_found(None),
        },
        Method::DELETE => match front.sessions.named(&parts.headers) {
            Named::Known(id, client) => {
                let id = id.to_str().unwrap_or_default();
                front.sessions.remove(id);
                client.close();
                front.forget(id);
                let mut response = Response::new(empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Named::Nothing => text(StatusCode::BAD_REQUEST, "Mcp-Session-Id is missing"),
            Named::Unknown => not_found(None),
        },
        Method::OPTIONS => {
            let mut response = not_allowed(METHODS);
            *response.status_mut() = StatusCode::NO_CONTENT;
            *response.body_mut() = empty();
            response
        }
        _ => not_allowed(METHODS),
    }
}

async fn post(front: &Arc<Front>, parts: &Parts, body: &Bytes) -> Response<Body> {
    if !is_json(&parts.headers) {
        return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json");
    }
    let message = match Message::parse(body) {
        Ok(message) => message,
        Err(MessageError::Batch) => return json(StatusCode::BAD_REQUEST, ErrorBody::batch().encode()),
        Err(_) => return text(StatusCode::BAD_REQUEST, "Invalid JSON-RPC 2.0 message"),
    };
    let Ok(params) = Params::read(message.params()) else {
        return text(StatusCode::BAD_REQUEST, "Invalid JSON-RPC 2.0 message");
    };
    let revision = match classify(protocol_version(&parts.headers), &message) {
        Ok(revision) => revision,
        Err(error) => return revision_refusal(&error, &message),
    };
    if let Err(mismatch) = mcp::check(&parts.headers, &message) {
        return json(StatusCode::BAD_REQUEST, mismatch.body(message.id()));
    }
    // A handshake opens a session of our naming; the Modern era has none.
    let session = if message.method() == Some("initialize") || revision == Revision::Modern {
        None
    } else {
        match front.sessions.named(&parts.headers) {
            Named::Nothing => None,
            Named::Known(id, client) => Some(Session { id: id.to_str().unwrap_or_default().into(), client }),
            Named::Unknown => return not_found(Some(&message)),
        }
    };
    let asked = Asked { body, message: &message, params, revision, session };
    match message.kind() {
        // Nothing was asked of any client, so nothing waits for this.
        Kind::Response => accepted(),
        Kind::Notification => notification(front, &asked).await,
        Kind::Request => match message.method() {
            Some("initialize") => initialize(front, &asked).await,
            Some("logging/setLevel") if revision == Revision::Legacy => local(&asked, "{}"),
            Some("resources/subscribe" | "resources/unsubscribe") => subscription(front, asked).await,
            _ => call(front, parts, asked).await,
        },
    }
}

/// An answer that does not need the process.
fn local(asked: &Asked<'_>, value: &str) -> Response<Body> {
    asked.message.id().map_or_else(accepted, |id| json(StatusCode::OK, result(id, value)))
}

async fn initialize(front: &Arc<Front>, asked: &Asked<'_>) -> Response<Body> {
    match handshake::make(front, asked.body.clone()).await {
        Outcome::Result(value) => {
            let id = Uuid::new_v4().to_string();
            let mut response = local(asked, &value);
            if let Ok(header) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(mcp::SESSION_ID, header);
            }
            for (gone, client) in front.sessions.insert(id, Arc::new(Client::default())) {
                client.close();
                front.forget(&gone);
            }
            response
        }
        Outcome::Refused(answer) => json(StatusCode::OK, answer),
        Outcome::Silence => unanswered(asked),
    }
}

fn unanswered(asked: &Asked<'_>) -> Response<Body> {
    let message = "the MCP server's process does not answer";
    error(StatusCode::BAD_GATEWAY, code::INTERNAL, message, asked.message.id())
}

async fn notification(front: &Arc<Front>, asked: &Asked<'_>) -> Response<Body> {
    let bytes = match asked.message.method() {
        Some("notifications/initialized") if front.handshake.first_initialized() => line(asked.body, &mut []),
        Some("notifications/cancelled") => {
            let (Some(request), Some(session)) = (asked.params.request_id, &asked.session) else { return accepted() };
            let Some(id) = front.calls.find(&session.id, request.get()) else { return accepted() };
            line(asked.body, &mut [(request.get(), &id.to_string())])
        }
        // What a client says of requests to it, or of its roots, concerns nobody: the process is never told about a client.
        Some("notifications/initialized" | "notifications/progress" | "notifications/roots/list_changed") => {
            return accepted();
        }
        _ => line(asked.body, &mut []),
    };
    match timeout(front.answer_timeout, front.lines.send(Line { bytes, call: None })).await {
        Ok(Ok(())) => accepted(),
        _ => unanswered(asked),
    }
}

async fn subscription(front: &Arc<Front>, asked: Asked<'_>) -> Response<Body> {
    // Without a session nobody would hear of the resource, and anybody could end what others subscribed to.
    let Some(session) = &asked.session else {
        return error(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, "Mcp-Session-Id is missing", asked.message.id());
    };
    let Some(uri) = asked.params.uri.clone() else {
        return error(StatusCode::OK, code::INVALID_PARAMS, "params.uri is missing", asked.message.id());
    };
    let subscribe = asked.message.method() == Some("resources/subscribe");
    if subscribe {
        if front.subscriptions.join(&uri, &session.id) {
            return local(&asked, "{}");
        }
        if front.subscriptions.is_full() {
            return error(StatusCode::OK, code::INTERNAL, "too many subscriptions", asked.message.id());
        }
    } else if !front.subscriptions.part(&uri, &session.id) {
        return local(&asked, "{}");
    }
    let Some(answer) = front.ask(asked.body).await else { return unanswered(&asked) };
    if subscribe && Message::parse(&answer).is_ok_and(|answer| answer.result().is_some()) {
        front.subscriptions.add(uri, &session.id);
    }
    json(StatusCode::OK, answer)
}

async fn call(front: &Arc<Front>, parts: &Parts, asked: Asked<'_>) -> Response<Body> {
    let Some(client_id) = asked.message.id() else { return accepted() };
    let token = asked.params.meta.as_ref().and_then(|meta| meta.progress_token);
    let listens = asked.message.method() == Some("subscriptions/listen");
    let id = front.calls.fresh_id();
    let bytes = request_line(asked.body, asked.message, &asked.params, id);
    let (session, client) = asked.session.map(|session| (session.id, session.client)).unzip();
    let open = |reply| {
        let token = token.map(|token| token.get().into());
        front.calls.open(id, Call { id: client_id.raw().into(), token, session, reply });
        let leaving_cancels = asked.revision == Revision::Modern;
        Waiting { front: Arc::clone(front), id, leaving_cancels, _client: client }
    };
    let ended = || error(StatusCode::BAD_GATEWAY, code::INTERNAL, PROCESS_ENDED, Some(client_id));
    if as_stream(&parts.headers, token.is_some() || listens) {
        let (reply, messages) = mpsc::channel(QUEUE);
        let waiting = open(Reply::Stream(reply));
        return match timeout(front.answer_timeout, front.lines.send(Line { bytes, call: Some(id) })).await {
            Ok(Ok(())) => {
                let last_words = ErrorBody::new(TIMED_OUT, "Timeout").id(Some(client_id)).encode();
                let deadline = (!listens).then(|| Deadline::new(front.answer_timeout, last_words.into()));
                events(Body::new(Events::new(messages, deadline, waiting)))
            }
            Ok(Err(_)) => ended(),
            Err(_) => text(StatusCode::GATEWAY_TIMEOUT, "Timeout"),
        };
    }
    let (reply, answer) = oneshot::channel();
    let mut waiting = open(Reply::Once(reply));
    let asking = async {
        front.lines.send(Line { bytes, call: Some(id) }).await.ok()?;
        answer.await.ok()
    };
    match timeout(front.answer_timeout, asking).await {
        Ok(Some(answer)) => passed_on(answer, asked.revision),
        Ok(None) => ended(),
        Err(_) => {
            waiting.leaving_cancels = true;
            text(StatusCode::GATEWAY_TIMEOUT, "Timeout")
        }
    }
}
