//! One HTTP request.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use mcp_http::{Body, text};
use uuid::Uuid;

use super::endpoint::MESSAGES;
use super::stream::SessionStream;
use super::{Front, endpoint, post};
use crate::endpoints::without_slash;
use crate::front::answer::events;
use crate::modern::not_allowed;
use crate::sessions::{Sender, whole};

/// Where a session is opened.
const STREAM: &str = "/sse";

pub(super) async fn handle(front: Arc<Front>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let (served, methods) = match without_slash(parts.uri.path()) {
        STREAM => (Method::GET, "GET"),
        MESSAGES => (Method::POST, "POST"),
        _ => return text(StatusCode::NOT_FOUND, "Not Found"),
    };
    if parts.method != served {
        not_allowed(methods)
    } else if served == Method::GET {
        open(&front, &parts)
    } else {
        match whole(body).await {
            Ok(body) => post::handle(&front, &parts, body).await,
            Err(refusal) => refusal,
        }
    }
}

/// Opens a session. It belongs to the caller, and lives for as long as its stream is read.
fn open(front: &Arc<Front>, parts: &Parts) -> Response<Body> {
    let Sender { principal: Some(principal), client } = Sender::of(&parts.extensions) else {
        return text(StatusCode::UNAUTHORIZED, "a session belongs to an issuer's subject, and the token names none");
    };
    let id = Uuid::new_v4().to_string();
    let endpoint = endpoint::url(&front.config.client_url, parts, &id);
    let Some((session, answers)) = front.sessions.open(&id, principal) else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open");
    };
    let due = session.due_answers();
    let mut response = events(Body::new(SessionStream::new(Arc::clone(front), session, client, &endpoint, answers)));
    response.extensions_mut().insert(due);
    response
}
