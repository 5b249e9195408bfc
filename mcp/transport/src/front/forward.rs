//! What every front does with a message of a client.

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use mcp_http::{Body, is_type, json, text};
use mcp_middleware::beside;
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
    message: &OwnedMessage,
    params: &Params<'_>,
) -> Sent {
    let cancelled = match message.method() {
        Some("notifications/cancelled") => {
            let (Some(request), Some(session)) = (params.request_id, session) else { return Sent::Queued };
            let Some(id) = mux.find(session, request.get()) else { return Sent::Queued };
            Some(id)
        }
        // A client's handshake, and what it says of requests to it or of its roots, concerns nobody: the server is never told about a client.
        Some("notifications/initialized" | "notifications/progress" | "notifications/roots/list_changed") => {
            return Sent::Queued;
        }
        _ => None,
    };
    let notification = message.clone();
    let line = beside(message.body().len(), move || {
        let request = notification.message().param("requestId").ok().flatten().zip(cancelled.as_deref());
        let mut edits: Vec<_> = request.map(|(request, id)| (request.get(), id)).into_iter().collect();
        line(notification.body(), &mut edits)
    });
    mux.notify(line.await, Some(client)).await
}

/// The answer to a `resources/subscribe` or `resources/unsubscribe` of `session`, which counts for `client`. `None` when the server gives none.
pub(super) async fn subscription(
    mux: &Mux,
    (session, client): (&str, &Client),
    message: &OwnedMessage,
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
    let answer = mux.ask(message, Some(client)).await?;
    let read = answer.clone();
    let is_result = move || Message::parse(&read).is_ok_and(|answer| answer.result().is_some());
    if subscribe && beside(answer.len(), is_result).await {
        mux.unsubscribe(mux.subscriptions.add(uri, session, client));
    }
    Some(answer)
}
