//! One message of a client.

use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderValue;
use http::request::Parts;
use http::{Response, StatusCode};
use mcp_http::{Body, json, text};
use mcp_middleware::beside;
use mcp_store::{Client, SessionRecord};
use mcp_wire::{Kind, MODERN_VERSION, Message, OwnedMessage, Revision, classify, code, headers as mcp};
use tokio::time::timeout;
use uuid::Uuid;

use super::answer::{accepted, as_stream, passed_on};
use super::{Front, modern};
use crate::front::answer::{SILENCE, error, events, failed, refused, result, timed_out};
use crate::front::events::{Deadline, Events};
use crate::front::forward;
use crate::modern::{protocol_version, revision_refusal};
use crate::mux::rewrite::Params;
use crate::mux::{ENDED, Origin, Outcome, Request, Sent};
use crate::sessions::{Named, Renewal, Renewing, Sender, not_found, unavailable};

/// A request of a client that was read and let in.
struct Asked<'a> {
    owned: &'a OwnedMessage,
    message: &'a Message<'a>,
    params: Params<'a>,
    revision: Revision,
    session: Option<Arc<SessionRecord>>,
    client: Client,
}

pub(super) async fn handle(front: &Arc<Front>, parts: &Parts, body: Bytes) -> Response<Body> {
    let owned = match forward::read(parts, body).await {
        Ok(message) => message,
        Err(refusal) => return refusal,
    };
    let message = owned.message();
    let params = match Params::of(message) {
        Ok(params) => params,
        Err(error) => return json(StatusCode::BAD_REQUEST, error.body()),
    };
    let revision = match classify(protocol_version(&parts.headers), message) {
        Ok(revision) => revision,
        Err(error) => return revision_refusal(&error, message),
    };
    let headers = match revision {
        Revision::Legacy => mcp::check(&parts.headers, message),
        Revision::Modern => modern::check(&front.tools, &parts.headers, &owned).await,
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
            Named::Unknown => return not_found(message.id().map(|id| id.raw())),
            Named::Unavailable => return unavailable(),
        }
    };
    let client = Sender::of(&parts.extensions).client;
    // A handshake counts as one of the Legacy era, whatever its headers say.
    let is_modern = revision == Revision::Modern || protocol_version(&parts.headers) == Some(MODERN_VERSION);
    let asked = Asked { owned: &owned, message, params, revision, session, client };
    match message.kind() {
        // Nothing was asked of any client, so nothing waits for this.
        Kind::Response => accepted(),
        Kind::Notification => notification(front, &asked).await,
        Kind::Request => match message.method() {
            Some(method) if is_modern && modern::is_gone(method) => {
                error(StatusCode::NOT_FOUND, code::METHOD_NOT_FOUND, "Method not found", message.id())
            }
            Some("initialize") => initialize(front, parts, &asked).await,
            Some(method) if revision == Revision::Modern => match front.mux.serves_modern().await {
                None => text(StatusCode::GATEWAY_TIMEOUT, "Timeout"),
                // Its own refusal of this method is what clients of both eras wait for.
                Some(false) if method != "server/discover" => {
                    json(StatusCode::BAD_REQUEST, modern::not_served(message.id()))
                }
                Some(_) => call(front, parts, asked).await,
            },
            Some("logging/setLevel") if revision == Revision::Legacy => local(&asked, "{}"),
            Some("resources/subscribe" | "resources/unsubscribe") => subscription(front, &asked).await,
            _ => call(front, parts, asked).await,
        },
    }
}

/// An answer that does not need the server.
fn local(asked: &Asked<'_>, value: &str) -> Response<Body> {
    asked.message.id().map_or_else(accepted, |id| json(StatusCode::OK, result(id, value)))
}

async fn initialize(front: &Front, parts: &Parts, asked: &Asked<'_>) -> Response<Body> {
    match front.mux.greet(asked.message).await {
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
        Outcome::Refused(error) => {
            asked.message.id().map_or_else(accepted, |id| passed_on(refused(id, &error), Revision::Legacy))
        }
        Outcome::Silence => unanswered(asked),
    }
}

fn unanswered(asked: &Asked<'_>) -> Response<Body> {
    json(StatusCode::BAD_GATEWAY, failed(SILENCE, asked.message.id()))
}

async fn notification(front: &Front, asked: &Asked<'_>) -> Response<Body> {
    let session = asked.session.as_ref().map(|session| &*session.id);
    match forward::notification(&front.mux, session, &asked.client, asked.owned, &asked.params).await {
        Sent::Queued => accepted(),
        Sent::Ended | Sent::TooSlow => unanswered(asked),
    }
}

async fn subscription(front: &Front, asked: &Asked<'_>) -> Response<Body> {
    // Without a session nobody would hear of the resource, and anybody could end what others subscribed to.
    let Some(session) = &asked.session else {
        return error(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, "Mcp-Session-Id is missing", asked.message.id());
    };
    let answer = forward::subscription(&front.mux, (&session.id, &asked.client), asked.owned, &asked.params).await;
    // A session that ended before the answer came would stay subscribed for ever.
    if matches!(front.sessions.load(&session.id, &session.principal).await, Ok(None)) {
        front.mux.forget(&session.id);
    }
    answer.map_or_else(|| unanswered(asked), |answer| json(StatusCode::OK, answer))
}

async fn call(front: &Arc<Front>, parts: &Parts, asked: Asked<'_>) -> Response<Body> {
    let Some(client_id) = asked.message.id() else { return accepted() };
    let progresses = asked.params.meta.as_ref().is_some_and(|meta| meta.progress_token.is_some());
    let listens = asked.message.method() == Some("subscriptions/listen");
    let origin = Origin::new(asked.session.as_ref().map(|session| &*session.id), asked.client);
    let leaving_cancels = asked.revision == Revision::Modern;
    let request = Request { message: asked.owned, origin: Some(origin) };
    let ended = || json(StatusCode::BAD_GATEWAY, failed(ENDED, Some(client_id)));
    let too_slow = || text(StatusCode::GATEWAY_TIMEOUT, "Timeout");
    if as_stream(&parts.headers, progresses || listens) {
        let (waiting, messages, sent) = front.mux.stream(request, leaving_cancels).await;
        match sent {
            Sent::Queued => {}
            Sent::Ended => return ended(),
            Sent::TooSlow => return too_slow(),
        }
        let deadline = (!listens).then(|| Deadline::new(front.mux.answer_timeout, timed_out(Some(client_id))));
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
            let (answer, front, revision) = (answer.into_bytes(), Arc::clone(front), asked.revision);
            let is_list = asked.message.method() == Some("tools/list");
            beside(answer.len(), move || {
                if is_list {
                    front.tools.learn(&answer);
                }
                passed_on(answer, revision)
            })
            .await
        }
        Ok(Err(_)) => ended(),
        Err(_) => {
            waiting.leaving_cancels = true;
            too_slow()
        }
    }
}
