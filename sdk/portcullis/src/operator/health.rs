//! `/healthz` and `/readyz`.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::watch;

use crate::server::Handler;

/// Says whether the process lives and whether it can do its work. Ready once, it stays ready until it ends: a webhook whose endpoints go away because
/// of a passing fault takes the cluster's writes with it.
#[derive(Clone, Debug)]
pub(super) struct Health {
    waiting_for: watch::Sender<Option<Arc<str>>>,
}

impl Health {
    pub(super) fn new(waiting_for: &str) -> Self {
        Self { waiting_for: watch::Sender::new(Some(Arc::from(waiting_for))) }
    }

    pub(super) fn waiting_for(&self, what: impl Into<Arc<str>>) {
        self.waiting_for.send_replace(Some(what.into()));
    }

    pub(super) fn ready(&self) {
        self.waiting_for.send_replace(None);
    }
}

impl Handler for Health {
    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let waiting_for = self.waiting_for.borrow().clone();
        match (request.method(), request.uri().path(), waiting_for) {
            (&Method::GET | &Method::HEAD, "/healthz", _) | (&Method::GET | &Method::HEAD, "/readyz", None) => {
                answer(StatusCode::OK, "ok\n".to_owned())
            }
            (&Method::GET | &Method::HEAD, "/readyz", Some(what)) => {
                answer(StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {what}\n"))
            }
            _ => answer(StatusCode::NOT_FOUND, "GET /healthz or /readyz\n".to_owned()),
        }
    }
}

fn answer(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
