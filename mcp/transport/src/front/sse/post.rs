//! One message of a client.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::BodyDataStream;
use mcp_http::{Body, json, text};
use mcp_store::Client;
use mcp_wire::{
    ErrorBody, Kind, LEGACY_VERSION, MODERN_VERSION, Message, OwnedMessage, Revision, classify, code, headers as mcp,
};

use super::Front;
use super::session::{Answer, Place, Session};
use crate::carriers::Carried;
use crate::front::answer::{SILENCE, error, failed, refused, result, timed_out};
use crate::front::events::{Deadline, Events, TimedOut, frame};
use crate::front::forward;
use crate::modern::protocol_version;
use crate::mux::rewrite::Params;
use crate::mux::{ENDED, Origin, Outcome, Request, Sent, Waiting};
use crate::sessions::{Sender, not_found};

const NO_RESPONSES: &str =
    "Responses are not accepted: the server's process is shared, and its requests reach no client";
const MODERN: &str =
    "MCP 2026-07-28 is not served over HTTP with server-sent events; use streamable HTTP or an older revision";
const OVER: &str = "the session is over";
const BUSY: &str =
    "too many requests of this session or client wait for their answers; read the stream, then send it again";

pub(super) async fn handle(front: &Arc<Front>, parts: &Parts, body: Bytes) -> Response<Body> {
    let owned = match forward::read(parts, body).await {
        Ok(message) => message,
        Err(refusal) => return refusal,
    };
    let message = owned.message();
    if !matches!(classify(protocol_version(&parts.headers), message), Ok(Revision::Legacy)) {
        return modern(message);
    }
    if let Err(mismatch) = mcp::check(&parts.headers, message) {
        return json(StatusCode::BAD_REQUEST, mismatch.body(message.id()));
    }
    let params = match Params::of(message) {
        Ok(params) => params,
        Err(error) => return json(StatusCode::BAD_REQUEST, error.body()),
    };
    let sender = Sender::of(&parts.extensions);
    let id = match Carried::by(parts) {
        Carried::Nothing => return text(StatusCode::BAD_REQUEST, "session_id is missing"),
        Carried::Id(id) => Some(id),
        Carried::Conflict => None,
    };
    let session = id.zip(sender.principal.as_ref()).and_then(|(id, principal)| front.sessions.find(&id, principal));
    let unknown = || not_found(message.id().map(|id| id.raw()));
    let Some(session) = session else { return unknown() };
    tokio::select! {
        biased;
        // A message that still waits for the server is not sent any more then.
        () = session.over() => unknown(),
        answer = pass(front, &session, &owned, &params, sender.client) => answer,
    }
}

/// Passes a message of `session` on, and has what the server says to it go to the stream.
async fn pass(
    front: &Arc<Front>,
    session: &Session,
    owned: &OwnedMessage,
    params: &Params<'_>,
    client: Client,
) -> Response<Body> {
    let message = owned.message();
    match message.kind() {
        Kind::Response => text(StatusCode::BAD_REQUEST, NO_RESPONSES),
        Kind::Notification => {
            match forward::notification(&front.mux, Some(&session.id), &client, owned, params).await {
                Sent::Queued => accepted(),
                Sent::Ended | Sent::TooSlow => json(StatusCode::BAD_GATEWAY, failed(SILENCE, None)),
            }
        }
        Kind::Request => {
            let Asked { ours, kept } = Asked::of(owned, params);
            let Some(place) = session.place(&front.mux, &client, kept) else {
                return error(StatusCode::TOO_MANY_REQUESTS, code::INTERNAL, BUSY, message.id());
            };
            let answer = if ours {
                local(Arc::clone(front), (Arc::clone(&session.id), client), owned.clone(), place)
            } else {
                // A client may go on with its calls after the proxy and the server were replaced: the stream has no word for "initialize again".
                front.mux.ensure_greeted().await;
                let origin = Origin::new(Some(&session.id), client);
                let request = Request { message: owned, origin: Some(origin) };
                call(front, request, place).await
            };
            if session.answer(answer) {
                accepted()
            } else {
                // Just now, and the process may have it.
                error(StatusCode::BAD_GATEWAY, code::INTERNAL, OVER, message.id())
            }
        }
    }
}

/// What is to be done about a request.
struct Asked {
    /// Whether the front answers it, or the multiplexer for all clients.
    ours: bool,
    /// How many bytes are kept of it until it is answered.
    kept: usize,
}

impl Asked {
    fn of(request: &OwnedMessage, params: &Params<'_>) -> Self {
        let ours = matches!(
            request.method(),
            Some("initialize" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe")
        );
        let id = request.id().map_or(0, |id| id.raw().len());
        let token = params.meta.as_ref().and_then(|meta| meta.progress_token).map_or(0, |token| token.get().len());
        // The id is kept for the answer, and for the error when none comes in time.
        Self { ours, kept: if ours { request.body().len() } else { 2 * id + token } }
    }
}

fn accepted() -> Response<Body> {
    text(StatusCode::ACCEPTED, "Accepted")
}

/// The stateless era has no streams that outlive a request, so that this transport is not part of it (MCP 2026-07-28, Transports).
fn modern(message: &Message<'_>) -> Response<Body> {
    let data = format!("{{\"requested\":\"{MODERN_VERSION}\",\"supported\":[\"{LEGACY_VERSION}\"]}}");
    let error = ErrorBody::new(code::UNSUPPORTED_VERSION, MODERN).id(message.id()).data(&data);
    json(StatusCode::BAD_REQUEST, error.encode())
}

/// The answer to a request that the front answers. What it takes is done when the stream is read.
fn local(front: Arc<Front>, (session, client): (Arc<str>, Client), request: OwnedMessage, place: Place) -> Answer {
    let answer = async move {
        let (message, _place) = (request.message(), place);
        let Some(id) = message.id() else { return Ok(Bytes::new()) };
        let answer = match message.method() {
            Some("initialize") => match front.mux.greet(message).await {
                Outcome::Result(value) => Some(result(id, &value)),
                Outcome::Refused(error) => Some(refused(id, &error)),
                Outcome::Silence => None,
            },
            Some("logging/setLevel") => Some(result(id, "{}")),
            _ => {
                let params = Params::of(message).unwrap_or_default();
                forward::subscription(&front.mux, (&session, &client), &request, &params).await
            }
        };
        Ok(frame(&answer.unwrap_or_else(|| failed(SILENCE, Some(id)))).into())
    };
    stream::once(answer).boxed()
}

/// The answer to a request that the server answers, after its progress.
async fn call(front: &Front, request: Request<'_>, place: Place) -> Answer {
    let id = request.message.id();
    let (waiting, messages, sent) = front.mux.stream(request, true).await;
    match sent {
        Sent::Queued => {
            let deadline = Deadline::new(front.mux.answer_timeout, timed_out(id));
            BodyDataStream::new(Events::part(messages, deadline, UnderWay { _waiting: waiting, _place: place })).boxed()
        }
        Sent::Ended => unsent(failed(ENDED, id), place),
        Sent::TooSlow => unsent(timed_out(id), place),
    }
}

/// The answer to a request that did not reach the server.
fn unsent(error: Bytes, place: Place) -> Answer {
    let answer = async move {
        let _place = place;
        Ok(frame(&error).into())
    };
    stream::once(answer).boxed()
}

/// A call that is cancelled when nobody waits for it any more: nobody ever will, since the session is over or the time is.
struct UnderWay {
    _waiting: Waiting,
    _place: Place,
}

impl TimedOut for UnderWay {}
