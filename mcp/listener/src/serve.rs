//! Serving one connection, from the first byte to the last.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use portcullis_listener::retry_later;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

use crate::body::{Answer, RequestBody};
use crate::clock::{Clock, Due};
use crate::connection::{Busy, Told};
use crate::handler::Handler;
use crate::limits::Limits;
use crate::places::Place;

/// The smallest buffer that hyper takes, in bytes.
const SMALLEST_BUFFER: usize = 8192;

/// Serves the requests that arrive on `stream` until the client or a timeout ends it, or an instruction
/// ([`Connection::tell`](crate::connection::Connection::tell)). Faults of a client end its own connection and nothing else.
pub(crate) async fn serve<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    place: &Place,
    handler: &H,
    limits: Limits,
) {
    let connection = place.connection();
    let service = service_fn(|request: Request<Incoming>| {
        let busy = connection.request();
        async move { Ok::<_, Infallible>(answer(handler, place, busy, request).await) }
    });
    let http = http1::Builder::new()
        // hyper's own would count the time between two requests as part of the head.
        .header_read_timeout(None)
        .max_header_size(limits.head_bytes)
        .max_buf_size(limits.head_bytes.max(SMALLEST_BUFFER))
        .serve_connection(TokioIo::new(stream), service);
    let (mut http, mut clock, mut told) = (pin!(http), Clock::new(limits), Told::LastAnswer);
    // By hand and not with `select!`: this runs at every wake-up, and locks of timers and tokens cost more than the
    // rest of it.
    let ended = poll_fn(|cx| {
        let news = connection.listen(cx.waker());
        if news > told {
            // Ends a connection that idles, and lets one at work say `connection: close` with its answer, so that the
            // client's pool does not send its next request here. One on which nothing was asked would be ended at once,
            // and with it a request that is just arriving: the clock gives it a moment.
            if connection.requests() > 0 {
                http.as_mut().graceful_shutdown();
            }
            told = news;
        }
        loop {
            if let Poll::Ready(ended) = http.as_mut().poll(cx) {
                return Poll::Ready(Some(ended));
            }
            match clock.poll(cx, connection) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Due::Look) => connection.look(),
                Poll::Ready(Due::End) => return Poll::Ready(None),
            }
        }
    });
    let peer = connection.peer();
    match ended.await {
        Some(Ok(())) => {}
        Some(Err(error)) => debug!(%error, %peer, "connection ended early"),
        None => debug!(%peer, "closed a connection: no request arrived in time, or another one needs its place"),
    }
}

async fn answer<H: Handler>(
    handler: &H,
    place: &Place,
    busy: Busy,
    request: Request<Incoming>,
) -> Response<Answer<H::Body>> {
    let connection = place.connection();
    let request = request.map(|body| RequestBody::new(body, connection.clone()));
    let mut answer = pin!(handle(handler, place, request));
    let answer = poll_fn(|cx| match connection.told() {
        // Another replica, or the next process, can do better.
        Told::Cut | Told::Close => {
            Poll::Ready(retry_later(StatusCode::SERVICE_UNAVAILABLE, "this server is shutting down").map(Either::Right))
        }
        _ => answer.as_mut().poll(cx).map(|answer| answer.map(Either::Left)),
    });
    let mut answer = answer.await;
    if connection.told() != Told::Stay {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer.map(|body| Answer { body, _busy: busy })
}

async fn handle<H: Handler>(handler: &H, place: &Place, mut request: Request<RequestBody>) -> Response<H::Body> {
    place.has_head();
    if let Some(client) = handler.client(&request) {
        place.counts_for(&client);
    }
    if place.is_reserved() || place.exceeds_share() {
        return handler.shed(request).await;
    }
    request.extensions_mut().insert(place.clone());
    handler.handle(request).await
}
