//! One message of a client.

use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderValue;
use http::request::Parts;
use http::{Response, StatusCode};
use mcp_http::{Body, is_type, json, text};
use mcp_store::{Client, SessionRecord};
use mcp_wire::{ErrorBody, Kind, MODERN_VERSION, Message, MessageError, Revision, classify, code, headers as mcp};
use tokio::time::timeout;
use uuid::Uuid;

use super::answer::{accepted, as_stream, error, events, passed_on, result};
use super::{Front, modern};
use crate::front::events::{Deadline, Events};
use crate::modern::{protocol_version, revision_refusal};
use crate::mux::rewrite::{Params, line};
use crate::mux::{ENDED, Origin, Outcome, Request, Sent};
use crate::sessions::{Named, Renewal, Renewing, Sender, message, not_found, unavailable};

const TIMED_OUT: i64 = -32000;

/// A request of a client that was read and let in.
struct Asked<'a> {
    body: &'a Bytes,
    message: &'a Message<'a>,
    params: Params<'a>,
    revision: Revision,
    session: Option<Arc<SessionRecord>>,
    client: Client,
}

pub(super) async fn handle(front: &Arc<Front>, parts: &Parts, body: Bytes) -> Response<Body> {
    if !is_type(&parts.headers, "application/json") {
        return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json");
    }
    let owned = match message(&parts.extensions, body).await {
        Ok(message) => message,
        Err(error) => return json(StatusCode::BAD_REQUEST, error.body()),
    };
    let (message, body) = (owned.message(), owned.body());
    let params = match Params::read(message.params()) {
        Ok(params) => params,
        Err(error) => return json(StatusCode::BAD_REQUEST, MessageError::from(error).body()),
    };
    let revision = match classify(protocol_version(&parts.headers), message) {
        Ok(revision) => revision,
        Err(error) => return revision_refusal(&error, message),
    };
    let headers = match revision {
        Revision::Legacy => mcp::check(&parts.headers, message),
        Revision::Modern => modern::check(&front.tools, &parts.headers, message),
    };
    if let Err(mismatch) = headers {
        return json(StatusCode::BAD_REQUEST, mismatch.body(message.id()));
    }
    // A handshake opens a session of our naming; the Modern era has none.
    let session = if message.method() == Some("initialize") || revision == Revision::Modern {
        None
    } else {
        match Named::by(&*front.sessions, parts).await {
            Named::Nothing => None,
            Named::Known(session) => Some(session),
            Named::Unknown => return not_found(Some(message)),
            Named::Unavailable => return unavailable(),
        }
    };
    let client = Sender::of(&parts.extensions).client;
    let asked = Asked { body, message, params, revision, session, client };
    match message.kind() {
        // Nothing was asked of any client, so nothing waits for this.
        Kind::Response => accepted(),
        Kind::Notification => notification(front, &asked).await,
        Kind::Request => match message.method() {
            Some("initialize") => initialize(front, parts, &asked).await,
            Some("logging/setLevel") if revision == Revision::Legacy => local(&asked, "{}"),
            Some(method) if revision == Revision::Modern && modern::is_gone(method) => {
                error(StatusCode::NOT_FOUND, code::METHOD_NOT_FOUND, "Method not found", message.id())
            }
            Some("resources/subscribe" | "resources/unsubscribe") => subscription(front, asked).await,
            _ => call(front, parts, asked).await,
        },
    }
}

/// An answer that does not need the server.
fn local(asked: &Asked<'_>, value: &str) -> Response<Body> {
    asked.message.id().map_or_else(accepted, |id| json(StatusCode::OK, result(id, value)))
}

async fn initialize(front: &Front, parts: &Parts, asked: &Asked<'_>) -> Response<Body> {
    match front.mux.greet(asked.body).await {
        Outcome::Result(value) => {
            let id = Uuid::new_v4().to_string();
            let mut response = local(asked, &value);
            if let Ok(header) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(mcp::SESSION_ID, header);
            }
            let Sender { principal: Some(principal), client } = Sender::of(&parts.extensions) else { return response };
            match front.sessions.insert(SessionRecord::new(&id, principal), &client).await {
                // An id that was made here is nobody else's.
                Ok(gone) => gone.iter().flatten().for_each(|gone| front.mux.forget(&gone.id)),
                Err(error) => {
                    tracing::error!(%error, "cannot keep a session");
                    return unavailable();
                }
            }
            response
        }
        Outcome::Refused(answer) => {
            let modern = protocol_version(&parts.headers) == Some(MODERN_VERSION);
            passed_on(answer, if modern { Revision::Modern } else { Revision::Legacy })
        }
        Outcome::Silence => unanswered(asked),
    }
}

fn unanswered(asked: &Asked<'_>) -> Response<Body> {
    let message = "the MCP server's process does not answer";
    error(StatusCode::BAD_GATEWAY, code::INTERNAL, message, asked.message.id())
}

async fn notification(front: &Front, asked: &Asked<'_>) -> Response<Body> {
    let bytes = match asked.message.method() {
        Some("notifications/initialized") if front.mux.first_initialized() => line(asked.body, &mut []),
        Some("notifications/cancelled") => {
            let (Some(request), Some(session)) = (asked.params.request_id, &asked.session) else { return accepted() };
            let Some(id) = front.mux.find(&session.id, request.get()) else { return accepted() };
            line(asked.body, &mut [(request.get(), &id)])
        }
        // What a client says of requests to it, or of its roots, concerns nobody: the server is never told about a client.
        Some("notifications/initialized" | "notifications/progress" | "notifications/roots/list_changed") => {
            return accepted();
        }
        _ => line(asked.body, &mut []),
    };
    if front.mux.notify(bytes).await == Sent::Queued { accepted() } else { unanswered(asked) }
}

async fn subscription(front: &Front, asked: Asked<'_>) -> Response<Body> {
    // Without a session nobody would hear of the resource, and anybody could end what others subscribed to.
    let Some(session) = &asked.session else {
        return error(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, "Mcp-Session-Id is missing", asked.message.id());
    };
    let Some(uri) = asked.params.uri.clone() else {
        return error(StatusCode::OK, code::INVALID_PARAMS, "params.uri is missing", asked.message.id());
    };
    let subscriptions = &front.mux.subscriptions;
    let subscribe = asked.message.method() == Some("resources/subscribe");
    if subscribe {
        if !subscriptions.has_room(&uri, &session.id) {
            return error(StatusCode::OK, code::INTERNAL, "too many subscriptions", asked.message.id());
        }
        if subscriptions.join(&uri, &session.id) {
            return local(&asked, "{}");
        }
    } else if !subscriptions.part(&uri, &session.id) {
        return local(&asked, "{}");
    }
    let Some(answer) = front.mux.ask(asked.body).await else { return unanswered(&asked) };
    if subscribe && Message::parse(&answer).is_ok_and(|answer| answer.result().is_some()) {
        subscriptions.add(&uri, &session.id);
    }
    json(StatusCode::OK, answer)
}

async fn call(front: &Front, parts: &Parts, asked: Asked<'_>) -> Response<Body> {
    let Some(client_id) = asked.message.id() else { return accepted() };
    let progresses = asked.params.meta.as_ref().is_some_and(|meta| meta.progress_token.is_some());
    let listens = asked.message.method() == Some("subscriptions/listen");
    let origin = Origin::new(asked.session.as_ref().map(|session| &*session.id), asked.client);
    let leaving_cancels = asked.revision == Revision::Modern;
    let request = Request { body: asked.body, message: asked.message, params: &asked.params, origin: Some(origin) };
    let ended = || error(StatusCode::BAD_GATEWAY, code::INTERNAL, ENDED, Some(client_id));
    let too_slow = || text(StatusCode::GATEWAY_TIMEOUT, "Timeout");
    if as_stream(&parts.headers, progresses || listens) {
        let (waiting, messages, sent) = front.mux.stream(request, leaving_cancels).await;
        match sent {
            Sent::Queued => {}
            Sent::Ended => return ended(),
            Sent::TooSlow => return too_slow(),
        }
        let last_words = ErrorBody::new(TIMED_OUT, "Timeout").id(Some(client_id)).encode();
        let deadline = (!listens).then(|| Deadline::new(front.mux.answer_timeout, last_words.into()));
        let body = Body::new(Events::new(messages, deadline, waiting));
        return events(match asked.session {
            Some(session) => {
                let renewal = Renewal::new(Arc::clone(&front.sessions), session);
                Body::new(Renewing { body, renewal })
            }
            None => body,
        });
    }
    let (mut waiting, answer, sent) = front.mux.call(request, leaving_cancels).await;
    match sent {
        Sent::Queued => {}
        Sent::Ended => return ended(),
        Sent::TooSlow => return too_slow(),
    }
    match timeout(front.mux.answer_timeout, answer).await {
        Ok(Ok(answer)) => {
            if asked.message.method() == Some("tools/list") {
                front.tools.learn(&answer.bytes);
            }
            passed_on(answer.into_bytes(), asked.revision)
        }
        Ok(Err(_)) => ended(),
        Err(_) => {
            waiting.leaving_cancels = true;
            too_slow()
        }
    }
}
