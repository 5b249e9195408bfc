//! What every front does with a message of a client.

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use mcp_http::{Body, is_type, json, text};
use mcp_store::Client;
use mcp_wire::{ErrorBody, Message, OwnedMessage, code};

use super::answer::result;
use crate::mux::rewrite::{Params, line};
use crate::mux::{Mux, Sent};
use crate::sessions::message;

/// The message in the body of a POST.
pub(super) async fn read(parts: &Parts, body: Bytes) -> Result<OwnedMessage, Response<Body>> {
    if !is_type(&parts.headers, "application/json") {
        return Err(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json"));
    }
    message(&parts.extensions, body).await.map_err(|error| json(StatusCode::BAD_REQUEST, error.body()))
}

/// Passes a notification on, where it concerns the server.
pub(super) async fn notification(
    mux: &Mux,
    session: Option<&str>,
    client: &Client,
    body: &Bytes,
    message: &Message<'_>,
    params: &Params<'_>,
) -> Sent {
    let line = match message.method() {
        Some("notifications/cancelled") => {
            let (Some(request), Some(session)) = (params.request_id, session) else { return Sent::Queued };
            let Some(id) = mux.find(session, request.get()) else { return Sent::Queued };
            line(body, &mut [(request.get(), &id)])
        }
        // A client's handshake, and what it says of requests to it or of its roots, concerns nobody: the server is never told about a client.
        Some("notifications/initialized" | "notifications/progress" | "notifications/roots/list_changed") => {
            return Sent::Queued;
        }
        _ => line(body, &mut []),
    };
    mux.notify(line, Some(client)).await
}

/// The answer to a `resources/subscribe` or `resources/unsubscribe` of `session`, which counts for `client`. `None` when the server gives none.
pub(super) async fn subscription(
    mux: &Mux,
    (session, client): (&str, &Client),
    body: &Bytes,
    message: &Message<'_>,
    params: &Params<'_>,
) -> Option<Bytes> {
    let id = message.id()?;
    let refused = |code, text| Some(ErrorBody::new(code, text).id(Some(id)).encode().into());
    let Some(uri) = &params.uri else { return refused(code::INVALID_PARAMS, "params.uri is missing") };
    let subscribe = message.method() == Some("resources/subscribe");
    if subscribe {
        if !mux.subscriptions.has_room(uri, client) {
            return refused(code::INTERNAL, "too many subscriptions");
        }
        if let Some(gone) = mux.subscriptions.join(uri, session, client) {
            mux.unsubscribe(gone);
            return Some(result(id, "{}"));
        }
    } else if !mux.subscriptions.part(uri, session) {
        return Some(result(id, "{}"));
    }
    let answer = mux.ask(body, Some(client)).await?;
    if subscribe && Message::parse(&answer).is_ok_and(|answer| answer.result().is_some()) {
        mux.unsubscribe(mux.subscriptions.add(uri, session, client));
    }
    Some(answer)
}
