//! One HTTP request.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use mcp_http::{Body, empty, text};
use mcp_wire::headers as mcp;

use super::{Front, post};
use crate::endpoints::without_slash;
use crate::front::answer::events;
use crate::front::events::{Events, NoCall};
use crate::modern::{REVISIONS, not_allowed, protocol_version};
use crate::sessions::{Named, Renewal, Renewing, Sender, not_found, unavailable, whole};

const PATH: &str = "/mcp";
const METHODS: &str = "GET, POST, DELETE";

pub(super) async fn handle(front: Arc<Front>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    if without_slash(parts.uri.path()) != PATH {
        return text(StatusCode::NOT_FOUND, "Not Found");
    }
    if front.config.strict_versions
        && parts.headers.contains_key(mcp::PROTOCOL_VERSION)
        && !protocol_version(&parts.headers).is_some_and(|version| REVISIONS.contains(&version))
    {
        return text(StatusCode::BAD_REQUEST, "Unsupported MCP-Protocol-Version");
    }
    match parts.method {
        Method::POST => match whole(body).await {
            Ok(body) => post::handle(&front, &parts, body).await,
            Err(refusal) => refusal,
        },
        Method::GET => listen(&front, &parts).await,
        Method::DELETE => end(&front, &parts).await,
        _ => not_allowed(METHODS),
    }
}

fn without_session() -> Response<Body> {
    text(StatusCode::BAD_REQUEST, "Mcp-Session-Id is missing")
}

/// The stream on which a session hears what belongs to no call. A new one ends the one before.
async fn listen(front: &Front, parts: &Parts) -> Response<Body> {
    match Named::by(&*front.sessions, parts).await {
        Named::Known(session) => {
            let messages = front.mux.listeners.open(&session.id, Sender::of(&parts.extensions).client);
            let body = Body::new(Events::new(messages, None, NoCall));
            let renewal = Renewal::new(Arc::clone(&front.sessions), session);
            events(Body::new(Renewing { body, renewal }))
        }
        Named::Nothing => without_session(),
        Named::Unknown => not_found(None),
        Named::Unavailable => unavailable(),
    }
}

/// The end of a session.
async fn end(front: &Front, parts: &Parts) -> Response<Body> {
    match Named::by(&*front.sessions, parts).await {
        Named::Known(session) => match front.sessions.remove(&session.id, &session.principal).await {
            Ok(_) => {
                front.mux.forget(&session.id);
                let mut response = Response::new(empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Err(error) => {
                tracing::error!(%error, "cannot end a session");
                unavailable()
            }
        },
        Named::Nothing => without_session(),
        Named::Unknown => not_found(None),
        Named::Unavailable => unavailable(),
    }
}
